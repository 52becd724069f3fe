"""A small replay campaign beside live traffic; the full one is ``tests.chaos.replay_campaign``."""

from __future__ import annotations

from tests.chaos.replay_campaign import Options, campaign


def test_a_replay_under_way_is_seen_by_no_reader() -> None:
    """No read without memory or of two generations, and the result is that of a derivation from scratch."""
    found = campaign(
        Options(
            sessions=6,
            kills=1,
            live_sessions=2,
            baseline_seconds=0,
            latency=0.0,
            rate=10.0,
            real=False,
            local=False,
            await_kill=True,
        )
    )
    assert found.wrong == []
    assert found.violations == []
    assert found.differing == {"facts": 0, "sources": 0, "pieces": 0}
    assert found.reads > 0 and found.kills == 1 and found.events > 20
