"""The redaction hook before storing, as a producer's process applies it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from strandline.pipelines.own_code.bounded_calls import BoundedCalls
from strandline.pipelines.redaction.hook import Redaction
from strandline.pipelines.redaction.json_texts import Visit, visit_message, visit_object
from strandline.schemas.errors import InvalidMessageError, ProviderDownError, RedactionError, RefusalError
from strandline.schemas.values.content_parts import kind_of

_Object = dict[str, Any]
T = TypeVar("T")

SETTING = "STRANDLINE_REDACT_BEFORE_STORING"

# No more threads can be lost than these to hooks that do not return: then nothing can be put.
put_calls = BoundedCalls(1_000)


def redact_texts(redaction: Redaction, texts: Sequence[str], where: str) -> list[str]:
    """The texts as they may be stored.

    Raises:
        InvalidMessageError: a hook refuses one of them; the error names ``where``.
        RedactionError: a hook failed, was late, or returned no text.
    """
    return _apply(partial(redaction.texts, texts), where)


def _apply(work: Callable[[], T], where: str) -> T:
    try:
        return work()
    except RefusalError as error:
        raise InvalidMessageError(
            where, f"was refused by the redaction hook: {error}", for_clients=InvalidMessageError.UNTOLD
        ) from error
    except (RedactionError, ProviderDownError) as error:
        raise RedactionError(f"{where} was not stored. {error}") from error


def redact_stored(
    redaction: Redaction, envelope: str, metadata: str | None, where: str
) -> tuple[_Object, _Object] | None:
    """A message's envelope and metadata, given as they would be stored; None: no hook changes them.

    Raises: as ``redact_texts``.
    """
    body, beside = json.loads(envelope), {} if metadata is None else json.loads(metadata)
    content: Any = body.get("content")
    places = [at for at, part in enumerate(content) if kind_of(part)] if isinstance(content, list) else []
    captions = _apply(partial(redaction.captions, [content[at] for at in places]), where) if places else []
    for at, caption in list(zip(places, captions, strict=False))[::-1]:
        if caption:
            content.insert(at + 1, {"type": "text", "text": caption})
    has_captions = any(captions)
    texts: list[str] = []

    def note(text: str) -> str:
        texts.append(text)
        return text

    _visit(body, beside, note)
    results = redact_texts(redaction, texts, where)
    if results == texts and not has_captions:
        return None
    left = iter(results)
    return _visit(body, beside, lambda _text: next(left))


def _visit(body: _Object, metadata: _Object, visit: Visit) -> tuple[_Object, _Object]:
    return visit_message(body, visit), visit_object(metadata, visit)
