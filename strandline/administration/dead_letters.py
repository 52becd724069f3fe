"""Dead letters, retried and given up by a person: the outcome of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from strandline.pipelines.engine.dead_letters import DeadLetter, drop_dead_letter, retry_dead_letter
from strandline.schemas.postgres.database import Database
from strandline.schemas.values.lanes import Lane

Outcome = Literal["due", "void", "gone", "retired", "dropped"]
Ring = Callable[[Sequence[Lane]], object]


@dataclass(frozen=True, slots=True)
class LetterDone:
    """The outcome for one letter; ``refolded`` counts the other events that are folded again with it."""

    letter: DeadLetter
    outcome: Outcome
    refolded: int = 0

    @property
    def stage(self) -> str:
        """The stage that gave up on the event."""
        return self.letter.stage


def retry_letters(database: Database, letters: Iterable[DeadLetter], ring: Ring) -> list[LetterDone]:
    """Make events due again; ``ring`` gets the lanes that have work now."""
    done = []
    for letter in letters:
        retry = retry_dead_letter(database, letter)
        done.append(LetterDone(letter, retry.outcome, retry.refolded))
    if due := [one.letter.lane for one in done if one.outcome == "due"]:
        ring(due)
    return done


def drop_letters(database: Database, letters: Iterable[DeadLetter]) -> list[LetterDone]:
    """Give events up for good; their messages stay in the log, and reads no longer wait for them."""
    return [
        LetterDone(letter, "dropped" if drop_dead_letter(database, letter) else "gone") for letter in letters
    ]
