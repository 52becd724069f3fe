"""A short campaign of erasures; ``python -m tests.chaos.erasures`` runs a long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.erasures.campaign import Campaign, Options


@pytest.mark.timeout(1_800)
def test_erasures_against_everything_at_once(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the receipt no reader, table or dump has a word of who was erased, whatever was under way."""
    for setting in ("STATEMENT_TIMEOUT", "POOL_TIMEOUT", "CONNECT_TIMEOUT"):
        monkeypatch.setenv(f"STRANDLINE_{setting}_SECONDS", "600")
    options = Options(seed=5, runs=3, dump_every=3)
    found = Campaign(options, database_url, tmp_path).run()
    assert found.wrong == []
    assert found.users and found.sessions
    assert found.rows_erased > 100 and found.dumps == 1
    assert found.outcomes["ErasedError"] > 0
