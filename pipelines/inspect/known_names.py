"""Names that operators type: whether there is anything of them, and which known names they resemble.

A misspelt name would else be taken for one that is yet to come: encrypted, fenced, or given a trail.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import NotFoundError
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.conversation.sessions import (
    KnownNamespaces,
    NamespaceIsKnown,
    NamespacesOfUser,
    UserIsKnown,
    UsersPage,
)
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, check_name, identify_user

# So many names are read to find a near one; of more, those that come first.
MAX_NAMES = 1_000
MAX_SHOWN = 5


def check_namespace(fetcher: Fetcher, namespace: str, *, otherwise: str | None = None) -> None:
    """Check that a namespace holds something, or that something was set for it; ``default`` always counts.

    Args:
        otherwise: what to do if it is yet to come; a sentence.

    Raises:
        NotFoundError: nothing is known of it; with the names that are near.
        InvalidMessageError: it cannot name anything.
    """
    check_name("namespace", namespace)
    if namespace == DEFAULT_NAMESPACE or fetcher.fetch(NamespaceIsKnown(namespace=namespace))[0].known:
        return
    known = [row.namespace for row in fetcher.fetch(KnownNamespaces(limit=MAX_NAMES))]
    if namespace not in known:
        near = _near(namespace, known) or (f"There are: {_quote_some(known)}." if known else "")
        raise NotFoundError(_join(f"There is nothing of namespace {quote(namespace)}.", near, otherwise))


def user_is_known(fetcher: Fetcher, namespace: str, user_id: str) -> bool:
    """Whether a user has a session, or was given a fact; there may be other rows of one who has not."""
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
