"""A short campaign of sealing; ``python -m tests.chaos.audit`` runs a long one."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.audit.campaign import Campaign, Options


def test_nothing_is_left_unsealed_or_sealed_twice(database_url: str, tmp_path: Path) -> None:
    options = Options(seed=7, acts=60, producers=4)
    found = Campaign(options, database_url, tmp_path).run()
    assert found.wrong == []
    assert found.acts + found.rolled_back == options.acts * options.producers
    assert found.kills and found.seals and found.anchors and found.rolled_back
