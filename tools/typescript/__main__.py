"""``python -m tools.typescript``."""

from tools.typescript import main

main()
