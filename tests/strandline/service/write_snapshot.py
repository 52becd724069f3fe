"""Write the snapshot of the service's description again: after a change of the contract that is meant.

.venv/bin/python -m tests.strandline.service.write_snapshot
"""

from __future__ import annotations

import json
from pathlib import Path

from strandline.schemas.settings import load_settings
from strandline.service.app import build_service

SNAPSHOT = Path(__file__).parent / "openapi.json"


def main() -> None:
    """Write the file."""
    settings = load_settings(database_url="postgresql://nobody@127.0.0.1/none")
    document = build_service(settings).openapi()
    SNAPSHOT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
