"""``python -m strandline``: the command line."""

from __future__ import annotations

from strandline.cli import main

if __name__ == "__main__":
    main()
