"""``python -m tests.chaos.audit``: prints what was found as JSON; ends with 1 if anything is wrong."""

from __future__ import annotations

import sys

from tests.chaos.audit.campaign import Options, campaign
from tests.chaos.command import run

if __name__ == "__main__":
    sys.exit(run(Options(), campaign, "Seal the audit trail while sealers are killed."))
