"""Tests of libraries that are in the environment of `make test-legacy` alone; elsewhere none is collected."""

from __future__ import annotations

import os
from importlib.util import find_spec

# No run of an agent is reported to its makers.
os.environ["AGNO_TELEMETRY"] = "false"
os.environ["AGNO_MONITOR"] = "false"

collect_ignore_glob = [] if find_spec("tframex") else ["test_*.py"]
