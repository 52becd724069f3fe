"""Ends a streamed answer that only repeats itself, as small models do until they meet a limit.

What stands before the repetition is an answer that was cut off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

# An answer repeats itself if so many bytes at its end are one passage, written so many times or more.
_BYTES = 2_400
_TIMES = 6
# After so many further bytes the end is looked at again.
_STEP = 400
_WORDS = re.compile(
    rb'"(?:content|text|reasoning_content|reasoning|thinking|arguments)"\s*:\s*"((?:[^"\\]|\\.)*)"'
)
_CUT_OFF = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}\n\ndata: [DONE]\n\n'


def until_repetition(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces of an event stream, which ends as cut off once its answer only repeats itself."""
    parts: list[bytes] = []
    answer, unseen = b"", 0
    for piece in pieces:
        whole, end, rest = piece.rpartition(b"\n")
        if not end:
            parts.append(piece)
            continue
        lines = b"".join((*parts, whole, end))
        parts = [rest]
        yield lines
        words = b"".join(_WORDS.findall(lines))
        answer, unseen = (answer + words)[-_BYTES:], unseen + len(words)
        if unseen >= _STEP:
            unseen = 0
            if repeats_itself(answer):
                yield _CUT_OFF
                return
    yield b"".join(parts)


def repeats_itself(text: bytes) -> bool:
    """Whether the last bytes of a text are one passage over and over."""
    end, longest = text[-_BYTES:], _BYTES // _TIMES
    period = len(end) - longest - end.rfind(end[-longest:], 0, -1)
    return len(end) == _BYTES and period <= longest and end[period:] == end[:-period]
