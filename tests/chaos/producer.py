"""A producer process of the campaign: puts until it is told to stop, and writes down what was acknowledged.

A put that fails because Postgres is away is repeated, under the same id, until it is acknowledged; so is
one that an earlier life of this process began.  Now and then it reads, and holds what it sees against its
journal.  Half of the producers use threads and the sync methods, half one event loop and the async ones.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from strandline import Memory, MemoryContext
from strandline.schemas.errors import DatabaseUnavailableError, StrandlineError
from strandline.schemas.values.message import Message
from tests.chaos.conversation import Speaker, digest_of, message_of, speakers_of
from tests.chaos.judging.journal import Ack, Complaint, Intent, Journal, JournalReader, Read

LANES = 4
PAUSE_AFTER_FAILURE_SECONDS = 0.1
# Once it is told to stop: so long for what is still unacknowledged.
LAST_SECONDS = 30.0
READ_EVERY, READ_ALL_EVERY, SEVERAL_EVERY = 20, 90, 5

TOKEN_LIMIT, FLUSH_SIZE = 600, 90


@dataclass
class Line:
    """One speaker's place: the numbers put so far, and what the journal says of them."""

    speaker: Speaker
    memory: Memory
    acked: dict[int, int] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)

    def next_numbers(self, several: bool) -> list[int]:
        """The numbers to put: first those that an earlier life began, else new ones."""
        if left := sorted(self.begun - set(self.acked)):
            return left[:1]
        last = max(self.begun, default=0)
        return [last + 1, last + 2] if several else [last + 1]


class Telling:
    """What putting and reading share, whether sync or async: the journal, the lines, the checks."""

    def __init__(self, slot: int, journal_path: Path, seed: int) -> None:
        self.stop = threading.Event()
        self.stopped_at = float("inf")
        self._draw = random.Random(f"{seed}-{slot}-{time.monotonic()}")  # noqa: S311  # whose turn it is
        self.lines = [
            Line(
                speaker,
                Memory.from_defaults(
                    speaker.session,
                    user_id=speaker.user,
                    idle_seconds=speaker.idle_seconds,
                    token_limit=TOKEN_LIMIT,
                    token_flush_size=FLUSH_SIZE,
                ),
            )
            for speaker in speakers_of(slot)
        ]
        by_session = {line.speaker.session: line for line in self.lines}
        for entry in JournalReader(journal_path).new_entries():
            if isinstance(entry, Intent):
                by_session[entry.session].begun.add(entry.number)
            elif isinstance(entry, Ack):
                by_session[entry.session].acked[entry.number] = entry.seq
        self.journal = Journal(journal_path)

    def turns(self, lines: Sequence[Line], seconds: float) -> Iterator[tuple[Line, int, float]]:
        """Whose turn it is, which turn, and how long to wait before it, until told to stop; then what is
        begun and not acknowledged."""
        turn = 0
        while not self.stop.is_set():
            turn += 1
            yield self._draw.choice(lines), turn, self._draw.uniform(0.5, 1.5) * seconds
        for line in lines:
            while line.begun - set(line.acked):
                yield line, 1, 0.0

    def begin(self, line: Line, turn: int) -> list[dict[str, str]]:
        """Write down what is about to be put."""
        numbers = line.next_numbers(several=turn % SEVERAL_EVERY == 0)
        new = [number for number in numbers if number not in line.begun]
        line.begun.update(new)
        self.journal.write(*(Intent(line.speaker.session, line.speaker.writer, n) for n in new))
        return [message_of(line.speaker, number) for number in numbers]

    def done(
        self, line: Line, messages: Sequence[dict[str, str]], seqs: Sequence[int], first: float, began: float
    ) -> list[Ack]:
        """The acknowledgements, for the journal."""
        now = time.monotonic()
        acks = []
        for message, seq in zip(messages, seqs, strict=True):
            number = int(message["id"].rpartition(".")[2])
            line.acked[number] = seq
            digest = digest_of(message["role"], message["content"])
            speaker = line.speaker
            acks.append(
                Ack(
                    speaker.session,
                    speaker.writer,
                    number,
                    message["id"],
                    digest,
                    seq,
                    now,
                    now - began,
                    now - first,
                )
            )
        return acks

    def check_read(self, line: Line, context: MemoryContext, began: float) -> None:
        """No amnesia: what was acknowledged is shown, or covered by what is derived, or named as left out."""
        self.journal.write(Read(time.monotonic(), time.monotonic() - began))
        shown = {message.seq for message in context.messages}
        covered = min(context.covered_through.values(), default=0)
        left_out = {
            seq
            for omission in context.omitted
            if omission.from_seq is not None and omission.through_seq is not None
            for seq in range(omission.from_seq, omission.through_seq + 1)
        }
        # Only of the next message is it known that it is not covered: behind a dead letter others may be.
        following = covered + 1
        if following in line.acked.values() and following not in shown | left_out:
            self.complain(line, f"seq {following} was acknowledged, and a read forgets it")
        newest = max(line.acked.values(), default=None)
        if newest is not None and newest not in shown:
            self.complain(line, f"the newest message (seq {newest}) is not in the window that was read")

    def check_history(self, line: Line, history: Iterable[Message]) -> None:
        """All that was acknowledged is in the history, under its seq, once."""
        speaker = line.speaker
        found: dict[str, int | None] = {}
        for message in history:
            if message.id in found:
                self.complain(line, f"message {message.id} is in its history twice")
            found[str(message.id)] = message.seq
        for number, seq in line.acked.items():
            message_id = message_of(speaker, number)["id"]
            if found.get(message_id) != seq:
                has = found.get(message_id)
                self.complain(line, f"message {message_id} was acknowledged as {seq}, and get_all has {has}")

    def complain(self, line: Line, problem: str) -> None:
        self.journal.write(Complaint(f"Session {line.speaker.session}: {problem}."), durably=True)

    def may_repeat(self, line: Line, error: StrandlineError) -> bool:
        """Whether a failed put is to be tried again; what cannot be helped by that is a complaint."""
        if not isinstance(error, DatabaseUnavailableError):
            self.complain(line, f"a put was refused: {type(error).__name__}: {error}")
            return False
        return time.monotonic() < self.stopped_at + LAST_SECONDS


