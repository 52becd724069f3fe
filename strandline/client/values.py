"""Bodies of the wire as the values that ``Memory`` takes and gives, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from strandline.client.operations import Call, Driver, Operation, path
from strandline.producers.arguments import listed_messages
from strandline.producers.facts.listing import Fact, FactDoubt, FactRevision
from strandline.producers.reading.context import Given, MemoryContext
from strandline.producers.search.facts import FoundFact
from strandline.producers.search.search import FoundMessage, SearchResult
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.message import NOTHING, Message, ReadOnlyDict, plain
from strandline.schemas.values.same_named import make_from
from strandline.schemas.wire.contexts import ContextOut, HitOut
from strandline.schemas.wire.facts import FactOut, RevisionOut
from strandline.schemas.wire.keys import Identity
from strandline.schemas.wire.messages import MessageOut


@dataclass(frozen=True, slots=True)
class RemoteFact(Fact):
    """A fact as the service gave it; ``revisions`` are there where it was got by its id."""

    stored_version: str = ""

    @property
    def version(self) -> str:
        """Names the fact as it is: another after each change, for ``if_version``."""
        return self.stored_version


def message_body(source: object, where: str) -> dict[str, Any]:
    """A message, or an OpenAI dict, as ``MessageIn`` has it.

    Raises:
        InvalidMessageError: it cannot be read as a message.
    """
    message = Message.from_openai(source, where=where)
    try:
        content, calls = plain(message.content), plain(message.tool_calls)
        metadata, extra = plain(message.metadata), plain(message.extra)
    except TypeError as error:
        raise InvalidMessageError(where, str(error), for_clients=InvalidMessageError.UNTOLD) from None
    created_at = message.created_at
    fields: dict[str, Any] = {
        "id": message.id,
        "name": message.name,
        "tool_calls": calls or None,
        "tool_call_id": message.tool_call_id,
        "metadata": metadata or None,
        "created_at": None if created_at is None else created_at.isoformat(),
        "extra": extra or None,
    }
    present = {name: value for name, value in fields.items() if value is not None}
    return {"role": message.role, "content": content, **present}


def message_bodies(sources: object) -> list[dict[str, Any]]:
    """Messages as the wire has them; raises InvalidMessageError if they are not a list of messages."""
    return [
        message_body(source, f"messages[{index}]") for index, source in enumerate(listed_messages(sources))
    ]


def message_from(out: MessageOut) -> Message:
    """A stored message."""
    metadata = ReadOnlyDict(out.metadata) if out.metadata else NOTHING
    extra = ReadOnlyDict(out.extra) if out.extra else NOTHING
    return make_from(Message, out, metadata=metadata, extra=extra)


def messages_from(outs: Iterable[MessageOut]) -> list[Message]:
    return [message_from(out) for out in outs]


def context_from(out: ContextOut) -> MemoryContext:
    """A read."""
    context: MemoryContext = value_of(MemoryContext, out)
    return replace(context, memory=value_of(Given, out))


def fact_from(out: FactOut, namespace: str, revisions: Sequence[RevisionOut] = ()) -> Fact:
    """A fact, with the revisions that came with it."""
    others = ("topics", "is_live", "is_doubtful", "doubt", "version")
    same = {name: value for name, value in out if name not in others}
    return RemoteFact(
        **same,
        topics=tuple(out.topics),
        namespace=namespace,
        revisions=value_of(tuple[FactRevision, ...], [*revisions]),
        doubt=value_of(FactDoubt, out.doubt),
        stored_version=out.version,
    )


def hit_from(out: HitOut, namespace: str) -> SearchResult:
    """A search's hit."""
    if out.fact is not None:
        return FoundFact(fact_from(out.fact, namespace), out.score, out.similarity)
    assert out.message is not None, "a hit is a message or a fact"  # noqa: S101
    return FoundMessage(message_from(out.message), out.session_id or "", out.score, out.similarity)


def namespace_of(service: Driver) -> Operation[str]:
    """The namespace that the key opens; asked for once."""
    if service.known_namespace is None:
        reply = yield Call("GET", path("whoami"))
        service.known_namespace = reply.read(Identity).namespace or ""
    return service.known_namespace


def value_of(kind: Any, out: Any, namespace: str = "") -> Any:
    """The library's value of the wire's ``out``: dataclasses, and collections of them."""
    if out is None or (
        isinstance(kind, type) and isinstance(out, kind) and not isinstance(out, (list, dict))
    ):
        return out
    if kind is Message:
        return message_from(out)
    if kind is Fact:
        return fact_from(out, namespace)
    if is_dataclass(kind):
        hints = _hints(cast("type", kind))
        # A required field that the wire has not is a text, such as the digest of a prompt.
        required = {one.name for one in fields(kind) if one.default is one.default_factory is MISSING}
        names = [one.name for one in fields(kind) if hasattr(out, one.name) or one.name in required]
        return kind(  # type: ignore[operator]
            **{name: value_of(hints[name], getattr(out, name, ""), namespace) for name in names}
        )
    parts = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return value_of(next(part for part in parts if part is not type(None)), out, namespace)
    if isinstance(out, list) and parts:
        values = [value_of(parts[0], one, namespace) for one in out]
        return tuple(values) if get_origin(kind) is tuple else values
    return out


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
