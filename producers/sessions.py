"""Sessions, for reads and puts alike: their owners, and their whole history."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Literal
from uuid import UUID

from strandline.pipelines.admission import refuse_if_erased
from strandline.producers.arguments import check_page_size, check_seq
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import NamespaceFullError, OwnerError, UnknownPipelineError
from strandline.schemas.postgres.operations import Operation, claim_owner_keys, fetch
from strandline.schemas.queries.conversation.messages import History
from strandline.schemas.queries.conversation.sessions import ClaimSession, FindOwner
from strandline.schemas.queries.derived.generations import ServingGenerations
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import Message, read_rows
from strandline.schemas.values.policy import PLAIN_VALUES, Policy, make_policy

logger = logging.getLogger("strandline.policy")

HISTORY_PAGE = 1_000
# A page ends with the message that fills it, however few it has.
HISTORY_PAGE_BYTES = 4_000_000

SessionKind = Literal["chat", "source", "instruction"]


@lru_cache(maxsize=256)
def named_values(policy: Policy, token_limit: int | None) -> Mapping[str, object]:
    """The values of a policy that are not the default, as its caller named them."""
    usual = make_policy(token_limit=policy.token_limit, tokenizer="", pipelines=())
    values = {name: getattr(policy, name) for name in PLAIN_VALUES}
    named = {name: value for name, value in values.items() if value != getattr(usual, name)}
    if policy.flush_at_tokens != usual.flush_at_tokens:
        named["history_ratio"] = round(policy.flush_at_tokens / policy.token_limit, 2)
    return named if token_limit is None else {"token_limit": token_limit, **named}


def tell_stored_policy(named: Mapping[str, object], stored: Mapping[str, Any]) -> None:
    """Log, once per process, that a session has stored other values than a memory of it was made with."""
    if "history_ratio" in named:
        stored = {**stored, "history_ratio": round(stored["flush_at_tokens"] / stored["token_limit"], 2)}
    if others := tuple((name, named[name], stored[name]) for name in named if named[name] != stored[name]):
        _tell(others)


@lru_cache(maxsize=256)
def _tell(others: tuple[tuple[str, object, object], ...]) -> None:
    options = " ".join(
        "--never-idle" if value is None else f"--{name.replace('_', '-')} {value}"
        for name, value, _ in others
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
        NamespaceFullError: it is new, and the namespace has reached a bound of its storage.
        KeyUnavailableError: the namespace is encrypted, and its key cannot be used.
    """
    (row,) = yield from fetch(ClaimSession.of(identity, kind=kind))
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

    A page has at most ``page_size`` messages, and ends sooner with the message that fills
    ``HISTORY_PAGE_BYTES``.

    Raises:
        ConfigurationError: ``after_seq`` or ``page_size`` is not valid.
        OwnerError: the session belongs to another owner.
    """
    messages, _ = yield from history_part(identity, after_seq, page_size)
    return messages


def history_part(
    identity: SessionIdentity, after_seq: int, page_size: int
) -> Operation[tuple[list[Message], bool]]:
    """A page, and whether another one may follow; raises as ``history_page`` does."""
    page_size = check_page_size(page_size)
    rows = yield from fetch(
        History(
            **identity.keys,
            after_seq=check_seq("after_seq", after_seq),
            page_size=page_size,
            page_bytes=HISTORY_PAGE_BYTES,
        )
    )
    if not rows:
        yield from check_unowned(identity)
    # Stored, a message may have some more bytes than its texts.
    size = sum(len(row.envelope) + len(row.metadata or "") for row in rows)
    return read_rows(rows), len(rows) == page_size or 2 * size >= HISTORY_PAGE_BYTES


def whole_history(identity: SessionIdentity) -> Operation[list[Message]]:
    """Every message of the log in order, read in pages; raises OwnerError as ``history_page`` does."""
    messages: list[Message] = []
    may_follow = True
    while may_follow:
        after_seq = (messages[-1].seq or 0) if messages else 0
        page, may_follow = yield from history_part(identity, after_seq, HISTORY_PAGE)
        messages += page
    return messages


def check_unowned(identity: SessionIdentity) -> Operation[None]:
    """Raise OwnerError if the session exists under another owner."""
    rows = yield from fetch(FindOwner(directory_key=identity.directory_key))
    for row in rows:
        check_owner(identity, row.owner_key)


def unknown_pipelines(names: str, consequence: str) -> Operation[UnknownPipelineError]:
    """The error for ``names``, separated by commas as the database lists them; it names the registered ones.

    ``consequence`` is a sentence that says what follows from the error.
    """
    rows = yield from fetch(ServingGenerations())
    registered = [row.pipeline for row in rows]
    there = f"registered are {', '.join(registered)}" if registered else "none is registered yet"
    near = [match for name in names.split(", ") for match in get_close_matches(name, registered, n=1)]
    guess = f" (did you mean {', '.join(map(quote, near))}?)" if near else ""
    return UnknownPipelineError(
        f"No worker has registered {names} in this database; {there}. {consequence} Check the spelling{guess}"
        ", start a worker that serves it (`strandline worker`), or leave the block out."
    )
