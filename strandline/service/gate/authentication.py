"""The caller of a request: keys looked up in Postgres, and cached for a few seconds.

A key that was found is trusted for ``TRUSTED_SECONDS`` at most, so a revoked one is refused by every process
within five seconds; a key in use is looked up again before that, and no request waits for it.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import monotonic
from typing import Literal, TypedDict

from strandline.administration.keys import digest_of, parse_key
from strandline.schemas.queries.application.service import FindServiceKeys, FindServiceKeysRow
from strandline.schemas.values.identity import (
    KEY_ACTOR_PREFIX,
    NO_USER,
    Owner,
    SessionIdentity,
    identify_session,
    identify_user,
)
from strandline.schemas.wire.keys import Scope
from strandline.service.gate.problems import BUSY, FORBIDDEN, NOT_FOUND, UNAUTHENTICATED, ProblemError

TRUSTED_SECONDS = 4.0
RENEWED_AFTER_SECONDS = 2.0
MAX_REMEMBERED = 10_000
# So many are looked up by one statement, and so many wait for theirs: a flood of invented ids costs a
# statement now and then, and a key that is not known here yet waits for the one in hand and its own.
LOOKUPS_AT_ONCE = 1_000
MAX_LOOKUPS_WAITING = 20_000

# Whose key a route takes: each one's; of a namespace or the installation, and not of one user; of the
# installation alone.
Holder = Literal["any", "namespace", "installation"]
OPENS_NO_MEMORY = "This is a key of all namespaces, which opens no memory; use a key of the namespace."
OF_ONE_USER = "This is the key of one user; the route needs a key of the whole namespace."
FOREIGN_SCOPE = (
    "This is the key of one user, which begins sessions in the shared scopes alone that it names;"
    " make one with `shared_scopes`."
)
OF_ONE_NAMESPACE = "This is the key of one namespace; the route needs an operator's key of all namespaces."

# An unknown key is compared with this, to take the time of a known one.
_NO_DIGEST = digest_of("")


class Whose(TypedDict):
    """The sessions of a request: of a user, without a user, or, with neither, of all the namespace."""

    user_id: str | None
    without_user: bool


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request.

    Attributes:
        key_id: of its key.
        namespace: the tenant; None: an operator of the installation, who opens no memory.
        user_id: of the key, or of the header ``Strandline-User``; None: no user.
        is_bound: whether the key is of that one user.
        scopes: the key's rights.
        origin: the client's address; None: it has none.
        shared_scopes: the scopes that a key of one user may name.
        without_user: whether the request concerns data without a user.
    """

    key_id: str
    namespace: str | None
    user_id: str | None
    is_bound: bool
    scopes: frozenset[str]
    origin: str | None
    shared_scopes: frozenset[str] = frozenset()
    without_user: bool = False

    @property
    def whose(self) -> Whose:
        """Whose sessions are listed, streamed and explained."""
        return Whose(user_id=self.user_id, without_user=self.without_user)

    @property
    def tenant(self) -> str:
        """The namespace; raises a problem for an operator of the whole installation."""
        if self.namespace is None:
            raise ProblemError(FORBIDDEN, detail=OPENS_NO_MEMORY)
        return self.namespace

    @property
    def managed_namespace(self) -> str | None:
        """Whose affairs an operator manages; None: those of all.  A user's own key manages none."""
        if self.is_bound:
            raise ProblemError(FORBIDDEN, detail=OF_ONE_USER)
        return self.namespace

    @property
    def may_operate(self) -> bool:
        """Whether the key may loosen an operator's bounds."""
        return "operate" in self.scopes

    @property
    def may_choose_generations(self) -> bool:
        """Whether the key may read at a generation that does not serve."""
        return self.may_operate and not self.is_bound

    @property
    def actor(self) -> str:
        """Who did it, where a person is not named."""
        return f"{KEY_ACTOR_PREFIX}{self.key_id}"

    def check_shared_scope(self, scope: str | None) -> None:
        """Raise a problem if a session begun with this key is not to be shared in the scope."""
        if scope is not None and self.is_bound and scope not in self.shared_scopes:
            raise ProblemError(FORBIDDEN, detail=FOREIGN_SCOPE)

    def session(self, session_id: str) -> SessionIdentity:
        """A session of the caller's."""
        return identify_session(self.tenant, session_id, self.user_id)

    def owner(self, user_id: str) -> Owner:
        """A user of the caller's namespace; raises a problem if the key is another's."""
        if self.is_bound and user_id != self.user_id:
            raise ProblemError(NOT_FOUND)
        return identify_user(self.tenant, user_id)


