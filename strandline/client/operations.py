"""Requests as data, and operations over them: each written once, and carried out sync or async.

An operation is a generator: it yields the ``Call``s that it needs and gets their ``Reply``s back.  It does no
I/O.  ``Method`` makes a method of it for each face, and ``Pages`` an iterator of a list.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload
from urllib.parse import quote as percent_encoded
from uuid import uuid4

from pydantic import BaseModel, ValidationError

from strandline.client.problems import unreadable
from strandline.client.retrying import Repeat
from strandline.producers.execution import signed
from strandline.schemas.errors import ConfigurationError, ServiceError
from strandline.schemas.values.identity import NO_USER, check_user_id
from strandline.schemas.wire.acts import WireMethod
from strandline.schemas.wire.base import IDEMPOTENCY_HEADER, Page

T = TypeVar("T")
A = TypeVar("A", bound=BaseModel)
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Attributes:
        path: with its names percent-encoded.
        query: parameters; None is left out, and each element of a list is one.
        body: sent as JSON; None: no body.
        user_id: for ``Strandline-User``; None: that of the key.
        headers: further ones.
        repeat: ``always`` if it may be sent again although it may have taken effect.
        wait_seconds: how long the service may wait with its answer (``Prefer: wait``).
        accepts: problems of the service that the operation takes as answers, such as ``NOT_FOUND``.
        is_read: whether it changes nothing, whatever its method.
    """

    method: WireMethod
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    user_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeat: Repeat = "always"
    wait_seconds: float | None = None
    accepts: frozenset[str] = frozenset()
    is_read: bool = False


# The requested thing is missing; a proxy's 404 is not this.
NOT_FOUND = frozenset({"not-found"})

LOST = (
    "No answer came, so the change may have taken effect; look before you repeat it."
    " (A put whose messages have an `id` may simply be repeated.)"
)


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a call; ``was_lost``: an answer to it was lost before, so it may have been done twice."""

    status: int
    content: bytes
    was_lost: bool = False

    @property
    def is_missing(self) -> bool:
        """Whether it tells that the requested thing is missing."""
        return self.status == 404

    def read(self, kind: type[A]) -> A:
        """The body as the wire has it; fields that a later release added are left out, at every level.

        Raises:
            ServiceError: it is not of this form.
        """
        try:
            return kind.model_validate_json(self.content, extra="ignore")
        except ValidationError as error:
            raise unreadable(error) from None

    def page(self, kind: type[Page[T]]) -> PageOf[T]:
        """The body as a page of a list."""
        page = self.read(kind)
        return PageOf(page.items, page.next_cursor)

    def text(self) -> str:
        """The body as it was sent; raises ServiceError if it is not UTF-8."""
        try:
            return self.content.decode()
        except UnicodeDecodeError:
            raise ServiceError("The service's answer is not UTF-8; look at what stands between.") from None


Operation = Generator[Call, Reply, T]


class Driver(Protocol):
    """The part that carries operations out: ``RemoteService``."""

    known_namespace: str | None

    def run(self, operation: Operation[T]) -> T: ...

    async def arun(self, operation: Operation[T]) -> T: ...


class Face(Protocol):
    """An object whose methods are operations on a service."""

    @property
    def service(self) -> Driver: ...


F = TypeVar("F", bound=Face)
Waited = TypeVar("Waited")
Got = TypeVar("Got")


@dataclass(frozen=True, slots=True)
class PageOf(Generic[T]):
    """Some items of a list, and the cursor of the next page."""

    items: Sequence[T]
    next_cursor: str | None


class Waiting:
    """A face whose methods wait for the service's answer."""


class Awaiting:
    """A face for asyncio, whose methods are awaited."""


