"""Rows that several statements may have.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class AppliedRow(NamedTuple):
    applied: int


class ArchiveRow(NamedTuple):
    archive: str


class BacklogRow(NamedTuple):
    events: int
    tokens: int


class BatchIdRow(NamedTuple):
    batch_id: UUID


class BroughtRow(NamedTuple):
    brought: int


class BytesRow(NamedTuple):
    bytes: int


class CallIdRow(NamedTuple):
    call_id: UUID


class CallsPerSecondRow(NamedTuple):
    calls_per_second: float | None


class CaptureActRow(NamedTuple):
    number: int
    capture: str
    actor: str | None
    created_at: datetime


class ChunkDigestRow(NamedTuple):
    pieces: int
    digest: str


class ColumnNameRow(NamedTuple):
    column_name: str


class CurrentRow(NamedTuple):
    current: bool


class DueRow(NamedTuple):
    due: int


class EntriesRow(NamedTuple):
    entries: int


class EntryIdRow(NamedTuple):
    entry_id: UUID


class ErasureRow(NamedTuple):
    erasure: int | None


class EventIdRow(NamedTuple):
    event_id: UUID


class EventsRow(NamedTuple):
    events: int


class FactIdRow(NamedTuple):
    fact_id: UUID


class FactTextRow(NamedTuple):
    fact_id: UUID
    text: str


class FindingRow(NamedTuple):
    kind: str
    place: str


class GenerationRow(NamedTuple):
    generation_id: int
    pipeline: str
    version: str
    state: str
    entry_scope: str
    config: str
    prompts: str
    is_filled: bool


class GenerationIdRow(NamedTuple):
    generation_id: int


class HasContextRow(NamedTuple):
    has_context: bool


class HasKeyRow(NamedTuple):
    has_key: bool


class HeldRow(NamedTuple):
    held: int


class IsCurrentRow(NamedTuple):
    is_current: bool


class IsDueRow(NamedTuple):
    is_due: bool


class IsFirstRow(NamedTuple):
    is_first: bool


class IsGivenUpRow(NamedTuple):
    is_given_up: bool


class IsGoneRow(NamedTuple):
    is_gone: bool


class IsOverRow(NamedTuple):
    is_over: bool


class IsRecordedRow(NamedTuple):
    is_recorded: bool


class IsSetRow(NamedTuple):
    is_set: bool


class IsUsedRow(NamedTuple):
    is_used: bool


class ItemRow(NamedTuple):
    path: str
    key: str
    value: str
    ttl_minutes: float | None
    created_at: datetime
    updated_at: datetime


class KeyRow(NamedTuple):
    key: str


class KeyIdRow(NamedTuple):
    key_id: str


class KnownRow(NamedTuple):
    known: bool


class LabelsRow(NamedTuple):
    labels: list[str]


class LaneRow(NamedTuple):
    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str


class LanesRow(NamedTuple):
    lanes: int


class LastErrorRow(NamedTuple):
    last_error: str | None


class LeaseEpochRow(NamedTuple):
    lease_epoch: int


class LevelRow(NamedTuple):
    level: str


class MarkRow(NamedTuple):
    mark: str


class MayWriteRow(NamedTuple):
    may_write: bool


class MeasuredMessageRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None
    bytes_taken: int


class MessageRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class MessageOfHitRow(NamedTuple):
    place: int
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class MessageOfSessionRow(NamedTuple):
    session_key: UUID
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class NamespaceRow(NamedTuple):
    namespace: str


class NotedRow(NamedTuple):
    noted: int


class NothingRow(NamedTuple):
    nothing: str | None


class NumberRow(NamedTuple):
    number: int


class OrdinalRow(NamedTuple):
    ordinal: int


class PipelineRow(NamedTuple):
    pipeline: str


class PseudonymRow(NamedTuple):
    subject: UUID
    salt: bytes


class PutRow(NamedTuple):
    status: str
    detail: str | None
    seqs: list[int | None] | None
    to_flush: str | None
    is_recorded: bool | None


class ReceiptRow(NamedTuple):
    receipt: str


class RecordedRow(NamedTuple):
    number: int
    created_at: datetime


class ReplayRow(NamedTuple):
    replay_id: int
    kind: str
    pipeline: str
    generation_id: int
    selection: str
    state: str
    held: bool
    position: UUID | None
    calls_per_second: float | None
    counts: str
    started_at: datetime
    updated_at: datetime
    is_alive: bool


class ReplayIdRow(NamedTuple):
    replay_id: int


class RequestKeyRow(NamedTuple):
    request_key: UUID


class RowsRow(NamedTuple):
    rows: int


class RunIdRow(NamedTuple):
    run_id: int


class SecondsRow(NamedTuple):
    seconds: float | None


class SeqRow(NamedTuple):
    seq: int


class ServiceKeyRow(NamedTuple):
    key_id: str
    namespace: str | None
    user_id: str | None
    scopes: list[str]
    shared_scopes: list[str]
    label: str
    rotated_from: str | None
    made_by: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    is_over: bool


class SessionEntryRow(NamedTuple):
    namespace: str
    session_id: str
    user_id: str | None


class SessionNameRow(NamedTuple):
    session_key: UUID
    session_id: str


class SettingRow(NamedTuple):
    setting: str


class ShardKeyRow(NamedTuple):
    shard_key: UUID


class SharedKeyRow(NamedTuple):
    shared_key: UUID | None


class SourceMessageRow(NamedTuple):
    revision: int
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class StageRow(NamedTuple):
    stage: str


class StatusRow(NamedTuple):
    status: str


class StepIdRow(NamedTuple):
    step_id: UUID


class StopAskedRow(NamedTuple):
    stop_asked: bool


class SubjectRow(NamedTuple):
    subject: UUID


class TableRowsRow(NamedTuple):
    table_name: str
    rows: int


class ToFlushRow(NamedTuple):
    to_flush: str | None


class UserIdRow(NamedTuple):
    user_id: str


class WaitSecondsRow(NamedTuple):
    wait_seconds: float


class WasDeletedRow(NamedTuple):
    was_deleted: bool


class WatchIdRow(NamedTuple):
    watch_id: UUID
