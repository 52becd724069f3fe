"""Instructions of a user ("forget my address"): applied as edits, on the owner's merge lane.

A model reads an instruction with the known facts, and names the changes.  Each is recorded as an edit with
the actor ``instruction``: a deletion is a tombstone, and every derivation has it. So only the derivation that
serves the owner applies an instruction, once; others wait until it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from uuid import UUID

from strandline.pipelines.audit.appending import Act, append_owners_act
from strandline.pipelines.engine.stage import Batch, Call, RawAnswer
from strandline.pipelines.facts.decisions import are_related
from strandline.pipelines.facts.kinds import kinds_of
from strandline.pipelines.facts.recording import (
    add_fact,
    delete_fact,
    edit_facts,
    lock_registered,
    replace_fact,
)
from strandline.pipelines.facts.statements import adds_to, is_negated, names_in, telling_words
from strandline.pipelines.models.answers import InstructedChange, ask, parse_instruct
from strandline.pipelines.models.contract import InstructTask, NumberedFact, TextModel
from strandline.pipelines.text.common_words import command_words, is_foreign
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.pipelines.transcript import load_messages
from strandline.schemas.errors import TransientModelError
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.read import ServingGeneration
from strandline.schemas.queries.derived.capture import EventsLeft, IsCarriedOut, NewestFacts, NewestFactsRow
from strandline.schemas.queries.derived.facts_edit import FactsAsTheyAre
from strandline.schemas.values.acts.acting import WORKER
from strandline.schemas.values.acts.capture import Capture
from strandline.schemas.values.lanes import FACTS
from strandline.schemas.values.normal_form import folded

# The facts that one call is shown: the newest ones.
MAX_SHOWN_FACTS = 400
ACTOR = "instruction"
_WAIT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, with the facts shown to the model."""

    event_id: UUID
    text: str
    facts: tuple[NewestFactsRow, ...]

    @property
    def step(self) -> str:
        """The call's name, a digest of its inputs."""
        shown = blake2b(b"".join(fact.fingerprint for fact in self.facts), digest_size=8)
        return f"instruct-{self.event_id}-{shown.hexdigest()}"


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """The changes that one instruction asks for; ``refused`` counts deletions that it does not ask for."""

    instruction: Instruction
    changes: tuple[InstructedChange, ...]
    refused: int = 0


def load_instructions(fetcher: Fetcher, batch: Batch) -> tuple[Instruction, ...]:
    """The instructions of a batch that are still to be carried out.

    Raises:
        TransientModelError: another derivation serves the owner, and has not carried one out yet.
    """
    asked = {event.event_id for event in batch.events if event.cause == "instruction"}
    if not asked:
        return ()
    keys = batch.lane.derivation_keys
    shard_key = keys["shard_key"]
    serving = fetcher.fetch(ServingGeneration(shard_key=shard_key, pipeline=FACTS))
    if [row.generation_id for row in serving] != [keys["generation_id"]]:
        (left,) = fetcher.fetch(EventsLeft(shard_key=shard_key, event_ids=sorted(asked)))
        if left.events:
            raise TransientModelError(
                "An instruction waits until the derivation that serves its user has carried it out.",
                retry_after_seconds=_WAIT_SECONDS,
            )
        return ()
    facts = tuple(fetcher.fetch(NewestFacts(**keys, limit=MAX_SHOWN_FACTS)))
    return tuple(
        Instruction(event.event_id, "\n".join(message.text for message in messages), facts)
        for event, messages in load_messages(fetcher, batch)
        if event.event_id in asked
        and not fetcher.fetch(IsCarriedOut(shard_key=shard_key, event_id=event.event_id))[0].is_over
    )


def instruction_call(model: TextModel, instruction: Instruction) -> Call:
    numbered = tuple(NumberedFact(n, fact.text, fact.said_at) for n, fact in enumerate(instruction.facts, 1))
    return Call(instruction.step, lambda: ask(model, InstructTask(instruction.text, numbered)))


