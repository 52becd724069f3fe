"""A next release, made of this checkout: a migration, a function's second version, a newer event, a setting.

Each change is one that a real release could make.
"""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ROOMS = ("schemas", "pipelines", "producers", "workers", "deploy", "strandline")
REVISION = "0002"
EVENT_VERSION = 2
# What the setting is called before, and in the next release.
SETTING = ("sweep_batch_size", "sweep_rows")

MIGRATION = """\
-- step: the column note of flush_event
ALTER TABLE strandline.flush_event ADD COLUMN IF NOT EXISTS note text DEFAULT 'none' NOT NULL

-- step: the column mood of session
ALTER TABLE strandline.session ADD COLUMN IF NOT EXISTS mood text

-- step: the table diary
CREATE TABLE IF NOT EXISTS strandline.diary (
    shard_key uuid NOT NULL, event_id uuid NOT NULL, PRIMARY KEY (shard_key, event_id))

-- step: an index of message by its tokens
CREATE INDEX CONCURRENTLY IF NOT EXISTS message_by_tokens ON strandline.message (tokens)

-- step: flush_v2
-- function: flush_v2
"""
STEPS = MIGRATION.count("-- step: ")


def make_next_release(folder: Path) -> Path:
    """Copy the product into ``folder`` and change it; returns the folder, which a process runs in."""
    for room in ROOMS:
        shutil.copytree(
            ROOT / room, folder / room, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    sql = folder / "schemas/sql"
    (sql / "migrations/0002_next.sql").write_text(MIGRATION)
    flush = (sql / "functions/flush_v1.sql").read_text().replace("flush_v1", "flush_v2")
    end = flush.rindex("INSERT INTO strandline.flush_event (")
    diary = "INSERT INTO strandline.diary SELECT p_shard_key, gen_random_uuid();\n    "
    (sql / "functions/flush_v2.sql").write_text(flush[:end] + diary + flush[end:])
    _change(sql / "flush.sql", "strandline.flush_v1(", "strandline.flush_v2(")
    _change(folder / "schemas/version.py", 'VERSION = "', 'VERSION = "1')
    event = folder / "schemas/values/flush_event.py"
    _change(
        event, "EVENT_VERSION: Literal[1] = 1", f"EVENT_VERSION: Literal[{EVENT_VERSION}] = {EVENT_VERSION}"
    )
    _change(event, "version: Literal[1] =", f"version: Literal[1, {EVENT_VERSION}] =")
    for path in (folder / "schemas/settings.py", folder / "workers/worker.py"):
        _change(path, *SETTING)
    return folder


def _change(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text, f"{path} has no {before!r} any more: change the next release"
    path.write_text(text.replace(before, after))
