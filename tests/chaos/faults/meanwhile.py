"""Faults that are none: edits, resets, huge turns and replays, which must get along with all the others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

from strandline import Facts, Memory
from strandline.schemas.errors import DatabaseUnavailableError
from tests.chaos.conversation import digest_of
from tests.chaos.faults.changed_release import release_changed
from tests.chaos.faults.faults import (
    BEHAVIOURS,
    CONSUMING,
    POSTGRES,
    PROVIDER_DOWN,
    SERVER_FAULTS,
    Fault,
    Harm,
)
from tests.chaos.judging.journal import Ack
from tests.chaos.judging.recoveries import Connection
from tests.chaos.plan import Kind

T = TypeVar("T")

WRITER = "campaign"
LINES = 6
# More than an owner ever has here.
MOST_FACTS = 1_000
RESULTS, RESULT_WORDS = 4, 110_000
# For so long facts are waited for; the model may be away meanwhile.
DERIVED_WITHIN_SECONDS = 90.0
REPEATED_FOR_SECONDS = 120.0

NOTHING_DUE = """
SELECT EXISTS (SELECT FROM strandline.flush_event e JOIN strandline.session s USING (shard_key, session_key)
        WHERE s.session_id = %(session)s)
    AND NOT EXISTS (SELECT FROM strandline.due d JOIN strandline.session s USING (shard_key, session_key)
        WHERE s.session_id = %(session)s)
"""
REPLAY_SECONDS = 900.0
# What replays in place go back by: all of the log, they would outlast the plan of a long campaign.
REPLAYED_SECONDS = 120.0
PIPELINES = ("facts", "summary", "vectors")


class GivenUpError(Exception):
    """A call was repeated for long, and Postgres was away each time."""


@dataclass
class Conversation:
    """A session that the campaign itself puts to, on its own connection to Postgres."""

    url: str
    session: str
    user: str | None

    @property
    def memory(self) -> Memory:
        return Memory.from_defaults(self.session, user_id=self.user, database_url=self.url)

    @property
    def facts(self) -> Facts:
        assert self.user is not None
        return Facts.for_owner(user_id=self.user, database_url=self.url)

    def put(self, messages: Sequence[dict[str, Any]]) -> list[Ack]:
        """Put them and deliver them; what was acknowledged."""
        numbered = [one | {"id": f"{self.session}.{WRITER}.{n}"} for n, one in enumerate(messages, 1)]
        began = time.monotonic()
        seqs = repeated(lambda: self.memory.put_messages(numbered))
        took = time.monotonic() - began
        repeated(lambda: self.memory.flush(all=True))
        return [
            Ack(
                self.session,
                WRITER,
                number,
                message["id"],
                digest_of(message["role"], message["content"]),
                seq,
                began + took,
                took,
                took,
            )
            for number, (message, seq) in enumerate(zip(numbered, seqs, strict=True), 1)
        ]

    def is_derived(self, connection: Connection) -> bool:
        """Whether it was flushed, and nothing of it is due any more."""
        ((derived,),) = connection.execute(NOTHING_DUE, {"session": self.session})
        return bool(derived)

    def lines(self) -> list[str]:
        """What its user says: each line once in a campaign, and each a fact."""
        return [f"Shelf {number} of {self.session} holds a rope and a lamp." for number in range(LINES)]

    def live_texts(self) -> set[str]:
        """The owner's facts."""
        return {fact.text for fact in repeated(partial(self.facts.list, limit=MOST_FACTS))}


def repeated(call: Callable[[], T]) -> T:
    """The call's result; repeated while Postgres is away, so it must be a call that may be repeated."""
    deadline = time.monotonic() + REPEATED_FOR_SECONDS
    while time.monotonic() < deadline:
        try:
            return call()
        except DatabaseUnavailableError:
            time.sleep(0.2)
    raise GivenUpError


