"""The erasures of a namespace, for its operators: erase, export, readmit, and the receipts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.upkeep.erasure.receipt import ErasureReceipt, Signer, Verifier
from strandline.pipelines.upkeep.erasure.records import (
    MAX_LISTED,
    ErasureRecord,
    ErasureSummary,
    list_erasures,
    readmit,
    show_erasure,
)
from strandline.pipelines.upkeep.erasure.steps import ErasureOrder, ItemRange, OnProgress
from strandline.pipelines.upkeep.erasure.target import ErasureTarget, session_target, user_target
from strandline.producers.arguments import check_count
from strandline.producers.erasing.beside import Beside, OpenArchive, Outside
from strandline.producers.erasing.erase import (
    PlannedErasure,
    Reapplied,
    ReceiptVerdict,
    erase,
    erased_rows,
    plan_erasure,
    reapply,
    refuse_forged,
    verify_receipt,
)
from strandline.producers.execution import Closing, OperationRunner, Resources, methods
from strandline.producers.exports.export import aexport_lines, export_lines
from strandline.producers.exports.pages import ExportTarget
from strandline.producers.items.requests import range_below
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.deadlines import MAINTENANCE_SECONDS
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.queries.upkeep.erasing import VacuumErased
from strandline.schemas.values.identity import check_name, check_user_id

# In the place of the target, which each receipt names.
_EACH = ErasureTarget("user", "", UUID(int=0), UUID(int=0))


def _silent(_step: str, _table: str, _rows: int) -> None:
    """Told of the progress of an erasure where the caller does not ask for it."""


@dataclass(frozen=True, slots=True)
class ReappliedReceipt:
    """A receipt, and what became of it."""

    receipt: ErasureReceipt
    outcome: Reapplied


@dataclass(frozen=True, slots=True)
class Erasing:
    """The erasures of a namespace: their operations, and the key that signs receipts."""

    namespace: str
    signer: Signer | None
    beside: Beside

    def plan_user(self, user_id: str) -> Operation[PlannedErasure]:
        """Count what ``erase_user`` would delete now, by table; changes nothing."""
        return plan_erasure(self.user(user_id))

    def plan_session(self, session_id: str) -> Operation[PlannedErasure]:
        """Count what ``erase_session`` would delete now, by table; changes nothing."""
        return (yield from plan_erasure((yield from self.session(session_id))))

    def erase_user(
        self,
        user_id: str,
        *,
        actor: str | None = None,
        items_below: Iterable[Sequence[str]] = (),
        on_progress: OnProgress = _silent,
    ) -> Operation[ErasureReceipt]:
        """Erase a user: every session, message, fact, summary, vector, answer and name, in all derivations.

        An unknown user is fenced as well, against later writes.  For an erased user, the earlier receipt is
        returned.

        Args:
            actor: the name of the person who asks for it, kept with the record.
            items_below: paths of items of the namespace (LangGraph's store) that are this user's, each as its
                labels; Strandline does not know whose items are.
            on_progress: is told the step, the table and the rows gone so far, after each transaction.

        Raises:
            ConflictError: a reader still finds something, as while a process of an earlier release writes.
        """
        order = self._order(self.user(user_id), actor, items_below, on_progress)
        return erase(order, self.signer, self.beside)

    def erase_session(
        self, session_id: str, *, actor: str | None = None, on_progress: OnProgress = _silent
    ) -> Operation[ErasureReceipt]:
        """Erase one session, and its user's data that only this session gave.

        A session without a user is an owner, and goes with everything.  Forks are sessions of their own.

        Raises:
            NotFoundError: the session does not exist.
            ConflictError: as for ``erase_user``; or the erasure of its user is not finished, which only the
                same call finishes.
        """
        order = self._order((yield from self.session(session_id)), actor, (), on_progress)
        return (yield from erase(order, self.signer, self.beside))

    def readmit_user(self, user_id: str, *, actor: str | None = None) -> Operation[ErasureReceipt]:
        """Let an erased user start again, with nothing; returns the record, of the kind ``readmission``.

        A session that was erased by itself stays away until ``readmit_session``.

        Raises:
            NotFoundError: the user was not erased, or was readmitted.
            ConflictError: the erasure is not finished, or erased data is back.
        """
        return readmit(self.user(user_id), actor, self.signer)

    def readmit_session(self, session_id: str, *, actor: str | None = None) -> Operation[ErasureReceipt]:
        """Let the id of an erased session be used again by its owner; raises as ``readmit_user``."""
        return (yield from readmit((yield from self.session(session_id)), actor, self.signer))

    def list(self, *, limit: int = 50, before: int | None = None) -> Operation[Sequence[ErasureSummary]]:
        """Erasures and readmissions of the namespace, newest first; ``before``: below this number."""
        return list_erasures(self.namespace, check_count("limit", limit, most=MAX_LISTED), before)

    def show(self, number: int) -> Operation[ErasureRecord]:
        """One erasure, with its receipt if it is done.

        Raises:
            NotFoundError: the namespace has none of this number.
        """
        return show_erasure(number, self.namespace)

    def verify(self, receipt: ErasureReceipt, verifier: Verifier | None = None) -> Operation[ReceiptVerdict]:
        """Whether a receipt is as it was signed, whether its fence stands, and what there is of the owner."""
        return verify_receipt(receipt, verifier)

    def find_erased_rows(self) -> Operation[dict[str, int]]:
        """By table, the rows of any owner or session, of any namespace, that was erased."""
        return erased_rows()

    def user(self, user_id: str) -> ErasureTarget:
        return user_target(self.namespace, check_user_id(user_id))

    def session(self, session_id: str) -> Operation[ErasureTarget]:
        return session_target(self.namespace, check_name("session_id", session_id))

    def _order(
        self,
        target: ErasureTarget,
        actor: str | None,
        items_below: Iterable[Sequence[str]],
        on_progress: OnProgress,
    ) -> ErasureOrder:
        act = Act.here("erasure", actor=actor)
        ranges = item_ranges(items_below)
        return ErasureOrder(target, act.named_actor, ranges, act=act, on_progress=on_progress)


class NamespaceErasures(Closing):
    """The erasures of a namespace; get it from ``Erasures.of_namespace``.

    An erasure begins with one transaction that sets the fence; from its commit on nothing can be written for
    the user: not by puts, imports, workers, edits of facts, replays or forks, even running ones.  The
    rest is deleted in short transactions.  If the process ends in between, call the method again: it resumes.
    Two calls at once share the work, and return the same receipt.

    All methods raise DatabaseUnavailableError when Postgres cannot be reached, and InvalidMessageError if a
    name is not valid.
    """

    def __init__(
        self,
        resources: Resources,
        namespace: str,
        *,
        signer: Signer | None = None,
        verifier: Verifier | None = None,
        outside: Sequence[Outside] = (),
        open_archive: OpenArchive | None = None,
    ) -> None:
        self._resources = resources
        self._runner = OperationRunner(resources)
        self._verifiers = () if verifier is None else (verifier,)
        self._subject = Erasing(
            check_name("namespace", namespace), signer, Beside(tuple(outside), open_archive)
        )

    @property
    def namespace(self) -> str:
        return self._subject.namespace

    @property
    def has_key(self) -> bool:
        """Whether receipts are signed: whether a key was given."""
        return self._subject.signer is not None

    plan_user, aplan_user = methods(Erasing.plan_user)
    plan_session, aplan_session = methods(Erasing.plan_session)
    erase_user, aerase_user = methods(Erasing.erase_user)
    erase_session, aerase_session = methods(Erasing.erase_session)
    readmit_user, areadmit_user = methods(Erasing.readmit_user)
    readmit_session, areadmit_session = methods(Erasing.readmit_session)
    list, alist = methods(Erasing.list)
    show, ashow = methods(Erasing.show)
    verify, averify = methods(Erasing.verify)
    find_erased_rows, afind_erased_rows = methods(Erasing.find_erased_rows)

    def vacuum(self) -> None:
        """Free the space of deleted rows in tables and indexes; may take long.

        Postgres does it by itself in time; dead rows stay on disk until then.

        Raises:
            DatabaseTimeoutError: it took longer than two hours; tables that were done are done.
        """
        self._resources.database().fetch_within(MAINTENANCE_SECONDS, VacuumErased())

    def reapply(
        self,
        receipts: Sequence[ErasureReceipt],
        *,
        verifiers: Sequence[Verifier] = (),
        unverified: bool = False,
        actor: str | None = None,
        on_progress: OnProgress = _silent,
    ) -> Iterator[ReappliedReceipt]:
        """Repeat erasures after a restore of an older backup, before producers write; yields each outcome.

        Known erasures, and erasures of which nothing came back, are left out.

        Args:
            receipts: all kept outside, readmissions included, of any namespace.
            verifiers: the public keys that may have signed them (``verifier_of``), in addition to this
                object's own key.
            unverified: also repeat receipts that no key vouches for; then the file's writer decides whom to
                erase or readmit.

        Raises:
            ConfigurationError: a receipt is not signed by any of these keys, or was changed; nothing was
                done.
        """
        refuse_forged(receipts, (*self._verifiers, *verifiers), unverified=unverified)
        common = ErasureOrder(_EACH, actor, on_progress=on_progress)
        for receipt, operation in reapply(receipts, self._subject.signer, common, self._subject.beside):
            yield ReappliedReceipt(receipt, self._runner.run(operation))

    async def areapply(
        self,
        receipts: Sequence[ErasureReceipt],
        *,
        verifiers: Sequence[Verifier] = (),
        unverified: bool = False,
        actor: str | None = None,
        on_progress: OnProgress = _silent,
    ) -> AsyncIterator[ReappliedReceipt]:
        """Async twin of ``reapply``."""
        refuse_forged(receipts, (*self._verifiers, *verifiers), unverified=unverified)
        common = ErasureOrder(_EACH, actor, on_progress=on_progress)
        for receipt, operation in reapply(receipts, self._subject.signer, common, self._subject.beside):
            yield ReappliedReceipt(receipt, await self._runner.arun(operation))

    def export_user(self, user_id: str) -> Iterator[str]:
        """Everything that is kept about a user, as lines of JSON (docs/export.md), in bounded memory."""
        return export_lines(self._runner, _export_of(self._subject.user(user_id)), None)

    def aexport_user(self, user_id: str) -> AsyncIterator[str]:
        """Async twin of ``export_user``."""
        return aexport_lines(self._runner, _export_of(self._subject.user(user_id)), None)

    def export_session(self, session_id: str) -> Iterator[str]:
        """Everything that is kept about a session, in the same form."""
        target = self._runner.run(self._subject.session(session_id))
        return export_lines(self._runner, _export_of(target), session_id)

    async def aexport_session(self, session_id: str) -> AsyncIterator[str]:
        """Async twin of ``export_session``."""
        target = await self._runner.arun(self._subject.session(session_id))
        async for line in aexport_lines(self._runner, _export_of(target), session_id):
            yield line


def _export_of(target: ErasureTarget) -> ExportTarget:
    return ExportTarget(target.namespace, target.owner_key, target.user_id, target.session_key)


def item_ranges(items_below: Iterable[Sequence[str]]) -> tuple[ItemRange, ...]:
    """The items below paths.

    Raises:
        ConfigurationError: one is not a path.
    """
    ranges = []
    for labels in items_below:
        if isinstance(labels, str) or not labels:
            raise ConfigurationError("items_below must be paths, each a list of at least one label.")
        below = range_below(labels)
        ranges.append(ItemRange(below.start, below.end))
    return tuple(ranges)
