"""Resealing in the background: a worker seals some of an encrypted namespace's content that is still in
clear.

Several workers may do so at once: each row is replaced only as it was read, and each begins at an owner of
its own.  A worker without a keyring leaves it to others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from uuid import UUID, uuid4

from strandline.pipelines.sealing.enabling import prepare_owners
from strandline.pipelines.sealing.resealing import FIRST_OWNER, Pace, reseal_namespace, retire_old_keys
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.application.sealing import EncryptionStatus
from strandline.schemas.sealed.content import SealedContent

logger = logging.getLogger("strandline.workers")

INTERVAL_SECONDS = 30.0
# One worker at most, so that what users do is not kept waiting.
ROWS_PER_SECOND = 2_000
# Then the next namespace has its turn; this one resumes later.
SECONDS_PER_NAMESPACE = 60.0


class Resealing:
    """One worker's share; ``cache_seconds`` is how long processes keep unwrapped keys."""

    def __init__(self, database: Database, *, cache_seconds: float, is_stopping: Callable[[], bool]) -> None:
        self._database = database
        self._cache_seconds = cache_seconds
        self._is_stopping = is_stopping
        # Where the next tick resumes, by namespace: the owners of the lowest keys are not always the first.
        self._positions: dict[str, UUID] = {}

    def tick(self) -> None:
        """Seal owners of each namespace that is not settled, for a while."""
        content = self._database.content
        if not isinstance(content, SealedContent):
            return
        for row in self._database.fetch(EncryptionStatus(namespace=None)):
            try:
                self._seal(content, row.namespace, has_old_keys=row.old_keys > 0)
            except StrandlineError as error:
                logger.warning(
                    "resealing failed",
                    extra={
                        "action": "reseal_failed",
                        "namespace": row.namespace,
                        "error": type(error).__name__,
                    },
                )

    def _seal(self, content: SealedContent, namespace: str, *, has_old_keys: bool) -> None:
        ends_at = time.monotonic() + SECONDS_PER_NAMESPACE
        pace = Pace(ROWS_PER_SECOND, lambda: self._is_stopping() or time.monotonic() > ends_at)
        for _keys in prepare_owners(self._database, content, namespace):
            if self._is_stopping():
                return
        passes = reseal_namespace(
            self._database,
            content,
            namespace,
            cache_seconds=self._cache_seconds,
            pace=pace,
            after_owner=self._positions.setdefault(namespace, uuid4()),
        )
        for progress in passes:
            self._positions[namespace] = progress.position or FIRST_OWNER
        if has_old_keys:
            retire_old_keys(self._database, content, namespace, pace=pace)
