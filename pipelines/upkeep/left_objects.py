"""Objects that steps of retention left in archives: steps that were given up before they removed anything.

Each is named in the step's record until it is deleted, so an archive that cannot be reached any more (its
address was corrected, or it was retired) holds up nothing: it is asked again now and then, and by an erasure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from strandline.pipelines.upkeep.archive import Archive
from strandline.schemas.errors import ArchiveError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.conversation.retention import IsStepGivenUp, LeftObjects, TryLeftObject
from strandline.schemas.values.identity import SessionKeys

logger = logging.getLogger("strandline.retention")

# So long after an attempt to delete an object it is tried again.
RETRY_SECONDS = 3_600.0


def delete_left_objects(
    database: Database, open_archive: Callable[[str], Archive | None], session: SessionKeys
) -> None:
    """Delete what given-up steps of a session left in archives; what cannot be deleted stays named."""
    for left in database.fetch(LeftObjects(**session, retry_seconds=RETRY_SECONDS)):
        is_deleted = True
        try:
            archive = open_archive(left.archive)
            if archive is not None:
                archive.delete(left.object_name)
        except ArchiveError as error:
            is_deleted = False
            logger.warning(
                "an object of a step that was given up cannot be deleted",
                extra={
                    "action": "archive_failed",
                    "reason": str(error),
                    "session_key": str(session["session_key"]),
                },
            )
        database.fetch(TryLeftObject(**session, step_id=left.step_id, is_deleted=is_deleted))


def is_step_given_up(database: Database, session: SessionKeys, step_id: UUID) -> bool:
    """Whether a step was given up, so that nobody will name what is put into an archive for it."""
    return database.fetch(IsStepGivenUp(**session, step_id=step_id))[0].is_given_up
