"""The short form of ``make restore-drill``: each documented way, without its bounds of time."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conftest import OTHER_SERVER
from tests.restore.drill import Drill
from tests.soak.cases import say
from tests.support.servers.databases import ENCRYPTION


@pytest.mark.skipif(OTHER_SERVER is not None or ENCRYPTION, reason="it starts servers of its own")
def test_each_documented_backup_is_restored_and_whole() -> None:
    # The server's account has to reach it, which it cannot in a folder of the tests.
    with TemporaryDirectory(prefix="strandline-restore-", dir="/tmp") as folder:
        readings = list(Drill(Path(folder), say, messages=40).run())
    assert {name for name, _reading in readings} == {"broker", "dump", "point in time"}
    assert [one for one in readings if one[1].unit != "s" and one[1].verdict != "kept"] == []