def huge_turn() -> Iterator[dict[str, Any]]:
    """A turn of a user whose tool returns four times nearly a megabyte, each in different words."""
    calls = [
        {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        for number in range(RESULTS)
    ]
    yield {"role": "user", "content": "Read the four files of my boat, and tell me what is in them."}
    yield {"role": "assistant", "content": None, "tool_calls": calls}
    for number, call in enumerate(calls):
        words = " ".join(f"w{number}x{place}" for place in range(RESULT_WORDS))
        yield {"role": "tool", "content": words[:960_000], "tool_call_id": call["id"]}
    yield {"role": "assistant", "content": "They hold many words."}


def conversation_of(harm: Harm, name: str) -> Conversation:
    """A separate session of one of a few owners."""
    session = f"{name}-{harm.planned.number}"
    return Conversation(harm.stack.postgres.url, session, f"owner-{harm.planned.slot}")


def say(harm: Harm, conversation: Conversation) -> None:
    """Have its user say his lines, and note what was acknowledged."""
    messages = [{"role": "user", "content": line} for line in conversation.lines()]
    harm.stack.book.note_put(conversation.put(messages))


def await_facts(harm: Harm, conversation: Conversation) -> set[str]:
    """The facts of what was said, once they are there, or those that are when the time is over."""
    said = set(conversation.lines())
    deadline = time.monotonic() + DERIVED_WITHIN_SECONDS
    while (found := conversation.live_texts() & said) < said and time.monotonic() < deadline:
        if harm.stack.ending.wait(0.5):
            break
    return found


def facts_edited(harm: Harm) -> Iterator[None]:
    """A person deletes half of the facts that were derived, and adds one and takes it away again."""
    conversation = conversation_of(harm, "edited")
    ended: list[float] = []
    harm.recovery(done=lambda _connection: bool(ended), needs=(*CONSUMING, *PROVIDER_DOWN))

    def delete(text: str) -> None:
        harm.stack.book.note_deleted(f"owner-{harm.planned.slot}", text)
        for fact in repeated(lambda: conversation.facts.list(limit=100, contains=text)):
            repeated(partial(conversation.facts.delete, fact.fact_id))

    say(harm, conversation)
    for text in sorted(await_facts(harm, conversation))[::2]:
        delete(text)
    added = f"A person says this of {conversation.session}."
    repeated(lambda: conversation.facts.add(added))
    delete(added)
    ended.append(time.monotonic())
    yield


def session_reset(harm: Harm) -> Iterator[None]:
    """A session is said and delivered, and then reset with what was derived from it, however far that is."""
    conversation = conversation_of(harm, "reset")
    ended: list[float] = []
    harm.recovery(done=lambda _connection: bool(ended), needs=(POSTGRES,))
    say(harm, conversation)
    yield
    repeated(lambda: conversation.memory.reset(derived=True))
    owner = f"owner-{harm.planned.slot}"
    harm.stack.book.note_reset(owner, conversation.session, conversation.lines())
    ended.append(time.monotonic())


def poison_turn(harm: Harm) -> Iterator[None]:
    """One turn with nearly four megabytes of different words."""
    conversation = Conversation(harm.stack.postgres.url, f"poison-{harm.planned.number}", None)
    harm.stack.book.note_put(conversation.put(list(huge_turn())))
    harm.recovery(done=conversation.is_derived, needs=(*CONSUMING, *BEHAVIOURS))
    yield


def replayed_in_place(harm: Harm) -> Iterator[None]:
    """Of one pipeline after the other, and of what was flushed lately."""
    since = datetime.now(UTC) - timedelta(seconds=REPLAYED_SECONDS)
    pipeline = PIPELINES[harm.planned.number % len(PIPELINES)]
    Replay(harm).run("--pipeline", pipeline, "--since", f"{since:%Y-%m-%dT%H:%M:%S}")
    yield


def replayed_anew(harm: Harm) -> Iterator[None]:
    """Of all facts, as a new generation."""
    Replay(harm).run("--new", "--force", "--pipeline", "facts")
    yield


@dataclass
class Replay:
    """A replay beside the load; it is resumed when Postgres ends it, and verify has to be clean after it."""

    harm: Harm

    def run(self, *arguments: str) -> None:
        ended: list[float] = []
        self.harm.recovery(done=lambda _connection: bool(ended), needs=(*CONSUMING, *PROVIDER_DOWN))
        said = "it did not begin"
        while not self.harm.stack.ending.is_set():
            code, said = self._run("replay", *arguments, "--json")
            if code == 0:
                self._prune()
                self._verify()
                ended.append(time.monotonic())
                return
            # Answers that were unusable for a while made dead letters, which are in its way.
            self._run("dead-letters", "retry", "--all", "--json")
            if (left := self._unfinished()) is not None:
                arguments = ("--resume", str(left))
            time.sleep(1.0)
        raise AssertionError(f"it did not end: {said}")

    def _unfinished(self) -> int | None:
        code, said = self._run("status", "--json")
        if code != 0:
            return None
        replays = json.loads(said)["replays"]
        return max((one["replay_id"] for one in replays), default=None)

    def _prune(self) -> None:
        """Take away what served before the last one that did: each one fed multiplies the work of models."""
        code, said = self._run("generations", "list", "--json")
        if code != 0:
            return
        served = [one for one in json.loads(said)["generations"] if one["state"] == "feeding"]
        served = sorted((one for one in served if one["served_until"]), key=itemgetter("served_until"))
        for one in served[:-1]:
            if one["pipeline"] == served[-1]["pipeline"]:
                self._run("generations", "prune", str(one["generation"]), "--json")

    def _verify(self) -> None:
        while not self.harm.stack.ending.is_set():
            _code, said = self._run("verify", "--json")
            if said.startswith("{"):
                found = [one["sentence"] for one in json.loads(said)["violations"]]
                assert not found, f"verify after it: {found[:5]}"
                return
            time.sleep(1.0)

    def _run(self, *command: str) -> tuple[int, str]:
        done = self.harm.stack.run(*command, seconds=2 * REPLAY_SECONDS)
        return done.returncode, done.stdout or done.stderr


FAULTS: Mapping[Kind, Fault] = {
    **SERVER_FAULTS,
    "facts edited": facts_edited,
    "session reset": session_reset,
    "poison turn": poison_turn,
    "replay in place": replayed_in_place,
    "replay anew": replayed_anew,
    "release changed": release_changed,
}
