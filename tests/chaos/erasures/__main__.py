"""``python -m tests.chaos.erasures``: prints what was found as JSON; ends with 1 if anything is wrong."""

from __future__ import annotations

import sys

from tests.chaos.command import run
from tests.chaos.erasures.campaign import Options, campaign

if __name__ == "__main__":
    sys.exit(run(Options(), campaign, "Erase users and sessions while everything else goes on."))
