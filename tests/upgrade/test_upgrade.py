"""The short form of ``make upgrade-drill``: every phase, without its bounds of time."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.deploy.embedded.stack import EmbeddedStack
from tests.soak.cases import say
from tests.soak.measuring.ground import Grounds
from tests.support.servers.databases import ENCRYPTION
from tests.upgrade.drill import Drill


@pytest.mark.skipif(ENCRYPTION, reason="its processes have no keyring")
def test_an_upgrade_back_and_forward_again_loses_and_refuses_nothing(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    assert stack.broker_url is not None
    with Grounds(stack.database_url, stack.broker_url).fresh() as ground:
        readings = list(Drill(ground, tmp_path, say, rate=10.0, phase_messages=20, kill_at=(3, 4)).run())
    assert [reading for reading in readings if reading.unit != "s" and reading.verdict != "kept"] == []
