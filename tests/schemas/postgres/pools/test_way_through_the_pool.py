"""A task says when it is inside the pool of its event loop, so that nothing makes it wait there."""

from __future__ import annotations

import pytest

from strandline.schemas.postgres.async_database import AsyncDatabase
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.pools.reconnecting import LoopPool
from strandline.schemas.postgres.pools.thin_pool import IS_IN_POOL
from strandline.schemas.settings import load_settings


async def test_a_task_is_in_the_pool_while_it_borrows_and_gives_back(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bool]] = []

    def note(name: str) -> None:
        method = getattr(LoopPool, name)

        async def noted(*arguments: object) -> object:
            seen.append((name, IS_IN_POOL.get()))
            return await method(*arguments)

        monkeypatch.setattr(LoopPool, name, noted)

    note("getconn")
    note("putconn")
    database = AsyncDatabase.connect(ConnectionOptions.from_settings(database_url, load_settings()))
    async with database.transaction():
        assert not IS_IN_POOL.get()
    assert not IS_IN_POOL.get()
    await database.close()
    assert seen == [("getconn", True), ("putconn", True)]
