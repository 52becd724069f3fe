"""The capture of facts of a namespace or an owner: an operator's choice, stored as numbered acts.

An act never changes, and is the whole choice of its namespace or owner.  Options left open come from the
owner's act, then the namespace's, then the derivation's prompt.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.foreign_values import plain_text
from strandline.schemas.values.stored_text import check_text

MAX_INSTRUCTIONS_CHARACTERS = 8_000


@dataclass(frozen=True, slots=True)
class Capture:
    """The capture of facts; None leaves an option to the level above.

    Attributes:
        may_add: whether workers may make new facts; default: yes.
        may_update: whether they may reword facts; default: yes.
        may_delete: whether they may end facts that are true no longer; default: yes.
        instructions: what to keep, in place of the prompt's, at most 8,000 characters.
        summary_instructions: how to write summaries, in place of the prompt's, of the same length.
        more_instructions: instructions added to these, of the same length; the namespace's come first.
    """

    may_add: bool | None = None
    may_update: bool | None = None
    may_delete: bool | None = None
    instructions: str | None = None
    more_instructions: str | None = None
    summary_instructions: str | None = None

    def check(self) -> Capture:
        """The same, with texts as they are stored.

        Raises:
            InvalidMessageError: naming the field that cannot be used.
        """
        for name in ("may_add", "may_update", "may_delete"):
            if not isinstance(getattr(self, name), bool | None):
                raise InvalidMessageError(name, "must be True, False, or None for the level above")
        return Capture(
            self.may_add,
            self.may_update,
            self.may_delete,
            _checked_text("instructions", self.instructions),
            _checked_text("more_instructions", self.more_instructions),
            _checked_text("summary_instructions", self.summary_instructions),
        )

    def within(self, above: Capture) -> Capture:
        """This choice with its open options from the level above, whose further instructions come first."""
        more = [text for text in (above.more_instructions, self.more_instructions) if text]
        return Capture(
            _first(self.may_add, above.may_add),
            _first(self.may_update, above.may_update),
            _first(self.may_delete, above.may_delete),
            _first(self.instructions, above.instructions),
            "\n\n".join(more) or None,
            _first(self.summary_instructions, above.summary_instructions),
        )

    @property
    def is_add_off(self) -> bool:
        return self.may_add is False

    @property
    def is_update_off(self) -> bool:
        return self.may_update is False

    @property
    def is_delete_off(self) -> bool:
        return self.may_delete is False

    def to_json(self) -> str:
        """The form in which an act stores it; equal choices have equal texts."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})

    @classmethod
    def from_json(cls, stored: str) -> Capture:
        """Read an act; fields of a newer release are left out."""
        values: dict[str, Any] = json.loads(stored)
        return cls(**{field.name: values.get(field.name) for field in fields(cls)})


def _first(mine: Any, above: Any) -> Any:
    return above if mine is None else mine


def _checked_text(field: str, value: object) -> str | None:
    if value is None:
        return None
    check_text(field, value)
    text = plain_text(str(value)).strip()
    if not text:
        raise InvalidMessageError(field, "is empty; give a sentence, or None to leave it to the level above")
    if len(text) > MAX_INSTRUCTIONS_CHARACTERS:
        raise InvalidMessageError(
            field, f"is longer than {MAX_INSTRUCTIONS_CHARACTERS:,} characters; make it shorter"
        )
    return text
