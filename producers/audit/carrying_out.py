"""Performs acts: asks the compliance hook first, and appends each act to the audit trail."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from strandline.pipelines.audit.appending import Act, append_act
from strandline.producers.audit.compliance import AttemptedAct, Compliance
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.operations import Atomic, Operation, Run, fetch
from strandline.schemas.queries.audit.audit import LevelOfNamespace
from strandline.schemas.values.identity import Owner, SessionIdentity
from strandline.schemas.values.message import Message

logger = logging.getLogger("strandline.producers")

T = TypeVar("T")


def is_done(act: Act, result: object) -> Act | None:
    """The act, unless the change found nothing to change: it has given None or False."""
    return None if result is None or result is False else act


@dataclass(frozen=True, slots=True)
class Recorder:
    """Performs acts of one session, owner or namespace, with the compliance hook and the trail."""

    whom: SessionIdentity | Owner | str
    compliance: Compliance | None
    levels: KnownLevels

    def check(self, act: Act, *, messages: Sequence[Message] = (), text: str | None = None) -> Operation[Act]:
        """The act with the flags of the compliance hook.

        Raises:
            ActRefusedError: the hook refuses it.
        """
        if self.compliance is None:
            return act
        attempted = self._describe_attempt(act, tuple(messages), text)
        flags: tuple[str, ...] = yield Run(partial(self.compliance.flags_of, attempted))
        return replace(act, flags=flags)

    def carry_out(
        self, act: Act, make: Callable[[Act], Operation[T]], *, messages: Sequence[Message] = ()
    ) -> Operation[T]:
        """Carry out an act whose operation appends it to the trail itself, unless the hook refuses it."""
        checked = yield from self.check(act, messages=messages)
        return (yield from make(checked))

    def change(
        self,
        act: Act,
        make: Callable[[], Operation[T]],
        describe: Callable[[Act, T], Act | None] = lambda act, _result: act,
        *,
        messages: Sequence[Message] = (),
        text: str | None = None,
    ) -> Operation[T]:
        """Perform an act and append it in one transaction.

        Args:
            make: makes the operation; once for each attempt.
            describe: the act's record, by its result; None: nothing was done.

        Raises:
            ActRefusedError: the compliance hook refuses it.
        """
        checked = yield from self.check(act, messages=messages, text=text)
        changed: T = yield Atomic(partial(self._change_once, checked, make, describe))
        return changed

    def _change_once(
        self, act: Act, make: Callable[[], Operation[T]], describe: Callable[[Act, T], Act | None]
    ) -> Operation[T]:
        result = yield from make()
        if (described := describe(act, result)) is not None:
            yield from append_act(self.whom, described)
        return result

    def read(
        self,
        act: Act,
        operation: Operation[T],
        describe: Callable[[Act, T], Act] = lambda act, _result: act,
        *,
        in_callers_transaction: bool = False,
    ) -> Operation[T]:
        """Perform a read, and append it to the trail where reads are recorded, before giving its result.

        The commit of the row does not wait for the disk.  A failing row does not fail the read, except in the
        caller's transaction, which Postgres has ended.

        Raises:
            ActRefusedError: the compliance hook refuses it.
        """
        checked = yield from self.check(act)
        result = yield from operation
        try:
            if checked.flags or (yield from self.records_reads()):
                yield from append_act(self.whom, describe(checked, result), lazily=not in_callers_transaction)
        except StrandlineError as error:
            if in_callers_transaction:
                raise
            logger.error(
                "read was not recorded in the audit trail",
                extra={"action": "audit_read_lost", "act": act.kind, "reason": str(error)},
            )
        return result

    def record_read(
        self, kind: str, operation: Operation[T], *, in_callers_transaction: bool = False
    ) -> Operation[T]:
        """As ``read``; of a list, the number of its elements is recorded."""
        return self.read(
            Act.here(kind), operation, _count_results, in_callers_transaction=in_callers_transaction
        )

    def records_reads(self) -> Operation[bool]:
        """Whether reads are recorded, as of at most five seconds ago."""
        namespace = self.whom if isinstance(self.whom, str) else self.whom.namespace
        return self.levels.records_reads(namespace)

    def _describe_attempt(self, act: Act, messages: tuple[Message, ...], text: str | None) -> AttemptedAct:
        whom = self.whom
        return AttemptedAct(
            kind=act.kind,
            namespace=whom if isinstance(whom, str) else whom.namespace,
            user_id=None if isinstance(whom, str) else whom.user_id,
            session_id=whom.session_id if isinstance(whom, SessionIdentity) else None,
            actor=act.actor,
            origin=act.origin,
            messages=messages,
            text=text,
        )


def _count_results(act: Act, result: object) -> Act:
    return replace(act, count=len(result)) if isinstance(result, Sequence) else act


# For so long a change of level may go unnoticed by the reads of a process.
FRESH_SECONDS = 5.0
# More namespaces than this are forgotten together, and asked for again.
MAX_NAMESPACES = 4_096


class KnownLevels:
    """The levels of namespaces that this process has read in; safe to share between threads and tasks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, tuple[bool, float]] = {}

    def records_reads(self, namespace: str) -> Operation[bool]:
        """Whether reads of a namespace are recorded, as of at most five seconds ago."""
        known = self._known.get(namespace)
        if known is not None and self._clock() - known[1] < FRESH_SECONDS:
            return known[0]
        asked_at = self._clock()
        (row,) = yield from fetch(LevelOfNamespace(namespace=namespace))
        if len(self._known) >= MAX_NAMESPACES:
            self._known.clear()
        self._known[namespace] = (row.level == "all", asked_at)
        return row.level == "all"
