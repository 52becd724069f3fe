"""Each statement that deletes is the act of who asked for it, or is held against who may still use it."""

from __future__ import annotations

import re
from pathlib import Path

from strandline.schemas.postgres.statements import statements

ROOT = Path(__file__).parents[2]
# These delete what somebody said to delete, or what the same transaction makes anew, under the locks of that.
ACTS = {
    "backfill_owner", "begin_batch_v1", "close_batch", "correct_v1", "delete_chunks", "delete_items",
    "derive_again_v1", "erase_directory_v1", "erase_items_v1", "erase_kept_items_v1",
    "erase_names_v1", "erase_rows_v1", "erase_session_v1", "erase_shared_v1", "finish_batch",
    "forget_owners_generations", "forget_traces_v1", "move_rows_v1", "pop_v1", "rederive_v1", "redo_batch",
    "remove_facts_v1", "reset_v1", "revive_event",
}  # fmt: skip


def test_each_claim_of_disuse_is_held() -> None:
    page = (ROOT / "docs/architecture/failures.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(\w+)`", page.partition("## Claims of disuse")[2]))
    texts = dict(statements("strandline"))
    for path in (ROOT / "schemas/sql/functions").glob("*.sql"):
        texts[path.stem] = path.read_text(encoding="utf-8")
    deleting = {name for name, text in texts.items() if "DELETE FROM" in text}
    assert len(deleting) > 50
    assert deleting - listed - ACTS == set(), (
        "say in the page how these are held against who may still use it"
    )
    assert deleting >= ACTS and not ACTS & listed
