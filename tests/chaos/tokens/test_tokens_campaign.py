"""A short campaign of everything at once; ``python -m tests.chaos.tokens`` runs a long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.tokens.campaign import Campaign, Options
from tests.conftest import Rig
from tests.support.opened_rows import clear_only


@clear_only("encrypts by itself, with a keyring of its own")
@pytest.mark.timeout(1_800)
def test_no_read_shows_what_is_gone_or_anothers(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every read is held to what was accepted and taken back before, beside kills, cuts and erasures."""
    for setting in ("STATEMENT_TIMEOUT", "POOL_TIMEOUT", "CONNECT_TIMEOUT"):
        monkeypatch.setenv(f"STRANDLINE_{setting}_SECONDS", "600")
    options = Options(
        seed=3,
        minutes=0,
        operations=120,
        users=1,
        workers=1,
        actors=2,
        operations_per_kill=40,
        command_pause=12,
    )
    one = Campaign(options, rig.url, rig.broker_url, rig.model.base_url, tmp_path)
    for name, value in one.environment.items():
        monkeypatch.setenv(name, value)
    book = one.run()
    assert book.wrong == []
    assert book.counts.total() > options.operations
    assert book.counts["history"] and book.counts["put"] and book.counts["facts"]