def read_changes(instruction: Instruction, answer: RawAnswer, capture: Capture) -> CarriedOut:
    """The changes of an answer, without switched-off ones, and without deletions that it does not ask for.

    Where a change says more than the instruction and the facts, or denies what neither does, the
    instruction's own words are added.  Of a fact of assistants alone only the change of that fact has words.
    """
    changes = parse_instruct(answer.body.decode(), len(instruction.facts))
    of_users = (fact.text for fact in instruction.facts if not fact.is_by_assistants)
    parts = [instruction.text, "user", *of_users]
    foreign = adds_to("\n".join(change.text or "" for change in changes), parts)
    meant_facts = _meant_facts(instruction)
    own = InstructedChange("add", None, instruction.text)
    checked = (
        own
        if (foreign.intersection(query_lexemes(c.text or "")) and _says_more(c, instruction, parts))
        or _is_unfit(c, instruction, meant_facts)
        else c
        for c in changes
        if c.op != "delete" or c.fact in meant_facts
    )
    refused = sum(c.op == "delete" and c.fact not in meant_facts for c in changes)
    off = {"add": capture.is_add_off, "update": capture.is_update_off, "delete": capture.is_delete_off}
    kept = tuple(change for change in dict.fromkeys(checked) if not off[change.op])
    return CarriedOut(instruction, kept, refused)


def _meant_facts(instruction: Instruction) -> set[int]:
    """The numbers of the facts that an instruction can concern; all of them if it names nothing."""
    facts = dict(enumerate((fact.text for fact in instruction.facts), 1))
    asked = " ".join(word for word in instruction.text.split() if folded(word) not in command_words())
    if not telling_words(asked) and not kinds_of(asked):
        return set(facts)
    meant_facts = {number: text for number, text in facts.items() if are_related(asked, text)}
    # "My ex" is Tom by one fact, and Tom is in others.
    people = {name for text in meant_facts.values() for name in names_in(text)}
    return meant_facts.keys() | {n for n, text in facts.items() if people & names_in(text)}


def _says_more(change: InstructedChange, instruction: Instruction, parts: Sequence[str]) -> bool:
    own = [] if change.fact is None else [instruction.facts[change.fact - 1].text]
    return bool(adds_to(change.text or "", [*parts, *own]))


def _is_unfit(change: InstructedChange, instruction: Instruction, meant_facts: set[int]) -> bool:
    if change.text is None:
        return False
    parts = [instruction.text]
    if change.fact is not None:
        parts.append(instruction.facts[change.fact - 1].text)
        if change.fact not in meant_facts:
            return True
    return is_foreign(change.text, parts) or is_negated(change.text) not in map(is_negated, parts)


def carry_out(database: Database, shard_key: UUID, work: Sequence[CarriedOut]) -> None:
    """Record and apply the changes of each instruction, in a transaction each; a fact changed since stays."""
    for one in work:
        if one.changes:
            database.run(edit_facts(shard_key, partial(_change, shard_key, one)))


def _change(shard_key: UUID, work: CarriedOut) -> Operation[None]:
    facts = yield from lock_registered(shard_key)
    event_id = work.instruction.event_id
    (done,) = yield from fetch(IsCarriedOut(shard_key=shard_key, event_id=event_id))
    if done.is_over:
        return
    shown = [fact.fact_id for fact in work.instruction.facts]
    rows = yield from fetch(FactsAsTheyAre(**facts.serving.keys, fact_ids=shown))
    present = {row.fact_id: row.fingerprint for row in rows}
    changed = 0
    for change in work.changes:
        fact = None if change.fact is None else work.instruction.facts[change.fact - 1]
        if fact is not None and fact.fingerprint != present.get(fact.fact_id):
            continue
        changed += 1
        if fact is None:
            yield from add_fact(shard_key, {"text": change.text}, ACTOR, instruction=event_id)
        elif change.op == "delete":
            yield from delete_fact(shard_key, fact.fact_id, ACTOR, instruction=event_id)
        else:
            yield from replace_fact(
                shard_key, fact.fact_id, {"text": change.text}, ACTOR, instruction=event_id
            )
    if changed:
        yield from append_owners_act(shard_key, Act.here("facts.obey", actor=WORKER, count=changed))
