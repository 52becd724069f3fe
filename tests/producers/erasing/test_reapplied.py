"""Receipts repeated in a restored database: in their order, once, and not against a later erasure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strandline import ErasedError
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.erasure import ErasureReceipt, Erasures, verifier_of
from tests.conftest import MakeMemory
from tests.support.servers.databases import temporary_database
from tests.support.stored import stored_messages

Put = Callable[[], int | None]


@pytest.fixture
def database_url(stack: EmbeddedStack) -> Iterator[str]:
    """What a restore of a backup from before all erasures gives."""
    with temporary_database(stack.database_url) as url:
        yield url


@pytest.fixture
def put(make_memory: MakeMemory) -> Put:
    return lambda: make_memory("s", user_id="ann").put({"role": "user", "content": "hello"})


@pytest.fixture
def receipts(stack: EmbeddedStack) -> list[ErasureReceipt]:
    """Of the database that was lost: ann was erased, and readmitted."""
    with temporary_database(stack.database_url) as lost:
        erasures = Erasures.of_namespace(database_url=lost)
        made = [erasures.erase_user("ann"), erasures.readmit_user("ann")]
        erasures.close()
        return made


def reapply(erasures: Erasures, receipts: list[ErasureReceipt]) -> list[str]:
    return [one.outcome for one in erasures.reapply(receipts, unverified=True)]


def test_a_readmission_that_was_repeated_does_not_lift_a_later_fence(
    receipts: list[ErasureReceipt], erasures: Erasures, put: Put
) -> None:
    put()
    assert reapply(erasures, receipts) == ["erased", "readmitted"]
    put()
    receipts.append(erasures.erase_user("ann"))
    assert reapply(erasures, receipts) == ["known", "known", "known"]
    with pytest.raises(ErasedError):
        put()


def test_a_readmission_lifts_no_fence_that_it_did_not_follow(
    receipts: list[ErasureReceipt], erasures: Erasures, put: Put
) -> None:
    """The user was erased in the restored database before the receipts were repeated."""
    put()
    erasures.erase_user("ann")
    assert reapply(erasures, receipts) == ["known", "known"]
    assert reapply(erasures, receipts[1:]) == ["known"]
    with pytest.raises(ErasedError):
        put()


def test_what_a_readmitted_user_said_since_stays(
    receipts: list[ErasureReceipt], erasures: Erasures, put: Put, database_url: str
) -> None:
    put()
    reapply(erasures, receipts)
    put()
    assert reapply(erasures, receipts) == ["known", "known"]
    assert stored_messages(database_url) == 1


def test_times_and_not_numbers_are_the_order(
    receipts: list[ErasureReceipt], erasures: Erasures, put: Put
) -> None:
    """Numbers begin anew after a restore, so a later erasure may have a lower one."""
    put()
    later = erasures.erase_user("ann")
    assert later.number < receipts[1].number
    assert [one.receipt for one in erasures.reapply([later, *receipts], unverified=True)] == [
        *receipts,
        later,
    ]


def test_a_receipt_of_another_installation_with_the_same_key_is_no_proof(
    stack: EmbeddedStack, erasures: Erasures, key: Path
) -> None:
    """The user was erased here as well, with the receipt of that erasure alone."""
    with temporary_database(stack.database_url) as elsewhere:
        other = Erasures.of_namespace(database_url=elsewhere, key_file=key)
        foreign = [other.erase_user("ann"), other.readmit_user("ann"), other.erase_user("ann")]
        other.close()
    own = [erasures.erase_user("ann"), erasures.readmit_user("ann"), erasures.erase_user("ann")]
    verdicts = [erasures.verify(one, verifier_of(key)) for one in foreign]
    assert {(one.signature, one.is_unrecorded, one.is_good) for one in verdicts} == {("valid", True, False)}
    assert [erasures.verify(one, verifier_of(key)).is_good for one in own] == [True] * 3


def test_a_receipt_that_was_reapplied_is_on_record(
    receipts: list[ErasureReceipt], erasures: Erasures
) -> None:
    assert all(erasures.verify(one).is_unrecorded for one in receipts)
    reapply(erasures, receipts)
    assert not any(erasures.verify(one).is_unrecorded for one in receipts)
