"""A short campaign of edits, resets and replays; ``python -m tests.chaos.edits_campaign`` runs a long one."""

from __future__ import annotations

import pytest

from strandline.schemas.postgres.migrate import migrate
from tests.chaos.edits_campaign import Campaign, Options


@pytest.mark.timeout(1_800)
def test_edits_resets_and_replays_at_once_leave_nothing_wrong(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No deleted, cleared or forgotten words are live, and verify is clean at every look."""
    for setting in ("STATEMENT_TIMEOUT", "POOL_TIMEOUT", "CONNECT_TIMEOUT"):
        monkeypatch.setenv(f"STRANDLINE_{setting}_SECONDS", "600")
    migrate(empty_database_url, "strandline")
    options = Options(seed=1, operations=1_400, actors=2, owners=12, hot=4)
    found = Campaign(options, empty_database_url).run()
    assert found.wrong == []
    assert found.operations >= options.operations
    assert found.looks > 1 and found.deleted_tokens > 0
