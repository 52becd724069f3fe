"""The redaction hook before storing: what a producer's process applies to texts that are to be kept."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.pipelines.own_code.bounded_calls import BoundedCalls
from strandline.pipelines.redaction.hook import Redaction
from strandline.schemas.errors import InvalidMessageError, ProviderDownError, RedactionError, RefusalError

SETTING = "STRANDLINE_REDACT_BEFORE_STORING"

# No more threads can be lost than these to hooks that do not return: then nothing can be put.
put_calls = BoundedCalls(1_000)


def redact_texts(redaction: Redaction, texts: Sequence[str], where: str) -> list[str]:
    """The texts as they may be stored.

    Raises:
        InvalidMessageError: a hook refuses one of them; the error names ``where``.
        RedactionError: a hook failed, was late, or returned no text.
    """
    try:
        return redaction.texts(texts)
    except RefusalError as error:
        raise InvalidMessageError(where, f"was refused by the redaction hook: {error}") from error
    except (RedactionError, ProviderDownError) as error:
        raise RedactionError(f"{where} was not stored. {error}") from error
