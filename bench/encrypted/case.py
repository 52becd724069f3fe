"""Puts and reads of an encrypted namespace against those of one that is not, in one run on one database."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

from bench.cases.reads import without_cache
from bench.cases.writes import NO_MARK
from bench.encrypted.enabling import encrypt
from bench.environment import Ground
from bench.figures import Figure, Goal, Pair, of_times
from bench.size import Size
from bench.turns import Call, pair
from strandline import Memory
from strandline.schemas.values.identity import DEFAULT_NAMESPACE

NAMESPACE = "encrypted"


def measure_encryption(ground: Ground, size: Size) -> Iterator[Figure]:
    """A put, a read of a window that is known, and one of a window that has to be fetched."""
    encrypt(ground.url, NAMESPACE)
    puts = [_puts(ground, size) for _ in range(size.repetitions + 1)][1:]
    yield of_times("encryption", "put, encrypted", "put", puts, goal=Goal(1.25))
    sealed, clear = _filled(ground, size, NAMESPACE), _filled(ground, size, DEFAULT_NAMESPACE)
    yield _of_gets("get, encrypted: read again", sealed.get, clear.get, size)
    with without_cache():  # settings are read where a memory is made
        first, other = (_memory(ground, one.namespace, one.session_id) for one in (sealed, clear))
    window = len(first.get().messages)
    name = f"get of {window} messages, encrypted: never read before"
    yield _of_gets(name, first.get, other.get, size)


def _of_gets(name: str, sealed: Call, clear: Call, size: Size) -> Figure:
    pairs = [pair(sealed, clear, size.gets) for _ in range(size.repetitions + 1)][1:]
    return of_times("encryption", name, "get", pairs, goal=Goal(1.5))


def _memory(ground: Ground, namespace: str, session_id: str | None = None) -> Memory:
    return ground.memory(session_id=session_id, blocks=[], token_limit=NO_MARK, namespace=namespace)


def _filled(ground: Ground, size: Size, namespace: str) -> Memory:
    memory = _memory(ground, namespace)
    memory.put_messages(ground.some_messages(size.window))
    return memory


def _puts(ground: Ground, size: Size) -> Pair:
    messages, others = cycle(ground.some_pieces(size.puts)), cycle(ground.some_pieces(size.puts))
    sealed, clear = _memory(ground, NAMESPACE), _memory(ground, DEFAULT_NAMESPACE)
    sealed.put(next(messages))  # the session's first put claims it
    clear.put(next(others))
    return pair(lambda: sealed.put(next(messages)), lambda: clear.put(next(others)), size.puts)
