"""Condensing: if an owner has too many facts, related facts become one.

A model proposes this, on the owner's merge lane, together with the merge of the next batch.  Nothing is lost
by accident: an answer must account for every fact shown, as kept or as merged into a named one; a merged
sentence must be made of its parts, as ``decisions`` checks; and facts that people worded or judged are not
touched.  Other answers are refused, and the facts stay.  The parts stay on record, and the sentence has the
provenance of all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal
from uuid import UUID, uuid5

from strandline.pipelines.engine.stage import Batch, Call, RawAnswer
from strandline.pipelines.facts.decisions import is_made_of
from strandline.pipelines.facts.kinds import fact_lexemes
from strandline.pipelines.models.answers import CondensedFact, ask, parse_condense
from strandline.pipelines.models.contract import CondenseTask, NumberedFact, TextModel
from strandline.schemas.errors import PermanentModelError
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.derived import facts_merge as queries
from strandline.schemas.queries.derived.facts_edit import LiveFactLike
from strandline.schemas.queries.derived.facts_merge import (
    AddCondensed,
    CondensableFacts,
    CondensableFactsRow,
    EndCondensed,
    RecordCondensation,
)
from strandline.schemas.values.lanes import DerivationKeys
from strandline.schemas.values.normal_form import fingerprint

# Shown to one call: the facts most similar to another.
MAX_SHOWN_FACTS = 100
MAX_LOADED_FACTS = 2_000
Outcome = Literal["applied", "unchanged", "refused"]


@dataclass(frozen=True, slots=True)
class Condensing:
    """Facts to condense; the owner has ``live`` in all, and should have at most ``max_facts``."""

    facts: tuple[CondensableFactsRow, ...]
    live: int
    max_facts: int

    @property
    def step(self) -> str:
        """The call's name, a digest of the facts shown."""
        shown = blake2b(b"".join(fact.fingerprint for fact in self.facts), digest_size=8)
        return f"condense-{shown.hexdigest()}"


