"""The compliance hook: code of the application that flags or refuses acts before they are carried out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Literal

from strandline.pipelines.own_code.bounded_calls import BoundedCalls, NoPlaceError, TimeLimitError
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ActRefusedError, StrandlineError
from strandline.schemas.values.acts.kinds import MAX_FLAG_BYTES, MAX_FLAGS
from strandline.schemas.values.message import Message
from strandline.schemas.values.stored_text import check_text

logger = logging.getLogger("strandline.producers")

OnFailure = Literal["refuse", "allow"]
# Calls that never come back are left to themselves; so many of them at most.
MAX_CALLS_AT_ONCE = 64

_calls = BoundedCalls(MAX_CALLS_AT_ONCE)


@dataclass(frozen=True, slots=True)
class AttemptedAct:
    """An act before its execution, as a compliance hook sees it.

    Attributes:
        kind: such as ``put``, ``replace`` or ``facts.add`` (docs/architecture/audit.md).
        namespace: the tenant.
        user_id: the user concerned, or None.
        session_id: the session concerned; None if it is about the user or the namespace.
        actor, origin: who acts, and from where (``strandline.acting``).
        messages: to be stored; empty for other acts.
        text: of an edit of facts, the words that are to be stored.
    """

    kind: str
    namespace: str
    user_id: str | None
    session_id: str | None
    actor: str | None
    origin: str | None
    messages: tuple[Message, ...] = ()
    text: str | None = None


ComplianceHook = Callable[[AttemptedAct], Iterable[str] | None]
"""Returns flags for the act (or None), or raises ``ActRefusedError`` with a reason to refuse it."""


@dataclass(frozen=True, slots=True)
class Compliance:
    """A compliance hook, the longest time of one call, and the fate of an act if it fails."""

    hook: ComplianceHook
    place: str
    seconds: float
    on_failure: OnFailure

    def flags_of(self, act: AttemptedAct) -> tuple[str, ...]:
        """The flags that the hook gives to an act.

        Raises:
            ActRefusedError: the hook refuses it; or it failed, and its acts are then refused.
        """
        try:
            return _calls.within(self.seconds, partial(_ask, self.hook, act))
        except ActRefusedError as refusal:
            raise ActRefusedError(
                f"{act.kind} was refused: {refusal} Nothing was stored or changed."
            ) from None
        except TimeLimitError:
            problem = f"did not answer within {self.seconds:g} seconds"
        except NoPlaceError:
            problem = f"was not asked: {MAX_CALLS_AT_ONCE} calls of it have not come back"
        except Exception as error:  # noqa: BLE001  # the edge to foreign code, whose words may quote anything
            problem = f"raised {type(error).__name__}"
        return self._go_without(act, problem)

    def _go_without(self, act: AttemptedAct, problem: str) -> tuple[str, ...]:
        logger.error(
            "compliance hook failed",
            extra={"action": "compliance_failed", "hook": self.place, "act": act.kind, "reason": problem},
        )
        if self.on_failure == "allow":
            return ("unchecked",)
        raise ActRefusedError(
            f"{act.kind} was refused, since the compliance hook {self.place} {problem}; nothing was stored or"
            " changed. Mend the hook, or set STRANDLINE_COMPLIANCE_FAILURE=allow to do without it."
        )


def _ask(hook: ComplianceHook, act: AttemptedAct) -> tuple[str, ...]:
    answer = hook(act)
    if answer is None:
        return ()
    if isinstance(answer, (str, bytes)):
        raise TypeError
    flags = tuple(dict.fromkeys(islice(answer, MAX_FLAGS + 1)))
    if len(flags) > MAX_FLAGS:
        raise ValueError
    return tuple(map(_checked_flag, flags))


def _checked_flag(flag: object) -> str:
    if type(flag) is not str or not 0 < len(flag.encode("utf-8", "replace")) <= MAX_FLAG_BYTES:
        raise TypeError
    try:
        check_text("flag", flag)
    except StrandlineError as error:
        raise ValueError(quote(flag)) from error
    return flag
