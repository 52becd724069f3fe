"""Imports in tests: runs one to its end, or up to some record, and looks at what it stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from strandline.chat_import.history_import import HistoryImport, HistoryProgress, Target
from strandline.chat_import.records import HistorySource, Omission
from strandline.producers.writing.validate import PutLimits
from tests.conftest import rows_of

LIMITS = PutLimits(max_content_bytes=1_000_000, max_metadata_bytes=65_536)


@dataclass(frozen=True)
class Outcome:
    progress: HistoryProgress
    omissions: list[Omission]

    @property
    def reasons(self) -> dict[tuple[str, str], str]:
        """Why what could not be taken was left out, by row and part."""
        return {(one.place.row, one.place.part): one.reason for one in self.omissions}


def import_all(
    source: HistorySource,
    database_url: str,
    *,
    user: str | None = None,
    users: Mapping[str, str] | None = None,
    source_name: str = "",
    is_dry: bool = False,
    check: Callable[[], None] = lambda: None,
    **limits: Any,
) -> Outcome:
    omissions: list[Omission] = []
    options = {"database_url": database_url, **limits}
    target = Target(LIMITS, user=user, users=users or {}, options=options, source_name=source_name)
    chats = HistoryImport(source, target, is_dry=is_dry, omit=omissions.append, check=check)
    return Outcome(chats.run(), omissions)


class Stop:
    """Raises ``KeyboardInterrupt`` at the record of this number."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


def stored_log(database_url: str) -> list[tuple[Any, ...]]:
    """All messages by session and seq: session, user, id, role, envelope, metadata and time."""
    return rows_of(
        database_url,
        "SELECT s.session_id, s.user_id, m.id, m.role, m.envelope::text, m.metadata::text, m.created_at"
        " FROM strandline.message m JOIN strandline.session s USING (shard_key, session_key)"
        " ORDER BY s.session_id, m.seq",
    )


def stored_facts(database_url: str) -> list[tuple[Any, ...]]:
    """All facts by text: id, text, topics, input, agent, feedback, times, and who added them."""
    return rows_of(
        database_url,
        "SELECT f.fact_id, f.text, f.topics, f.input, f.agent_id, f.feedback, f.created_at, f.said_at,"
        " e.actor FROM strandline.fact f"
        " JOIN strandline.fact_revision r USING (shard_key, generation_id, fact_id)"
        " JOIN strandline.fact_event e ON e.shard_key = f.shard_key AND e.number = r.fact_event"
        " WHERE f.live ORDER BY f.text",
    )
