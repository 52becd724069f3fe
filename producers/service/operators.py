"""What operators may do by HTTP, handed in: commands and replays lie above this room."""

from __future__ import annotations

from typing import Protocol

from strandline.schemas.postgres.database import Database
from strandline.schemas.wire.work import StatusReport


class Operators(Protocol):
    """The acts of operators, each as the command of the same name does it; they block."""

    def status(self, database: Database) -> StatusReport:
        """What is due, held, dead and done, and who is there to do it."""
        ...
