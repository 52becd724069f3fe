"""A sealer in its own process, to be killed: ``python -m tests.chaos.audit.sealer URL ANCHORS``."""

from __future__ import annotations

import sys
from pathlib import Path

from strandline.pipelines.audit.keys import one_key
from strandline.pipelines.audit.sealing import seal_once
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from strandline.workers.sealing import append_to

KEYS = one_key("a secret of this campaign")
# So few that a pass leaves entries for the next one, and there are many seals to be killed in.
ENTRIES_PER_PASS = 20


def main(url: str, anchors: Path) -> None:
    """Seal without a pause until the process is killed; hand over each anchor at once."""
    options = ConnectionOptions.from_settings(url, load_settings(), pool_size=1, durable=False)
    database, export = Database.connect(options), append_to(anchors)
    while True:
        done = database.run(seal_once(KEYS, limit=ENTRIES_PER_PASS))
        if done.anchors:
            export(done.anchors)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
