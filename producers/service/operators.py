"""What operators may do by HTTP, handed in: it reaches models and commands, which lie above this room."""

from __future__ import annotations

import threading
from typing import Protocol

from strandline.pipelines.upkeep.erasure.receipt import Signer, Verifier
from strandline.producers.erasing.beside import Beside
from strandline.schemas.postgres.database import Database
from strandline.schemas.wire.operations import LimitsIn, Promotion, ReplayIn
from strandline.schemas.wire.replay import DiffTotals, EstimatesReport, GenerationsReport, SwitchReport
from strandline.schemas.wire.work import NamespaceLimitsReport, ReplayReport, StatusReport


class Operators(Protocol):
    """The acts of operators, each as the command of the same name does it; they block."""

    def status(self, database: Database) -> StatusReport:
        """What is due, held, dead and done, and who is there to do it."""

    def limits(self, database: Database, namespace: str | None) -> list[NamespaceLimitsReport]:
        """The limits of a namespace, or of all that have some."""

    def set_limits(self, database: Database, namespace: str, limits: LimitsIn) -> None:
        """Set all limits of a namespace; those that are None are removed."""

    def generations(self, database: Database, pipeline: str | None) -> GenerationsReport:
        """The generations, and the replays that are not finished."""

    def compare(self, database: Database, generation: int, against: int | None) -> DiffTotals:
        """How much differs between two generations of a pipeline."""

    def promote(self, database: Database, generation: int, whom: Promotion) -> SwitchReport:
        """Let a generation serve."""

    def roll_back(self, database: Database, pipeline: str) -> SwitchReport:
        """Let the generation serve again that served before."""

    def prune(self, database: Database, generation: int) -> SwitchReport:
        """Delete a generation that does not serve."""

    def estimate(self, database: Database, replay: ReplayIn) -> EstimatesReport:
        """How much work a replay would be."""

    def begin_replay(self, database: Database, replay: ReplayIn) -> ReplayReport:
        """Record a replay, or claim one that was stopped."""

    def carry_on(self, database: Database, replay_id: int, stop: threading.Event) -> None:
        """Carry a replay on to its end, or until ``stop`` is set."""

    def signer(self) -> Signer | None:
        """The key that signs receipts of erasures; None where the installation has none."""

    def verifier(self) -> Verifier | None:
        """What checks receipts that were signed by it."""

    def beside(self) -> Beside:
        """What is erased beside the database: the archives of retention."""

    def replay(self, database: Database, replay_id: int) -> ReplayReport:
        """How a replay stands."""

    def replays(self, database: Database, before: int | None, limit: int) -> list[ReplayReport]:
        """At most so many replays before one, newest first."""

    def stop_replay(self, database: Database, replay_id: int) -> ReplayReport:
        """Ask whichever process carries a replay on to stop, and say how it stands."""