@dataclass(slots=True)
class _Remembered:
    """A key's row as found at a time by ``monotonic``; ``row`` is None for an unknown id."""

    row: FindServiceKeysRow | None
    found_at: float
    renewal_begun: bool = False

    def opens(self, digest: bytes) -> bool:
        """Whether a secret of this digest opens it now."""
        stored = _NO_DIGEST if self.row is None else self.row.secret_digest
        same = hmac.compare_digest(stored, digest)
        return same and self.has_not_ended

    @property
    def has_not_ended(self) -> bool:
        """Whether the key exists and is valid."""
        if self.row is None:
            return False
        left = self.row.seconds_left
        return left is None or left > monotonic() - self.found_at


Lookup = Callable[[FindServiceKeys], Awaitable[list[FindServiceKeysRow]]]


class KeyRing:
    """The keys that this process has seen; for one event loop.

    Ids that exist and ids that do not are kept and looked up apart: whoever sends invented ones neither
    pushes out a key that is known here nor makes it wait.
    """

    def __init__(self, look_up: Lookup) -> None:
        self._look_up = look_up
        self._known: OrderedDict[str, _Remembered] = OrderedDict()
        self._unknown: OrderedDict[str, _Remembered] = OrderedDict()
        self._renewals = _Lookups(self._find)
        self._lookups = _Lookups(self._find)

    async def find(self, text: str) -> FindServiceKeysRow:
        """The key that a client sent.

        Raises:
            ProblemError: it is not a key, is unknown or has ended; or too many that are not known here are
                looked up.
            DatabaseUnavailableError: it is not remembered, and Postgres cannot be asked.
        """
        parsed = parse_key(text)
        if parsed is None:
            raise ProblemError(UNAUTHENTICATED)
        key_id, digest = parsed
        key = await self._recall(key_id)
        if not key.opens(digest) or key.row is None:
            raise ProblemError(UNAUTHENTICATED)
        return key.row

    async def find_by_id(self, key_id: str) -> FindServiceKeysRow:
        """The key of an id, for a session that proved it; ProblemError: it was revoked, or has ended."""
        key = await self._recall(key_id)
        if key.row is None or not key.has_not_ended:
            raise ProblemError(UNAUTHENTICATED)
        return key.row

    async def goes_on(self, key_id: str) -> bool:
        """Whether a key that was found is neither revoked nor at its end, as fresh as for a request."""
        return (await self._recall(key_id)).has_not_ended

    async def _recall(self, key_id: str) -> _Remembered:
        """The cached row of an id, if recent enough."""
        known = self._known.get(key_id)
        key = known or self._unknown.get(key_id)
        lookups = self._lookups if known is None else self._renewals
        age = TRUSTED_SECONDS if key is None else monotonic() - key.found_at
        if key is None or age >= TRUSTED_SECONDS:
            return await asyncio.shield(lookups.begin(key_id))
        if known is not None and age >= RENEWED_AFTER_SECONDS and not known.renewal_begun:
            known.renewal_begun = True
            lookups.begin(key_id).add_done_callback(partial(_end_renewal, known))
        return key

    async def _find(self, key_ids: list[str]) -> dict[str, _Remembered]:
        found_at = monotonic()  # before the look: its result was true then or later
        rows = {row.key_id: row for row in await self._look_up(FindServiceKeys(key_ids=key_ids))}
        keys = {key_id: _Remembered(rows.get(key_id), found_at) for key_id in key_ids}
        for key_id, key in keys.items():
            self._keep(key_id, key)
        return keys

    def _keep(self, key_id: str, key: _Remembered) -> None:
        kept, other = (self._unknown, self._known) if key.row is None else (self._known, self._unknown)
        other.pop(key_id, None)
        kept[key_id] = key
        kept.move_to_end(key_id)
        if len(kept) > MAX_REMEMBERED:
            kept.popitem(last=False)


