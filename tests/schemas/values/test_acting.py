"""Who acts, and from where, travels with the calls of a block, in threads and in tasks."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context

import pytest

from strandline import Acting, acting, current_acting
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.acts.acting import actor_or_current

ANN = Acting("ann", "192.0.2.7")


def test_nobody_acts_outside_of_a_block() -> None:
    assert current_acting() == Acting(None, None)
    with acting(actor="ann", origin="192.0.2.7") as who:
        assert who == current_acting() == ANN
    assert current_acting() == Acting(None, None)


def test_an_inner_block_keeps_what_it_does_not_name_and_ends_with_an_error_as_well() -> None:
    with acting(actor="ann", origin="192.0.2.7"):
        with suppress(ZeroDivisionError), acting(actor="ben"):
            assert current_acting() == Acting("ben", "192.0.2.7")
            raise ZeroDivisionError
        assert current_acting() == ANN


def test_tasks_begin_with_a_copy_and_cannot_reach_one_another() -> None:
    async def act(name: str, arrived: asyncio.Barrier) -> Acting:
        with acting(actor=name):
            await arrived.wait()
            return await asyncio.to_thread(current_acting)

    async def both() -> list[Acting]:
        arrived = asyncio.Barrier(2)
        with acting(origin="192.0.2.7"):
            return list(await asyncio.gather(act("ann", arrived), act("ben", arrived)))

    assert asyncio.run(both()) == [ANN, Acting("ben", "192.0.2.7")]


def test_a_thread_has_the_context_it_is_given() -> None:
    with acting(actor="ann", origin="192.0.2.7"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(current_acting).result() == Acting(None, None)
        assert pool.submit(copy_context().run, current_acting).result() == ANN


def test_a_given_actor_counts_before_the_one_around() -> None:
    with acting(actor="ann"):
        assert actor_or_current("ben") == "ben"
        assert actor_or_current(None) == "ann"
    assert actor_or_current(None) is None


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 513, "\ud800", 7])
def test_what_is_not_a_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidMessageError, match=r"^actor"), acting(actor=name):
        raise AssertionError
    with pytest.raises(InvalidMessageError, match=r"^origin"), acting(origin=name):
        raise AssertionError
    with pytest.raises(InvalidMessageError, match=r"^actor"):
        actor_or_current(name)
