"""The user whose facts most of these tests look at, and how they are derived."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from strandline import Facts
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE
from tests.support.workers.draining import drain_everything

Derive = Callable[[], None]


@pytest.fixture
def derive(database: Database, database_url: str, model_settings: Settings) -> Derive:
    return lambda: drain_everything(database, database_url, model_settings, (EXTRACT_STAGE, MERGE_STAGE))


@pytest.fixture
def facts(database: Database, database_url: str) -> Iterator[Facts]:
    facts = Facts.for_owner(user_id="ana", database_url=database_url)
    yield facts
    facts.close()
