"""The directory, for commands: finds what an operator names, and says what does not exist."""

from __future__ import annotations

from uuid import UUID

from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import NotFoundError
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.conversation.sessions import FindSessions, NamespaceIsKnown, UserIsKnown
from strandline.schemas.queries.upkeep.erasures import FindErased
from strandline.schemas.values.identity import (
    DEFAULT_NAMESPACE,
    SessionIdentity,
    check_name,
    identify_session,
    identify_user,
)


def find_session(
    fetcher: Fetcher,
    session_id: str,
    *,
    namespace: str | None = None,
    user_id: str | None = None,
    without_user: bool = False,
) -> SessionIdentity:
    """A session by its name, in the namespace ``default`` unless another is given, with its owner.

    Without ``user_id`` it may be any user's, or, with ``without_user``, has to be nobody's.

    Raises:
        NotFoundError: nothing was ever put to it, or it is not that user's.
        InvalidMessageError: a name cannot name anything.
    """
    within = DEFAULT_NAMESPACE if namespace is None else check_name("namespace", namespace)
    check_name("session", session_id)
    statement = FindSessions(
        namespace=within, session_id=session_id, user_id=user_id, without_user=without_user, limit=1
    )
    for row in fetcher.fetch(statement):
        return identify_session(row.namespace, row.session_id, row.user_id)
    whose = " without a user" if without_user else "" if user_id is None else f" of user {quote(user_id)}"
    keys = identify_session(within, session_id, user_id)
    scopes = [keys.session_key, keys.shard_key, keys.directory_key]
    _raise_if_erased(fetcher, scopes, f"Session {quote(session_id)}{whose} in namespace {quote(within)}")
    raise NotFoundError(
        f"There is no session {quote(session_id)}{whose} in namespace {quote(within)};"
        " nothing has been put to it yet, or a name is misspelt."
    )


def check_known(
    fetcher: Fetcher,
    *,
    namespace: str | None = None,
    session_id: str | None = None,
    user_id: str | None = None,
    without_user: bool = False,
) -> None:
    """Check that the named things exist; a session or user without a namespace is looked up in ``default``.

    Raises:
        NotFoundError: naming the one that does not exist.
        InvalidMessageError: a name cannot name anything.
    """
    if session_id is not None:
        find_session(fetcher, session_id, namespace=namespace, user_id=user_id, without_user=without_user)
    elif user_id is not None:
        _check_user(fetcher, DEFAULT_NAMESPACE if namespace is None else namespace, user_id)
    elif namespace is not None:
        _check_namespace(fetcher, namespace)


def _check_namespace(fetcher: Fetcher, namespace: str) -> None:
    check_name("namespace", namespace)
    if not fetcher.fetch(NamespaceIsKnown(namespace=namespace))[0].known:
        raise NotFoundError(
            f"There is nothing in namespace {quote(namespace)};"
            " `strandline sessions list` shows the sessions of all namespaces."
        )


def _check_user(fetcher: Fetcher, namespace: str, user_id: str) -> None:
    owner = identify_user(namespace, user_id)
    asked = UserIsKnown(namespace=namespace, user_id=user_id, owner_key=owner.shard_key)
    if not fetcher.fetch(asked)[0].known:
        _raise_if_erased(fetcher, [owner.shard_key], f"User {quote(user_id)} in namespace {quote(namespace)}")
        raise NotFoundError(
            f"There is nothing of user {quote(user_id)} in namespace {quote(namespace)};"
            " nothing has been put for this user yet, or a name is misspelt."
        )


def _raise_if_erased(fetcher: Fetcher, scope_keys: list[UUID], what: str) -> None:
    """Raise NotFoundError that says so, if a fence stands for one of these scopes."""
    for fence in fetcher.fetch(FindErased(scope_keys=scope_keys)):
        end = ", not finished" if fence.is_unfinished else ""
        raise NotFoundError(f"{what} was erased on {fence.fenced_at:%Y-%m-%d} (erasure {fence.number}{end}).")
