"""``python -m bench.recall``: how much of what answers a question is among the first messages found."""

from __future__ import annotations

import sys

from bench.recall.measure import main

if __name__ == "__main__":
    sys.exit(main())
