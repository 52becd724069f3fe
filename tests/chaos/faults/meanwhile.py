"""Faults that are none: edits, resets, huge turns and replays, which must get along with all the others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import itemgetter

from tests.chaos.children import run_command
from tests.chaos.faults.faults import (
    BEHAVIOURS,
    CONSUMING,
    POSTGRES,
    PROVIDER_DOWN,
    SERVER_FAULTS,
    Fault,
    Harm,
)
from tests.chaos.faults.owner_faults import DERIVED_WITHIN_SECONDS, Conversation, huge_turn, repeated
from tests.chaos.plan import Kind

REPLAY_SECONDS = 900.0
# What replays in place go back by: all of the log, they would outlast the plan of a long campaign.
REPLAYED_SECONDS = 120.0
PIPELINES = ("facts", "summary", "vectors")


@dataclass
class OwnerFault:
    """A disturbance in a separate session of one of a few owners."""

    harm: Harm

    def conversation(self, name: str) -> Conversation:
        planned = self.harm.planned
        session = f"{name}-{planned.number}"
        return Conversation(self.harm.stack.postgres.url, session, f"owner-{planned.slot}")

    def say(self, conversation: Conversation) -> None:
        """Have its user say his lines, and note what was acknowledged."""
        messages = [{"role": "user", "content": line} for line in conversation.lines()]
        self.harm.stack.book.note_put(conversation.put(messages))

    def await_facts(self, conversation: Conversation) -> set[str]:
        """The facts of what was said, once they are there, or those that are when the time is over."""
        said = set(conversation.lines())
        deadline = time.monotonic() + DERIVED_WITHIN_SECONDS
        while (found := conversation.live_texts() & said) < said and time.monotonic() < deadline:
            if self.harm.stack.ending.wait(0.5):
                break
        return found


class FactsEdited(OwnerFault):
    """A person deletes half of the facts that were derived, and adds one and takes it away again."""

    def inject(self) -> None:
        conversation = self.conversation("edited")
        ended: list[float] = []
        self.harm.recovery(done=lambda _connection: bool(ended), needs=(*CONSUMING, *PROVIDER_DOWN))
        self.say(conversation)
        for text in sorted(self.await_facts(conversation))[::2]:
            self._delete(conversation, text)
        added = f"A person says this of {conversation.session}."
        repeated(lambda: conversation.facts.add(added))
        self._delete(conversation, added)
        ended.append(time.monotonic())

    def _delete(self, conversation: Conversation, text: str) -> None:
        self.harm.stack.book.note_deleted(f"owner-{self.harm.planned.slot}", text)
        found = repeated(lambda: conversation.facts.list(limit=100, contains=text))
        for fact in found:
            repeated(partial(conversation.facts.delete, fact.fact_id))

    def heal(self) -> None:
        """It stays so."""


class SessionReset(OwnerFault):
    """A session is said and delivered, and then reset with what was derived from it, however far that is."""

    def inject(self) -> None:
        self._conversation = self.conversation("reset")
        self._ended: list[float] = []
        self.harm.recovery(done=lambda _connection: bool(self._ended), needs=(POSTGRES,))
        self.say(self._conversation)

    def heal(self) -> None:
        repeated(lambda: self._conversation.memory.reset(derived=True))
        texts = self._conversation.lines()
        self.harm.stack.book.note_reset(f"owner-{self.harm.planned.slot}", self._conversation.session, texts)
        self._ended.append(time.monotonic())


@dataclass
class PoisonTurn:
    """One turn with nearly four megabytes of different words."""

    harm: Harm

    def inject(self) -> None:
        stack = self.harm.stack
        conversation = Conversation(stack.postgres.url, f"poison-{self.harm.planned.number}", None)
        stack.book.note_put(conversation.put(list(huge_turn())))
        self.harm.recovery(done=conversation.is_derived, needs=(*CONSUMING, *BEHAVIOURS))

    def heal(self) -> None:
        """It is worked off."""


@dataclass
class Replayed:
    """A replay beside the load; it is resumed when Postgres ends it, and verify has to be clean after it."""

    harm: Harm
    arguments: tuple[str, ...] = ()
    recent: bool = False

    def inject(self) -> None:
        ended: list[float] = []
        self.harm.recovery(done=lambda _connection: bool(ended), needs=(*CONSUMING, *PROVIDER_DOWN))
        deadline = time.monotonic() + REPLAY_SECONDS
        arguments = self.arguments
        if self.recent:
            since = datetime.now(UTC) - timedelta(seconds=REPLAYED_SECONDS)
            arguments += ("--since", f"{since:%Y-%m-%dT%H:%M:%S}")
        while time.monotonic() < deadline and not self.harm.stack.ending.is_set():
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

    def heal(self) -> None:
        """It has ended."""

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
        stack = self.harm.stack
        done = run_command(stack.popen, command, stack.at_work, 2 * REPLAY_SECONDS)
        return done.returncode, done.stdout or done.stderr


def replayed_in_place(harm: Harm) -> Replayed:
    """Of one pipeline after the other, and of what was flushed lately."""
    return Replayed(harm, ("--pipeline", PIPELINES[harm.planned.number % len(PIPELINES)]), recent=True)


def replayed_anew(harm: Harm) -> Replayed:
    return Replayed(harm, ("--new", "--force", "--pipeline", "facts"))


FAULTS: Mapping[Kind, Callable[[Harm], Fault]] = {
    **SERVER_FAULTS,
    "facts edited": FactsEdited,
    "session reset": SessionReset,
    "poison turn": PoisonTurn,
    "replay in place": replayed_in_place,
    "replay anew": replayed_anew,
}
