"""python -m tests.chaos.liar --seed 1 --events 5000 --users 200"""

from __future__ import annotations

import sys

from tests.chaos.command import run
from tests.chaos.liar.campaign import Options, campaign

if __name__ == "__main__":
    sys.exit(run(Options(), campaign, __doc__))
