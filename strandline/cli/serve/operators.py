"""What operators may do by HTTP, done as the commands of the same names do it."""

from __future__ import annotations

from strandline.cli.status import read_status
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.wire.work import StatusReport


class CommandOperators:
    """Implements ``producers.service.operators.Operators``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def status(self, database: Database) -> StatusReport:
        return read_status(database, self._settings)
