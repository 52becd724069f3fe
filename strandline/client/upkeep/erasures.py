"""Requests to a service about erasures; each operation returns the wire's values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strandline.client.operations import Call, Face, Operation, PageOf, once, path, set_fields
from strandline.producers.arguments import check_timeout
from strandline.schemas.wire.base import Page
from strandline.schemas.wire.erasures import (
    ErasureOut,
    ErasureReport,
    ErasureVerdictOut,
    PlannedErasureOut,
    ReceiptReport,
)

PAGE = 100


def plan_user(admin: Face, user_id: str) -> Operation[PlannedErasureOut]:
    """Count what an erasure of the user would delete now, by table; nothing is changed."""
    return (yield Call("GET", path("users", user_id, "erasures", "plan"))).read(PlannedErasureOut)


def plan_session(admin: Face, session_id: str, *, user_id: str | None = None) -> Operation[PlannedErasureOut]:
    """The same for one session."""
    call = Call("GET", path("sessions", session_id, "erasures", "plan"), user_id=user_id)
    return (yield call).read(PlannedErasureOut)


def erase_user(
    admin: Face,
    user_id: str,
    *,
    actor: str | None = None,
    items_below: Sequence[Sequence[str]] = (),
    even_if_unknown: bool = False,
    wait: float | None = None,
    idempotency_key: str | None = None,
) -> Operation[ErasureOut]:
    """Erase a user for good; once it returns, nothing can be written for them any more.

    Args:
        actor: the person who asks for it.
        items_below: paths of items of the namespace that are the user's, each as its labels.
        even_if_unknown: erase also a user of whom nothing is stored, whose name may be misspelt.
        wait: how many seconds to wait for its end; ``erasure`` tells how far it is.
        idempotency_key: the same again is the same erasure, also if the user was readmitted since; default: a
            new one, which stays the same while the request is sent again.

    Raises:
        NotFoundError: nothing is stored of a user of this name.
    """
    body = set_fields(
        actor=actor,
        items_below=[list(labels) for labels in items_below] or None,
        even_if_unknown=even_if_unknown or None,
    )
    return (yield _begin(path("users", user_id, "erasures"), None, body, wait, idempotency_key)).read(
        ErasureOut
    )


def erase_session(
    admin: Face,
    session_id: str,
    *,
    user_id: str | None = None,
    actor: str | None = None,
    wait: float | None = None,
    idempotency_key: str | None = None,
) -> Operation[ErasureOut]:
    """Erase one session for good, and of its user what only this session gave; as for a user."""
    call = _begin(
        path("sessions", session_id, "erasures"), user_id, set_fields(actor=actor), wait, idempotency_key
    )
    return (yield call).read(ErasureOut)


def readmit_user(admin: Face, user_id: str, *, actor: str | None = None) -> Operation[ReceiptReport]:
    """Accept an erased user again, who begins with nothing; raises NotFoundError if no fence stands."""
    return (yield _readmission(path("users", user_id, "readmission"), None, actor)).read(ReceiptReport)


def readmit_session(
    admin: Face, session_id: str, *, user_id: str | None = None, actor: str | None = None
) -> Operation[ReceiptReport]:
    """Let the id of an erased session be used again by its owner; raises NotFoundError if no fence stands."""
    call = _readmission(path("sessions", session_id, "readmission"), user_id, actor)
    return (yield call).read(ReceiptReport)


def erasures(
    admin: Face, cursor: str | None, *, user_id: str | None = None
) -> Operation[PageOf[ErasureReport]]:
    """The erasures and readmissions of the namespace, or of one user and their sessions, newest first."""
    where = path("erasures") if user_id is None else path("users", user_id, "erasures")
    return (yield Call("GET", where, query={"limit": PAGE, "cursor": cursor})).page(Page[ErasureReport])


def erasure(admin: Face, number: int) -> Operation[ErasureOut]:
    """One erasure: how far it is, and its receipt when it is done."""
    return (yield Call("GET", path("erasures", number))).read(ErasureOut)


def receipt(admin: Face, number: int) -> Operation[str]:
    """The receipt as it was signed, one line: keep it outside of the database, in a file of such lines.

    ``strandline erasures verify FILE --public-key KEY --offline`` verifies it without the service.

    Raises:
        NotFoundError: the erasure is not done yet.
    """
    return (yield Call("GET", path("erasures", number, "receipt"))).text()


def verify_erasure(admin: Face, number: int) -> Operation[ErasureVerdictOut]:
    """Whether the receipt is as the service signed it, whether the fence stands, and what is there again."""
    return (yield Call("GET", path("erasures", number, "verification"))).read(ErasureVerdictOut)


def _begin(
    where: str, user_id: str | None, body: dict[str, Any], wait: float | None, idempotency_key: str | None
) -> Call:
    seconds = None if wait is None else max(0.0, check_timeout(wait))
    return Call(
        "POST", where, body=body, user_id=user_id, headers=once(idempotency_key), wait_seconds=seconds
    )


def _readmission(where: str, user_id: str | None, actor: str | None) -> Call:
    return Call("POST", where, body=set_fields(actor=actor), user_id=user_id, repeat="if_not_done")
