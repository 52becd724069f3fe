"""Ends a streamed answer that only repeats itself or counts, as small models do until they meet a limit.

What stands before is an answer that was cut off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

# An answer repeats itself if so many bytes at its end are one passage, written so many times or more.
_BYTES = 2_400
_TIMES = 6
# It counts if it ends in more than so many numbers of lines: no fact is from as many.
_NUMBERS = 24
# After so many further bytes the end is looked at again.
_STEP = 100
_WORDS = re.compile(
    rb'"(?:content|text|reasoning_content|reasoning|thinking|arguments)"\s*:\s*"((?:[^"\\]|\\.)*)"'
)
_BREAK = re.compile(rb"\\[nrt]")
_LINES = re.compile(rb'messages\\?"\s*:\s*\[([\d\s,]*)\Z')
# The last event of an answer that is read no further, and the reason for its end in it.
NO_END = "no_end"
ENDED = (
    f'data: {{"choices": [{{"index": 0, "delta": {{}}, "finish_reason": "{NO_END}"}}]}}\n\ndata: [DONE]\n\n'
).encode()


def until_repetition(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces of an event stream, which ends as cut off once its answer goes nowhere."""
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
            if repeats_itself(answer) or counts(answer):
                yield ENDED
                return
    yield b"".join(parts)


def repeats_itself(text: bytes) -> bool:
    """Whether the last bytes of a text are one passage over and over."""
    end, longest = text[-_BYTES:], _BYTES // _TIMES
    period = len(end) - longest - end.rfind(end[-longest:], 0, -1)
    return len(end) == _BYTES and period <= longest and end[period:] == end[:-period]


def counts(text: bytes) -> bool:
    """Whether a text, as a JSON string has it, ends in a fact's list of lines that is longer than meant."""
    lines = _LINES.search(_BREAK.sub(b" ", text))
    return lines is not None and len(lines[1].replace(b",", b" ").split()) > _NUMBERS
