"""The directory, for commands: finds things that operators name, and tells which are missing."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TypedDict, Unpack
from uuid import UUID

from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import NotFoundError
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.conversation.sessions import (
    FindSessions,
    KnownNamespaces,
    NamespaceIsKnown,
    NamespacesOfUser,
    UserIsKnown,
    UsersPage,
)
from strandline.schemas.queries.upkeep.erasures import FindErased
from strandline.schemas.values.identity import (
    DEFAULT_NAMESPACE,
    SessionIdentity,
    check_name,
    identify_session,
    identify_user,
)


class OfUser(TypedDict, total=False):
    """The owner of a session, by the names that a caller gives.

    Without ``user_id`` it may be any user, or, with ``without_user``, there must be none.  The namespace is
    ``default`` unless another is given.
    """

    namespace: str | None
    user_id: str | None
    without_user: bool


class Whose(OfUser, total=False):
    """The owner, or the session, whose memory is meant."""

    session_id: str | None


def find_session(fetcher: Fetcher, session_id: str, **whose: Unpack[OfUser]) -> SessionIdentity:
    """A session by its name, with its owner.

    Raises:
        NotFoundError: nothing was ever put to it, or it is not that user's.
        InvalidMessageError: a name is invalid.
    """
    within, user_id = _namespace_of(whose), whose.get("user_id")
    without_user = whose.get("without_user", False)
    check_name("session", session_id)
    statement = FindSessions(
        namespace=within, session_id=session_id, user_id=user_id, without_user=without_user, limit=1
    )
    for row in fetcher.fetch(statement):
        return identify_session(row.namespace, row.session_id, row.user_id)
    owner = " without a user" if without_user else "" if user_id is None else f" of user {quote(user_id)}"
    keys = identify_session(within, session_id, user_id)
    scopes = [keys.session_key, keys.shard_key, keys.directory_key]
    _raise_if_erased(fetcher, scopes, f"Session {quote(session_id)}{owner} in namespace {quote(within)}")
    raise NotFoundError(
        f"Session {quote(session_id)}{owner} does not exist in namespace {quote(within)};"
        " nothing has been put to it yet, or a name is misspelt."
    )


def check_known(fetcher: Fetcher, **whose: Unpack[Whose]) -> None:
    """Check that the named things exist.

    Raises:
        NotFoundError: naming it.
        InvalidMessageError: a name is invalid.
    """
    user_id, namespace = whose.get("user_id"), whose.get("namespace")
    if (session_id := whose.get("session_id")) is not None:
        without_user = whose.get("without_user", False)
        find_session(fetcher, session_id, namespace=namespace, user_id=user_id, without_user=without_user)
    elif user_id is not None:
        _check_user(fetcher, _namespace_of(whose), user_id)
    elif namespace is not None:
        _check_namespace(fetcher, namespace)


def _namespace_of(whose: OfUser) -> str:
    namespace = whose.get("namespace")
    return DEFAULT_NAMESPACE if namespace is None else check_name("namespace", namespace)


def _check_namespace(fetcher: Fetcher, namespace: str) -> None:
    check_name("namespace", namespace)
    if not fetcher.fetch(NamespaceIsKnown(namespace=namespace))[0].known:
        raise NotFoundError(
            f"Namespace {quote(namespace)} is unknown;"
            " `strandline sessions list` shows the sessions of all namespaces."
        )


def _check_user(fetcher: Fetcher, namespace: str, user_id: str) -> None:
    if not user_is_known(fetcher, namespace, user_id):
        owner_key = identify_user(namespace, user_id).shard_key
        _raise_if_erased(fetcher, [owner_key], f"User {quote(user_id)} in namespace {quote(namespace)}")
        raise NotFoundError(
            f"Namespace {quote(namespace)} has nothing of user {quote(user_id)};"
            " nothing has been put for this user yet, or a name is misspelt."
        )


def _raise_if_erased(fetcher: Fetcher, scope_keys: list[UUID], what: str) -> None:
    for fence in fetcher.fetch(FindErased(scope_keys=scope_keys)):
        end = ", not finished" if fence.is_unfinished else ""
        raise NotFoundError(f"{what} was erased on {fence.fenced_at:%Y-%m-%d} (erasure {fence.number}{end}).")


# Names read to find a near one, from the first.
MAX_NAMES = 1_000
MAX_SHOWN = 5


def check_namespace(fetcher: Fetcher, namespace: str, *, otherwise: str | None = None) -> None:
    """Check that something is known of a namespace; ``default`` always counts.  ``otherwise``: an advice.

    Raises NotFoundError with the names that are near, and InvalidMessageError for an impossible name.
    """
    check_name("namespace", namespace)
    if namespace == DEFAULT_NAMESPACE or fetcher.fetch(NamespaceIsKnown(namespace=namespace))[0].known:
        return
    known = [row.namespace for row in fetcher.fetch(KnownNamespaces(limit=MAX_NAMES))]
    if namespace not in known:
        near = _near(namespace, known) or (f"There are: {_quote_some(known)}." if known else "")
        raise NotFoundError(_join(f"Namespace {quote(namespace)} is unknown.", near, otherwise))


def user_is_known(fetcher: Fetcher, namespace: str, user_id: str) -> bool:
    """Whether a user has a session, or was given a fact; others may still have rows."""
    owner_key = identify_user(namespace, user_id).shard_key
    asked = UserIsKnown(namespace=namespace, user_id=user_id, owner_key=owner_key)
    return fetcher.fetch(asked)[0].known


def refuse_unknown_user(
    fetcher: Fetcher, namespace: str, user_id: str, *, otherwise: str | None = None
) -> None:
    """Say that nothing is stored of a user, and which names there are that are near.

    Raises:
        NotFoundError: always.
    """
    known = [row.namespace for row in fetcher.fetch(KnownNamespaces(limit=MAX_NAMES))]
    elsewhere = fetcher.fetch(NamespacesOfUser(namespaces=known, user_id=user_id))
    if elsewhere:
        near = f"There is a user of this name in {_quote_some([row.namespace for row in elsewhere])}."
    else:
        # Users are not listed to who does not name them nearly.
        users = fetcher.fetch(UsersPage(namespace=namespace, after="", limit=MAX_NAMES))
        near = _near(user_id, [row.user_id for row in users])
    what = f"Nothing is stored of user {quote(user_id)} in namespace {quote(namespace)}."
    raise NotFoundError(_join(what, near, otherwise))


def _near(name: str, known: Sequence[str]) -> str:
    folded = {one.casefold(): one for one in known}
    near = get_close_matches(name.casefold(), folded, n=1)
    return f"Did you mean {quote(folded[near[0]])}?" if near else ""


def _join(*sentences: str | None) -> str:
    return " ".join(filter(None, sentences))


def _quote_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_SHOWN:,} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(map(quote, names[:MAX_SHOWN])) + more
