"""How the tests of pipelines have work done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from tests.support.workers.draining import drain_everything

Drain = Callable[..., None]


@pytest.fixture
def drain(database: Database, database_url: str, settings: Settings) -> Drain:
    """Does all work that is due, or that of the given stages, in this process."""

    def drain_now(*stages: str) -> None:
        drain_everything(database, database_url, settings, *([stages] if stages else []))

    return drain_now
