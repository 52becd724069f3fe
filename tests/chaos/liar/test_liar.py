"""Short campaigns of a lying and of a truthful model; ``python -m tests.chaos.liar`` runs a long one."""

from __future__ import annotations

from itertools import combinations

import pytest

from strandline.pipelines.facts.kinds import kinds_of
from strandline.schemas.settings import Settings
from tests.chaos.liar.campaign import Campaign, Options
from tests.chaos.liar.people import ASPECTS, LASTING
from tests.conftest import Rig


def test_code_can_tell_aspects_apart() -> None:
    groups = [*ASPECTS.values(), *((text,) for text in LASTING)]
    for one, other in combinations(groups, 2):
        for left in one:
            for right in other:
                assert not kinds_of(left) & kinds_of(right), (left, right)


@pytest.mark.timeout(600)
def test_no_true_fact_is_lost_by_a_lie(rig: Rig, model_settings: Settings) -> None:
    found = Campaign(Options(seed=1, events=120, users=6), rig.url, rig.model, model_settings).run()
    assert found.wrong == []
    assert found.doubts > 0 and sum(found.told.values()) > 0


@pytest.mark.timeout(600)
def test_right_decisions_are_not_refused(rig: Rig, model_settings: Settings) -> None:
    options = Options(seed=2, events=80, users=4, lying=0, failing=0)
    found = Campaign(options, rig.url, rig.model, model_settings).run()
    assert found.wrong == []
    assert found.right_refused <= 0.02 * sum(found.right.values())