def _end_renewal(key: _Remembered, renewal: asyncio.Future[_Remembered]) -> None:
    if renewal.cancelled() or renewal.exception() is not None:
        key.renewal_begun = False  # the next request tries again


class _Lookups:
    """Looks keys up: all that are asked for while one statement runs go into the next, each once."""

    def __init__(self, find: Callable[[list[str]], Awaitable[dict[str, _Remembered]]]) -> None:
        self._find = find
        self._waiting: dict[str, asyncio.Future[_Remembered]] = {}
        self._in_hand: dict[str, asyncio.Future[_Remembered]] = {}
        self._task: asyncio.Task[None] | None = None

    def begin(self, key_id: str) -> asyncio.Future[_Remembered]:
        """The look-up of an id; raises a problem if too many wait."""
        begun = self._in_hand.get(key_id) or self._waiting.get(key_id)
        if begun is not None:
            return begun
        if len(self._waiting) >= MAX_LOOKUPS_WAITING:
            raise ProblemError(BUSY)
        lookup = self._waiting[key_id] = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return lookup

    async def _run(self) -> None:
        try:
            while self._waiting:
                key_ids = list(islice(self._waiting, LOOKUPS_AT_ONCE))
                self._in_hand = {key_id: self._waiting.pop(key_id) for key_id in key_ids}
                try:
                    keys = await self._find(key_ids)
                except Exception as error:  # noqa: BLE001  # each of those who wait has it
                    for lookup in self._in_hand.values():
                        lookup.set_exception(error)
                        lookup.exception()  # perhaps without a waiter
                else:
                    for key_id, lookup in self._in_hand.items():
                        lookup.set_result(keys[key_id])
                self._in_hand = {}
        finally:
            for lookup in (*self._in_hand.values(), *self._waiting.values()):
                lookup.cancel()
            self._task = None


def caller_of(row: FindServiceKeysRow, user_header: str | None, origin: str | None) -> Caller:
    """The caller of a request with this key and this header ``Strandline-User``.

    Raises:
        ProblemError: the key is of another user.
    """
    if row.user_id is not None and user_header is not None and user_header != row.user_id:
        raise ProblemError(NOT_FOUND)
    without_user = row.user_id is None and user_header == NO_USER
    if without_user:
        user_header = None
    return Caller(
        key_id=row.key_id,
        namespace=row.namespace,
        user_id=user_header if row.user_id is None else row.user_id,
        is_bound=row.user_id is not None,
        scopes=frozenset(row.scopes),
        origin=origin,
        shared_scopes=frozenset(row.shared_scopes),
        without_user=without_user,
    )


def check_scope(caller: Caller, scope: Scope | None, holder: Holder = "any") -> None:
    """Raise a problem if the key lacks the scope, or is of another kind than the route needs."""
    if scope is not None and scope not in caller.scopes:
        raise ProblemError(FORBIDDEN, detail=f"The route needs the scope `{scope}`, which this key has not.")
    if holder != "any" and caller.is_bound:
        raise ProblemError(FORBIDDEN, detail=OF_ONE_USER)
    if holder == "installation" and caller.namespace is not None:
        raise ProblemError(FORBIDDEN, detail=OF_ONE_NAMESPACE)
