"""``python -m bench.recall``: what searches find of real conversations, and what reads give of them.

Four parts, each a name for --only, on an embedded Postgres of its own.  search: R@10, the share of a
question's evidence among the first ten messages found, and the sessions found.  context: the share of it that
stands in what a plain get gives, at some token limits.  bm25, llamaindex: the same of two baselines.
All are averaged over questions.  Tables are printed as they are measured.

With --embedder squeezed or random a stand-in over HTTP embeds: one whose cosines are all alike, or one whose
vectors say nothing.  With the first, searches should find about as much as with the local one, and with the
second as by words alone.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.encrypted.enabling import encrypt
from bench.environment import Ground, NotMeasuredError, prepared_ground
from bench.recall.bm25 import open_bm25
from bench.recall.contexts import ALL_GIVEN, GIVEN, OVER, TOKENS, Open, measure_contexts, open_memory
from bench.recall.data import BEAM, DEFAULT_FOLDER, TITLES, WHERE, Conversation, conversations
from bench.recall.searches import OF_SESSIONS, RECALL, measure_searches
from bench.recall.tables import Score, Table, as_json
from bench.suite import say
from strandline.schemas.values.policy import MIN_MESSAGE_TOKENS
from tests.support.servers.embedder_servers import STAND_INS, StandIn, embedder_server, settings_of

SEARCH, CONTEXT, BM25, LLAMAINDEX = "search", "context", "bm25", "llamaindex"
PARTS = (SEARCH, CONTEXT, BM25, LLAMAINDEX)
LOCAL = "local"
LIMITS = (2_000, 4_000, 8_000)
BEAM_LIMITS = (30_000,)
_LIMITS_HELP = f"of the prompts (default: {LIMITS}; {BEAM}: {BEAM_LIMITS})"
QUICK_QUESTIONS = 10
INTERRUPTED = 130


@dataclass(slots=True)
class Run:
    """What is measured, and what came of it until now.

    Attributes:
        parts: as ``--only`` names them.
        limits: of the prompts, in tokens; None: those of the collection.
        file: where the scores are written after each table.
        encrypted: whether what is searched is encrypted, which is to change no figure.
    """

    parts: Sequence[str]
    limits: Sequence[int] | None
    file: Path | None
    scores: list[Score] = field(default_factory=list)
    encrypted: bool = False

    def keep(self, table: Table) -> None:
        """Print the table, and write all that there is."""
        print(f"\n{table.as_text()}", flush=True)
        self.scores += table.scores
        if self.file is not None:
            self.file.write_text(as_json(self.scores), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # A shell starts background jobs with it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    present = conversations(given.data)
    if not present:
        print(f"There are no conversations in {given.data}.\n{WHERE}", file=sys.stderr)
        return 2
    chosen = choose(present, given)
    if not chosen:
        names = ", ".join(one.name for one in present)
        sets = ", ".join(dict.fromkeys(one.collection for one in present))
        print(f"No such conversation; there are {names}, of {sets}.", file=sys.stderr)
        return 2
    run = Run(given.only or PARTS, given.limits, given.json, encrypted=given.encrypted)
    began = time.monotonic()
    try:
        with embedding_by(None if given.embedder == LOCAL else given.embedder):
            measure(run, chosen, quick=given.quick)
    except KeyboardInterrupt:
        say("interrupted; the tables above are complete")
        return INTERRUPTED
    say(f"{time.monotonic() - began:.0f} s")
    return 0


@contextmanager
def embedding_by(embedder: StandIn | None) -> Iterator[None]:
    """Let the memories of this process embed by a stand-in; None: as the environment has it."""
    if embedder is None:
        yield
        return
    before = dict(os.environ)
    with embedder_server(embedder) as server:
        os.environ.update(settings_of(server, embedder))
        say(f"embedding by a stand-in: {embedder}")
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def choose(present: Sequence[Conversation], given: argparse.Namespace) -> list[Conversation]:
    """The conversations that the options name; with ``--quick`` the first of each collection, cut short."""
    chosen = [
        one
        for one in present
        if (given.data_set is None or one.collection in {TITLES.get(name, name) for name in given.data_set})
        and (given.conversations is None or one.name in given.conversations)
    ]
    if not given.quick:
        return chosen
    first = {one.collection: one for one in reversed(chosen)}
    return [
        replace(one, questions=one.questions[:QUICK_QUESTIONS]) for one in chosen if one in first.values()
    ]


def measure(run: Run, chosen: Sequence[Conversation], *, quick: bool = False) -> None:
    """Measure the parts of the run on each collection, and keep each table."""
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as home:
        say("starting PostgreSQL")
        with prepared_ground(Path(home)) as server:
            for collection in dict.fromkeys(one.collection for one in chosen):
                of_it = [one for one in chosen if one.collection == collection]
                limits = run.limits or (BEAM_LIMITS if collection == BEAM else LIMITS)
                for table in _tables(
                    server, run.parts, of_it, limits[:1] if quick else limits, encrypted=run.encrypted
                ):
                    run.keep(table)


def _tables(
    server: Ground,
    parts: Sequence[str],
    chosen: Sequence[Conversation],
    limits: Sequence[int],
    *,
    encrypted: bool = False,
) -> Iterator[Table]:
    if SEARCH in parts:
        yield from _search_tables(server, chosen, encrypted=encrypted)
    opened = dict(_openers(parts))
    for limit in limits if opened else ():
        yield _context_table(server, chosen, limit, opened)


def _search_tables(server: Ground, chosen: Sequence[Conversation], *, encrypted: bool) -> Iterator[Table]:
    collection = chosen[0].collection
    scores: list[Score] = []
    with server.fresh(registered=False) as ground:
        if encrypted:
            encrypt(ground.url)
        for conversation in chosen:
            say(f"{collection} {conversation.name}: {len(conversation.questions)} questions, searched")
            scores += measure_searches(ground.url, conversation)
    recalls = [one for one in scores if one.figure == RECALL]
    of_sessions = [one for one in scores if one.figure in OF_SESSIONS]
    yield Table(f"{collection}: {RECALL}, per cent", recalls, [RECALL])
    if of_sessions:
        yield Table(
            f"{collection}: sessions with evidence, per cent of questions: {' / '.join(OF_SESSIONS)}",
            of_sessions,
            OF_SESSIONS,
        )


def _openers(parts: Sequence[str]) -> Iterator[tuple[str, Open]]:
    """What reads a conversation, by part."""
    if CONTEXT in parts:
        yield CONTEXT, open_memory
    if BM25 in parts:
        yield BM25, open_bm25
    if LLAMAINDEX in parts:
        try:
            yield LLAMAINDEX, load_llamaindex()
        except NotMeasuredError as error:
            say(f"{LLAMAINDEX}: not measured: {error}")


def load_llamaindex() -> Open:
    """Import the library, which takes seconds and may be absent.

    Raises:
        NotMeasuredError: it is not installed.
    """
    try:
        opener: Open = importlib.import_module("bench.recall.llamaindex").open_llamaindex
    except ImportError as error:
        raise NotMeasuredError("the extra 'bench' brings it: pip install 'strandline[bench]'") from error
    return opener


def _context_table(
    server: Ground, chosen: Sequence[Conversation], limit: int, openers: Mapping[str, Open]
) -> Table:
    collection = chosen[0].collection
    scores: list[Score] = []
    with server.fresh(registered=False) as ground:
        for conversation in chosen:
            for part, opener in openers.items():
                say(f"{collection} {conversation.name}: {part} at {limit:,} tokens")
                scores += measure_contexts(ground.url, conversation, limit, opener)
    return Table(
        f"{collection} at {limit:,} tokens: {GIVEN} / questions with {ALL_GIVEN}, per cent",
        scores,
        [GIVEN, ALL_GIVEN],
        [(TOKENS, "mean"), (OVER, "in all")],
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.recall", description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_FOLDER, help="the folder of the conversations")
    parser.add_argument("--only", metavar="PART", action="append", choices=PARTS, help=", ".join(PARTS))
    embedders = (LOCAL, *STAND_INS)
    parser.add_argument("--embedder", choices=embedders, default=LOCAL, help=", ".join(embedders))
    parser.add_argument(
        "--data-set", metavar="NAME", action="append", help="its folder, as locomo or beam100k"
    )
    parser.add_argument("--conversations", metavar="NAME", nargs="+", help="these only, as conv-30 or beam-7")
    parser.add_argument("--limits", metavar="TOKENS", nargs="+", type=_token_limit, help=_LIMITS_HELP)
    parser.add_argument("--quick", action="store_true", help="a few questions of each, to see that it works")
    parser.add_argument(
        "--encrypted", action="store_true", help="search an encrypted namespace: no figure may change"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE as well")
    return parser


def _token_limit(text: str) -> int:
    if (limit := int(text)) < MIN_MESSAGE_TOKENS:
        raise argparse.ArgumentTypeError(f"no message fits {limit} tokens")
    return limit


if __name__ == "__main__":
    sys.exit(main())
