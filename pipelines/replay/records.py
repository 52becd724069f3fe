"""The record of each replay: its selection, progress, and collisions with others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal, TypedDict
from uuid import UUID

from strandline.pipelines.audit.appending import Act, append_query
from strandline.schemas.errors import ReplayError, UnknownReplayError
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.audit.audit import AppendAct
from strandline.schemas.queries.derived.replay import (
    AskReplayToStop,
    BeginReplay,
    FindReplays,
    ReplaysBefore,
    ReportReplay,
    TakeReplay,
)
from strandline.schemas.queries.rows import ReplayRow, ShardKeyRow
from strandline.schemas.values.identity import ALL_NAMESPACES
from strandline.schemas.values.policy import MAX_INTEGER

OWNERS_PER_PAGE = 100

ReplayKind = Literal["new", "in_place"]
ReplayState = Literal["running", "stopped", "done"]


class WhoseParams(TypedDict):
    """Whose sessions are meant, as parameters of statements."""

    namespace: str | None
    session_id: str | None
    user_id: str | None


class SelectionParams(WhoseParams):
    """Which events are meant, as parameters of statements."""

    since: datetime | None
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Selection:
    """The scope to derive again: events that fit every field, with the archive's removed ones."""

    namespace: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    only_dead: bool = False
    from_archive: bool = False

    @property
    def whose(self) -> WhoseParams:
        """Whose sessions, as parameters of statements."""
        return {"namespace": self.namespace, "session_id": self.session_id, "user_id": self.user_id}

    @property
    def params(self) -> SelectionParams:
        """The same, and when their events were flushed."""
        return {**self.whose, "since": self.since, "until": self.until}

    @property
    def is_everything(self) -> bool:
        return self == Selection()

    def overlaps(self, other: Selection) -> bool:
        """Whether some event may be in both."""
        for name in ("namespace", "session_id", "user_id"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not None and theirs is not None and mine != theirs:
                return False
        return not (_ends_before(self, other) or _ends_before(other, self))

    def to_json(self) -> str:
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(fields, default=datetime.isoformat)

    @classmethod
    def from_json(cls, text: str) -> Selection:
        fields = json.loads(text)
        times = {name: datetime.fromisoformat(fields[name]) for name in ("since", "until") if name in fields}
        return cls(**(fields | times))


@dataclass(frozen=True, slots=True)
class Replay:
    """One replay as it is recorded; ``is_alive`` says that a process has reported on it lately."""

    replay_id: int
    kind: ReplayKind
    pipeline: str
    generation_id: int
    selection: Selection
    state: ReplayState
    held: bool
    position: UUID | None
    calls_per_second: float | None
    counts: Mapping[str, Any] = field(default_factory=dict)
    started_at: datetime | None = None
    updated_at: datetime | None = None
    is_alive: bool = False

    @classmethod
    def read(cls, row: ReplayRow) -> Replay:
        values: dict[str, Any] = row._asdict()
        values |= {"selection": Selection.from_json(row.selection), "counts": json.loads(row.counts)}
        return cls(**values)


def each_owner(
    database: Fetcher, page_after: Callable[[UUID], Query[ShardKeyRow]], after: UUID | None = None
) -> Iterator[UUID]:
    """The owners that a statement gives page by page, of ``OWNERS_PER_PAGE``, behind one; default: all."""
    after = after or UUID(int=0)
    while page := database.fetch(page_after(after)):
        for row in page:
            after = row.shard_key
            yield after
        if len(page) < OWNERS_PER_PAGE:
            return


def replays(
    database: Fetcher, *, replay_id: int | None = None, pipeline: str | None = None, unfinished: bool = False
) -> list[Replay]:
    """The replays that fit, oldest first."""
    if replay_id is not None and not 0 < replay_id <= MAX_INTEGER:
        return []
    query = FindReplays(replay_id=replay_id, pipeline=pipeline, unfinished=unfinished)
    return [Replay.read(row) for row in database.fetch(query)]


def newest_replays(database: Fetcher, before: int | None, limit: int) -> list[Replay]:
    """At most so many replays before one, newest first; None: from the newest on."""
    if before is not None and before > MAX_INTEGER:
        return []
    return [Replay.read(row) for row in database.fetch(ReplaysBefore(before=before, limit=limit))]


def begin(
    tx: Fetcher,
    kind: ReplayKind,
    pipeline: str,
    generation_id: int,
    selection: Selection,
    *,
    held: bool = False,
    calls_per_second: float | None = None,
) -> Replay:
    """Record a replay, in a transaction that holds the pipeline.

    Raises:
        ReplayError: it would collide with an unfinished one.
    """
    for other in replays(tx, pipeline=pipeline, unfinished=True):
        _refuse_collision(other, kind, selection)
    (begun,) = tx.fetch(
        BeginReplay(
            kind=kind,
            pipeline=pipeline,
            generation_id=generation_id,
            selection=selection.to_json(),
            held=held,
            calls_per_second=calls_per_second,
        )
    )
    tx.fetch(_act("replay.start", begun.replay_id, kind, pipeline, selection))
    return replays(tx, replay_id=begun.replay_id)[0]


def _act(act: str, replay_id: int, kind: ReplayKind, pipeline: str, selection: Selection) -> AppendAct:
    detail = {"replay": replay_id, "kind": kind, "pipeline": pipeline}
    return append_query(selection.namespace or ALL_NAMESPACES, Act.here(act, detail=detail))


def claim_replay(database: Fetcher, replay_id: int) -> Replay:
    """Claim a replay that was stopped, or whose process is gone, to resume it.

    Raises:
        ReplayError: it does not exist, is done, or is running in another process.
    """
    find_unfinished(database, replay_id)
    if not database.fetch(TakeReplay(replay_id=replay_id)):
        raise ReplayError(
            f"Another process is running replay {replay_id}, or was within the last 15 seconds;"
            " wait until it is done, or stop that process and try again then."
        )
    (replay,) = replays(database, replay_id=replay_id)
    database.fetch(_act("replay.resume", replay_id, replay.kind, replay.pipeline, replay.selection))
    return replay


def ask_to_stop(database: Fetcher, replay_id: int) -> Replay:
    """Ask a replay's process to stop after its present step.

    A replay whose process is gone is stopped by this; an idle one stays as it is.

    Raises:
        UnknownReplayError: there is no such replay.
    """
    is_running = database.fetch(AskReplayToStop(replay_id=replay_id))
    for replay in replays(database, replay_id=replay_id):
        if is_running:
            database.fetch(_act("replay.stop", replay_id, replay.kind, replay.pipeline, replay.selection))
        return replay
    raise UnknownReplayError(f"Replay {replay_id} is unknown; `strandline generations list` lists all.")


def find_unfinished(database: Fetcher, replay_id: int) -> Replay:
    """A replay that can be resumed, if no other process is running it.

    Raises:
        ReplayError: it does not exist, or is done.
    """
    replays_of_id = replays(database, replay_id=replay_id)
    if not replays_of_id:
        raise UnknownReplayError(f"Replay {replay_id} is unknown; `strandline generations list` lists all.")
    if replays_of_id[0].state == "done":
        raise ReplayError(f"Replay {replay_id} is done; there is nothing to resume.")
    return replays_of_id[0]


def report(
    fetcher: Fetcher, replay: Replay, state: ReplayState, counts: Mapping[str, Any], position: UUID | None
) -> bool:
    """Write down how far it is; returns whether it was asked to stop."""
    encoded = json.dumps(dict(counts))
    rows = fetcher.fetch(
        ReportReplay(replay_id=replay.replay_id, state=state, position=position, counts=encoded)
    )
    return any(row.stop_asked for row in rows)


def _refuse_collision(other: Replay, kind: ReplayKind, selection: Selection) -> None:
    if other.kind != kind:
        return
    if kind == "new":
        how = "is running" if other.is_alive else "was not finished"
        raise ReplayError(
            f"Replay {other.replay_id} already derives a new generation of {other.pipeline}"
            f" ({other.generation_id}), and {how}. Continue it: strandline replay --resume"
            f" {other.replay_id}. Or give it up: strandline generations prune {other.generation_id}."
        )
    if other.is_alive and other.selection.overlaps(selection):
        raise ReplayError(
            f"Replay {other.replay_id} is running on {other.pipeline}, over some of the same events; wait"
            " until it is done, or stop it."
        )


def _ends_before(one: Selection, other: Selection) -> bool:
    return one.until is not None and other.since is not None and one.until <= other.since
