"""How much is measured: a few calls to see that it works, what ten minutes allow, or the far ends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Size:
    """The numbers that the cases take; the defaults are those of ``make bench``.

    Attributes:
        repetitions: after one that warms up.
        puts: of one repetition, one in flight.
        gets: the same.
        in_flight: sessions that put at the same time.
        puts_each: puts of each of them, per repetition.
        readers: connections that ask for contexts at the same time.
        crowds: how often puts are measured beside these.
        window: messages in the window that is read.
        known_facts, pieces: what the owner of the default read has beside it.
        crossing_puts: of one repetition, of which every 75th crosses the mark; with small events a tenth of
            them, of which every fourth does.
        peer_calls: puts, and gets, of a library that is slower.
        peer_sessions: of it, sessions that put at the same time.
        peer_flushes: of it, flushes of one repetition that ask a model.
        backlog: sessions that have ten events due, and two and a half times as many that have one.
        concurrencies: of the worker whose calls in flight are counted.
        call_seconds: what the model takes.
        steady_seconds: for how long calls in flight are counted.
        flushes: of one repetition, timed until their facts are readable.
        embedders: where the worker whose memory is looked at embeds: asked over HTTP, or by itself.
        events_early, events_late: after how many events a worker's memory is looked at.
        messages, sessions, facts, chunks: the points of each axis, from near to far.
        axis_calls: at each point, per repetition.
        recall_queries: for recall, at the farthest point of chunks, at most.
    """

    repetitions: int = 5
    puts: int = 300
    gets: int = 40
    in_flight: int = 64
    puts_each: int = 200
    readers: int = 1_000
    crowds: int = 3
    window: int = 400
    known_facts: int = 60
    pieces: int = 500
    crossing_puts: int = 7_600
    peer_calls: int = 20
    peer_sessions: int = 64
    peer_flushes: int = 2
    backlog: int = 60
    concurrencies: tuple[int, ...] = (16, 128)
    call_seconds: float = 1.0
    steady_seconds: float = 6.0
    flushes: int = 4
    embedders: tuple[str, ...] = ("http", "local")
    events_early: int = 300
    events_late: int = 3_000
    messages: tuple[int, ...] = (10, 1_000, 100_000)
    sessions: tuple[int, ...] = (1_000, 100_000)
    facts: tuple[int, ...] = (10, 100, 1_000)
    chunks: tuple[int, ...] = (100, 1_000, 10_000)
    axis_calls: int = 60
    recall_queries: int = 60


USUAL = Size()
FULL = Size(
    concurrencies=(16, 64, 128, 256),
    events_early=1_000,
    events_late=10_000,
    messages=(10, 1_000, 100_000, 1_000_000),
    sessions=(1_000, 100_000, 1_000_000),
    facts=(10, 100, 1_000, 10_000),
    chunks=(100, 1_000, 10_000, 100_000),
)
QUICK = Size(
    repetitions=1,
    puts=10,
    gets=4,
    in_flight=4,
    puts_each=2,
    readers=40,
    crowds=1,
    window=30,
    known_facts=5,
    pieces=20,
    crossing_puts=160,
    peer_calls=2,
    peer_sessions=2,
    peer_flushes=1,
    backlog=1,
    concurrencies=(4,),
    call_seconds=0.2,
    steady_seconds=0.5,
    flushes=1,
    embedders=("http",),
    events_early=3,
    events_late=9,
    messages=(10, 100),
    sessions=(10, 100),
    facts=(10, 40),
    chunks=(10, 40),
    axis_calls=4,
    recall_queries=2,
)