def tell(telling: Telling, lines: Sequence[Line], seconds: float) -> None:
    """A thread's work: its lines in random order, with the sync methods."""
    for line, turn, pause in telling.turns(lines, seconds):
        telling.stop.wait(pause)
        messages = telling.begin(line, turn)
        first = time.monotonic()
        while True:
            began = time.monotonic()
            try:
                seqs = line.memory.put_messages(messages)
            except StrandlineError as error:
                if not telling.may_repeat(line, error):
                    return
                time.sleep(PAUSE_AFTER_FAILURE_SECONDS)
                continue
            break
        telling.journal.write(*telling.done(line, messages, seqs, first, began), durably=True)
        read(telling, line, turn)


def read(telling: Telling, line: Line, turn: int) -> None:
    """Now and then look at what was put."""
    try:
        if turn % READ_EVERY == 0:
            began = time.monotonic()
            telling.check_read(line, line.memory.get("what is in my locker?"), began)
        if turn % READ_ALL_EVERY == 0:
            telling.check_history(line, line.memory.get_all())
    except DatabaseUnavailableError:
        return


async def atell(telling: Telling, lines: Sequence[Line], seconds: float) -> None:
    """A task's work: as ``tell``, with the async methods."""
    for line, turn, pause in telling.turns(lines, seconds):
        await asyncio.sleep(pause)
        messages = telling.begin(line, turn)
        first = time.monotonic()
        while True:
            began = time.monotonic()
            try:
                seqs = await line.memory.aput_messages(messages)
            except StrandlineError as error:
                if not telling.may_repeat(line, error):
                    return
                await asyncio.sleep(PAUSE_AFTER_FAILURE_SECONDS)
                continue
            break
        acks = telling.done(line, messages, seqs, first, began)
        await asyncio.to_thread(telling.journal.write, *acks, durably=True)
        await aread(telling, line, turn)


async def aread(telling: Telling, line: Line, turn: int) -> None:
    """Async twin of ``read``."""
    try:
        if turn % READ_EVERY == 0:
            began = time.monotonic()
            telling.check_read(line, await line.memory.aget("what is in my locker?"), began)
        if turn % READ_ALL_EVERY == 0:
            telling.check_history(line, await line.memory.aget_all())
    except DatabaseUnavailableError:
        return


def run(telling: Telling, seconds: float) -> None:
    """All lines, each in one of some threads."""
    threads = [
        threading.Thread(target=tell, args=(telling, telling.lines[number::LANES], seconds))
        for number in range(LANES)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    telling.lines[0].memory.close()


async def arun(telling: Telling, seconds: float) -> None:
    """All lines, each in one of some tasks."""
    await asyncio.gather(*(atell(telling, telling.lines[n::LANES], seconds) for n in range(LANES)))
    await telling.lines[0].memory.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slot", type=int, required=True, help="which producer; even ones are sync")
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--puts-per-second", type=float, required=True)
    options = parser.parse_args()
    telling = Telling(options.slot, options.journal, options.seed)

    def end(*_: object) -> None:
        telling.stopped_at = time.monotonic()
        telling.stop.set()

    signal.signal(signal.SIGTERM, end)
    seconds = LANES / options.puts_per_second
    if options.slot % 2:
        asyncio.run(arun(telling, seconds))
    else:
        run(telling, seconds)


if __name__ == "__main__":
    main()