class OfFace(Generic[F, P, Waited, Got]):
    """A method in two forms: ``waiting`` is called, and ``asynchronous`` is awaited."""

    def __init__(
        self,
        waiting: Callable[Concatenate[F, P], Waited],
        asynchronous: Callable[Concatenate[F, P], Got],
    ) -> None:
        self.waiting, self.asynchronous = waiting, asynchronous

    @overload
    def __get__(self, face: None, kind: type) -> Callable[Concatenate[F, P], Any]: ...

    @overload
    def __get__(self, face: Waiting, kind: type) -> Callable[P, Waited]: ...

    @overload
    def __get__(self, face: Awaiting, kind: type) -> Callable[P, Got]: ...

    def __get__(self, face: object, kind: type) -> Any:
        method: Any = self.asynchronous if issubclass(kind, Awaiting) else self.waiting
        return method.__get__(face, kind)


class Method(OfFace[F, P, T, Coroutine[Any, Any, T]]):
    """An operation as a method."""

    def __init__(self, operation: Callable[Concatenate[F, P], Operation[T]]) -> None:
        @wraps(operation)
        def wait(face: F, /, *arguments: P.args, **named: P.kwargs) -> T:
            return face.service.run(operation(face, *arguments, **named))

        @wraps(operation)
        async def complete(face: F, /, *arguments: P.args, **named: P.kwargs) -> T:
            return await face.service.arun(operation(face, *arguments, **named))

        super().__init__(signed(wait, operation), signed(complete, operation))


class Pages(OfFace[F, P, Iterator[T], AsyncIterator[T]]):
    """A list as a method that follows its cursors; the operation's second argument is the cursor."""

    def __init__(self, operation: Callable[Concatenate[F, str | None, P], Operation[PageOf[T]]]) -> None:
        @wraps(operation)
        def iterate(face: F, /, *arguments: P.args, **named: P.kwargs) -> Iterator[T]:
            cursor: str | None = None
            while True:
                page = face.service.run(operation(face, cursor, *arguments, **named))
                yield from page.items
                cursor = following(page.next_cursor, cursor)
                if cursor is None:
                    return

        @wraps(operation)
        async def iterate_async(face: F, /, *arguments: P.args, **named: P.kwargs) -> AsyncIterator[T]:
            cursor: str | None = None
            while True:
                page = await face.service.arun(operation(face, cursor, *arguments, **named))
                for item in page.items:
                    yield item
                cursor = following(page.next_cursor, cursor)
                if cursor is None:
                    return

        super().__init__(
            signed(iterate, operation, page_as="Iterator"),
            signed(iterate_async, operation, page_as="AsyncIterator"),
        )


def following(next_cursor: str | None, cursor: str | None) -> str | None:
    """The cursor of the next page, None at the end; raises ServiceError if it is the page's own."""
    if next_cursor is not None and next_cursor == cursor:
        raise without_end()
    return next_cursor


def without_end() -> ServiceError:
    """For a list that gives the same page again and again."""
    return ServiceError("The service gives the same page of the list again; use releases that go together.")


_STEPS = frozenset({".", ".."})


def path(*parts: str | int) -> str:
    """A path below ``/v1``; names in it are percent-encoded, slashes too.

    Raises:
        ConfigurationError: a name is ``.`` or ``..``, which clients and proxies take for steps of the path.
    """
    if not _STEPS.isdisjoint(parts):
        raise ConfigurationError("A name cannot be '.' or '..' here: proxies take these for steps of a path.")
    return "/v1/" + "/".join(percent_encoded(str(part), safe="") for part in parts)


class _WithoutUser(str):
    """Says that a session has no user: no text that a visitor gave as a name is equal in kind."""


WITHOUT_USER: str = _WithoutUser(NO_USER)
"""As ``user_id``: the session that has no user, or, in lists, all that have none."""


def check_user(user_id: str) -> str:
    """Return the id of a user, or ``WITHOUT_USER``; raise InvalidMessageError for all else, ``-`` too."""
    return user_id if isinstance(user_id, _WithoutUser) else check_user_id(user_id)


def once(idempotency_key: str | None = None) -> dict[str, str]:
    """The header that has the service carry a request out once, however often it is sent; None: a new key."""
    return {IDEMPOTENCY_HEADER: uuid4().hex if idempotency_key is None else idempotency_key}


def set_fields(**fields: Any) -> dict[str, Any]:
    """The fields of a body that are not None; others have the service's default."""
    return {name: value for name, value in fields.items() if value is not None}
