"""``python -m bench.facts``: how good the facts are that extract and merge make of conversations."""

from __future__ import annotations

import sys

from bench.facts.measure import main

if __name__ == "__main__":
    sys.exit(main())
