"""The read that users wait for: all defaults, facts and pieces, against the bare SELECT of its window."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, cycle

from bench.cases.backlog import wait_until_applied
from bench.cases.filling import FACT_CHARACTERS
from bench.cases.reads import Gets, bare_select, without_cache
from bench.environment import Ground, NotMeasuredError
from bench.figures import Figure, Goal
from bench.size import Size
from strandline import Memory

USER = "reader"
DERIVE_SECONDS = 60.0
COUNTED = """
SELECT (SELECT next_seq - window_from FROM strandline.session WHERE session_id = %s),
    (SELECT count(*) FROM strandline.fact WHERE live), (SELECT count(*) FROM strandline.chunk)
"""


def measure_defaults(ground: Ground, size: Size) -> Iterator[Figure]:
    """The default read: again, with a new question, never read before, and after one more put."""
    session_id = _filled(ground, size)
    with without_cache():
        first = _memory(ground, session_id)
    name = f"get of {size.window} messages, {size.known_facts} facts, {size.pieces} pieces"
    with bare_select(ground, session_id) as select:
        get = Gets("defaults", name, select, size)
        yield get.figure("never read before", first.get, goal=Goal(3.3))
        memory = _memory(ground, session_id)
        asking = _Asking(ground, memory)
        yield get.figure("read again", memory.get, goal=Goal(1.5))
        yield get.figure("a new question", asking.get, goal=Goal(3))
        # Last, since the window grows.
        yield get.figure("after one more put", memory.get, before=asking.put, goal=Goal(1.9))
        yield get.figure("a new question after one more put", asking.get, before=asking.put, goal=Goal(3.4))


class _Asking:
    """Puts a short message, and asks another question each time."""

    def __init__(self, ground: Ground, memory: Memory) -> None:
        self._memory = memory
        self._questions = cycle(ground.questions)
        self._numbers = count(1)

    def put(self) -> object:
        return self._memory.put({"role": "user", "content": "and one more"})

    def get(self) -> object:
        return self._memory.get(f"{next(self._questions)} And what about number {next(self._numbers)}?")


def _memory(ground: Ground, session_id: str) -> Memory:
    return ground.memory(session_id=session_id, user_id=USER)


def _filled(ground: Ground, size: Size) -> str:
    """Pieces of what was flushed, facts, and the window; nothing is due any more.

    The flushed messages are the assistant's, from which no facts come: there are those that are added.
    """
    messages = ground.some_pieces(size.pieces + size.window)
    memory = ground.memory(user_id=USER, consuming=True)
    memory.put_messages([one | {"role": "assistant"} for one in messages[: size.pieces]])
    memory.flush(all=True)
    memory.put_messages(messages[size.pieces :])
    for piece in ground.pieces[: size.known_facts]:
        memory.facts.add(piece["content"][:FACT_CHARACTERS])
    wait_until_applied(ground, seconds=DERIVE_SECONDS)
    memory.close()  # with it ends the thread that derives
    ground.analyze()
    found = ground.rows(COUNTED, memory.session_id)
    if found != [(size.window, size.known_facts, size.pieces)]:
        raise NotMeasuredError(f"messages, facts and pieces are {found}")
    return memory.session_id