def plan_condensing(
    fetcher: Fetcher, keys: DerivationKeys, batch: Batch, most_facts: int
) -> Condensing | None:
    """Choose the facts to condense, if it is time: above the limit, and well above the number that the last
    attempt left.

    So facts that cannot be condensed any further cost a call once in half the limit of new ones, not with
    each merge.  If one batch covers sessions with different ``max_facts``, the smallest applies: each session
    gets its own when it has said something new, the same batch always gets the same, and a silent session has
    no influence.  It is ``most_facts`` at most (0: never condense).
    """
    if most_facts < 1:
        return None
    sessions = list({event.session_key for event in batch.events})
    (standing,) = fetcher.fetch(queries.Condensing(**keys, session_keys=sessions))
    max_facts = most_facts if standing.max_facts is None else min(standing.max_facts, most_facts)
    left = standing.left_by_last
    enough = max(max_facts, left + max_facts // 2) if left else max_facts
    if standing.live <= enough:
        return None
    facts = most_alike(_condensable(fetcher, keys))
    return Condensing(tuple(facts), standing.live, max_facts) if len(facts) > 1 else None


def condense_call(model: TextModel, condensing: Condensing) -> Call:
    """The model call; an unusable answer counts as none, because the merge in the same batch must
    continue.
    """

    def make() -> RawAnswer:
        numbered = (NumberedFact(n, fact.text, fact.said_at) for n, fact in enumerate(condensing.facts, 1))
        try:
            return ask(model, CondenseTask(tuple(numbered), condensing.max_facts))
        except PermanentModelError:
            return RawAnswer(model.model, "", b"")

    return Call(condensing.step, make)


def condense(
    fetcher: Fetcher, keys: DerivationKeys, batch_id: UUID, condensing: Condensing, answer: RawAnswer
) -> None:
    """Apply the valid parts of an answer, and record the outcome; runs under the lane's lock."""
    try:
        proposed = parse_condense(answer.body.decode(), len(condensing.facts))
    except PermanentModelError as error:
        _record(fetcher, keys, batch_id, condensing, "refused", str(error)[:2000])
        return
    untouched = {fact.fact_id: fact.fingerprint for fact in _condensable(fetcher, keys)}
    applied = 0
    for place, merged in enumerate(proposed, 1):
        parts = [condensing.facts[number - 1] for number in merged.facts]
        unchanged = all(untouched.get(part.fact_id) == part.fingerprint for part in parts)
        if unchanged and may_condense(merged.text, parts):
            fact_id = uuid5(batch_id, f"condense-{place}")
            part_ids, answered = [part.fact_id for part in parts], (answer.model, answer.prompt_hash)
            applied += fetcher.run(put_in_place(keys, fact_id, batch_id, merged, part_ids, answered))
    outcome: Outcome = "applied" if applied else "refused" if proposed else "unchanged"
    refused = len(proposed) - applied
    reason = (
        f"{refused} of {len(proposed)} merged facts omitted or added something, or their parts had"
        " changed or were of users and of assistants."
    )
    _record(fetcher, keys, batch_id, condensing, outcome, reason if refused else None)


def may_condense(text: str, parts: Sequence[CondensableFactsRow]) -> bool:
    """Whether ``text`` is made of its parts, and these are all of users or all of assistants alone."""
    return len({part.is_by_assistants for part in parts}) == 1 and is_made_of(text, [p.text for p in parts])


def _condensable(fetcher: Fetcher, keys: DerivationKeys) -> list[CondensableFactsRow]:
    return fetcher.fetch(CondensableFacts(**keys, limit=MAX_LOADED_FACTS))


def most_alike(facts: Sequence[CondensableFactsRow]) -> list[CondensableFactsRow]:
    """The facts that share most of their lexemes with another fact, in the order in which they were said."""
    if len(facts) <= MAX_SHOWN_FACTS:
        return list(facts)
    holders: dict[str, list[int]] = {}
    for place, fact in enumerate(facts):
        for lexeme in fact.lexemes:
            holders.setdefault(lexeme, []).append(place)
    # A word of every second fact says nothing about which belong together.
    telling = {lexeme: places for lexeme, places in holders.items() if len(places) <= len(facts) // 2}
    nearness = [_nearness(place, fact, telling) for place, fact in enumerate(facts)]
    nearest = sorted(range(len(facts)), key=lambda place: -nearness[place])[:MAX_SHOWN_FACTS]
    return [facts[place] for place in sorted(nearest)]


def _nearness(place: int, fact: CondensableFactsRow, holders: Mapping[str, Sequence[int]]) -> float:
    shared = Counter(other for lexeme in fact.lexemes for other in holders.get(lexeme, ()) if other != place)
    return max(shared.values(), default=0) / max(1, len(fact.lexemes))


def put_in_place(
    keys: DerivationKeys,
    fact_id: UUID,
    batch_id: UUID,
    sentence: CondensedFact,
    parts: Sequence[UUID],
    answered: tuple[str, str],
) -> Operation[bool]:
    """Put a sentence in the place of its parts; False if another fact has its words.

    ``answered``: the model and the hash of its prompt.
    """
    words, part_ids = fingerprint(sentence.text), list(parts)
    like = yield from fetch(LiveFactLike(**keys, fingerprint=words))
    if {row.fact_id for row in like} - set(part_ids):
        return False
    model, prompt_hash = answered
    yield from fetch(EndCondensed(**keys, fact_id=fact_id, parts=part_ids))
    yield from fetch(
        AddCondensed(
            **keys,
            fact_id=fact_id,
            parts=part_ids,
            text=sentence.text,
            fingerprint=words,
            lexemes=fact_lexemes(sentence.text),
            topics=list(sentence.topics),
            batch_id=batch_id,
            model=model,
            prompt_hash=prompt_hash,
        )
    )
    return True


def _record(
    fetcher: Fetcher,
    keys: DerivationKeys,
    batch_id: UUID,
    condensing: Condensing,
    outcome: Outcome,
    reason: str | None,
) -> None:
    (standing,) = fetcher.fetch(queries.Condensing(**keys, session_keys=[]))
    fetcher.fetch(
        RecordCondensation(
            **keys,
            facts_before=condensing.live,
            facts_after=standing.live,
            batch_id=batch_id,
            outcome=outcome,
            reason=reason,
        )
    )
