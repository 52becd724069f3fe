"""Sessions, for reads and puts alike: their owners, and their whole history."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal
from uuid import UUID

from strandline.pipelines.admission import refuse_if_erased
from strandline.producers.arguments import check_page_size, check_seq
from strandline.schemas.errors import NamespaceFullError, OwnerError
from strandline.schemas.postgres.operations import Operation, claim_owner_keys, fetch
from strandline.schemas.queries.conversation.messages import History
from strandline.schemas.queries.conversation.sessions import ClaimSession, FindOwner
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import Message, read_rows
from strandline.schemas.values.policy import DEFAULT_TOKEN_LIMIT, Policy, make_policy

logger = logging.getLogger("strandline.policy")

HISTORY_PAGE = 1_000
# What changes a value of a stored policy, on the command line.
_OPTIONS = {
    "token_limit": "--token-limit {}",
    "token_flush_size": "--token-flush-size {}",
    "max_window_messages": "--max-window-messages {}",
    "max_window_bytes": "--max-window-bytes {}",
    "message_flush_size": "--message-flush-size {}",
    "deliver": "--deliver {}",
    "idle_seconds": "--idle-seconds {}",
    "time_zone": "--time-zone {}",
}

SessionKind = Literal["chat", "source", "instruction"]


def named_values(policy: Policy) -> dict[str, object]:
    """The values of a policy that are not the default, as its caller named them."""
    usual = make_policy(token_limit=policy.token_limit, tokenizer="", pipelines=())
    named = {name: getattr(policy, name) for name in _OPTIONS}
    defaults = {name: getattr(usual, name) for name in _OPTIONS} | {"token_limit": DEFAULT_TOKEN_LIMIT}
    return {name: value for name, value in named.items() if value != defaults[name]}


def tell_stored_policy(named: Mapping[str, object], stored: Mapping[str, object]) -> None:
    """Log that a session has other values stored than a memory of it was made with, once for all such."""
    if others := tuple((name, named[name], stored[name]) for name in named if named[name] != stored[name]):
        _tell(others)


@lru_cache(maxsize=256)
def _tell(others: tuple[tuple[str, object, object], ...]) -> None:
    options = " ".join(
        "--never-idle" if value is None else _OPTIONS[name].format(value) for name, value, _ in others
    )
    logger.warning(
        "A memory was made with %s; its session has stored %s, and is flushed by that. To change it:"
        " strandline sessions set-policy SESSION %s; --namespace NAMESPACE --all in place of SESSION changes"
        " all sessions",
        ", ".join(f"{name}={value}" for name, value, _ in others),
        ", ".join(f"{name}={value}" for name, _, value in others),
        options,
    )


def claim_session(identity: SessionIdentity, kind: SessionKind = "chat") -> Operation[None]:
    """Write the directory entry of a new session, which fixes the session's owner.

    If the namespace's content is sealed, the owner has keys after that.

    ``kind``: other sessions than chats keep what facts come from, and no list of sessions shows them.

    Raises:
        OwnerError: the session belongs to another owner.
        ErasedError: the owner, or the session, was erased.
        NamespaceFullError: it is new, and the namespace has reached a bound of what is stored.
        KeyUnavailableError: the namespace is encrypted, and its key cannot be used.
    """
    (row,) = yield from fetch(
        ClaimSession(
            directory_key=identity.directory_key,
            namespace=identity.namespace,
            session_id=identity.session_id,
            user_id=identity.user_id,
            **identity.keys,
            kind=kind,
        )
    )
    refuse_if_erased(row.erasure)
    if row.full_of is not None:
        raise NamespaceFullError.of_bound(identity.namespace, row.full_of)
    check_owner(identity, row.owner_key)
    if row.is_encrypted:
        yield from claim_owner_keys(identity.namespace, identity.shard_key, first_number=row.first_data_key)


def check_owner(identity: SessionIdentity, owner_key: UUID) -> None:
    """Raise OwnerError if the directory names another owner for this session."""
    if owner_key != identity.shard_key:
        asked = "without a user" if identity.user_id is None else "as that user"
        raise OwnerError(
            f"Session {identity.session_id!r} in namespace {identity.namespace!r} belongs to another owner"
            f" and cannot be opened {asked}; open it with the user_id of its first put (--user on the"
            " command line), or use another session_id."
        )


def history_page(identity: SessionIdentity, after_seq: int, page_size: int) -> Operation[list[Message]]:
    """The next messages of the whole log after ``after_seq`` (0: from its start), in order.

    Raises:
        ConfigurationError: ``after_seq`` or ``page_size`` is not valid.
        OwnerError: the session belongs to another owner.
    """
    rows = yield from fetch(
        History(
            **identity.keys,
            after_seq=check_seq("after_seq", after_seq),
            page_size=check_page_size(page_size),
        )
    )
    if not rows:
        yield from check_unowned(identity)
    return read_rows(rows)


def whole_history(identity: SessionIdentity) -> Operation[list[Message]]:
    """Every message of the log in order, read in pages; raises OwnerError as ``history_page`` does."""
    messages: list[Message] = []
    while page := (
        yield from history_page(identity, (messages[-1].seq or 0) if messages else 0, HISTORY_PAGE)
    ):
        messages.extend(page)
        if len(page) < HISTORY_PAGE:
            break
    return messages


def check_unowned(identity: SessionIdentity) -> Operation[None]:
    """Raise OwnerError if the session exists under another owner."""
    rows = yield from fetch(FindOwner(directory_key=identity.directory_key))
    for row in rows:
        check_owner(identity, row.owner_key)
