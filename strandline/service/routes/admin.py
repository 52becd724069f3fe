"""For operators: status, limits, dead letters, replays and generations.

The key of a namespace's operator manages that namespace; what concerns all owners takes the key of an
operator of the whole installation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from strandline.administration.dead_letters import LetterDone, drop_letters, retry_letters
from strandline.administration.generations import (
    compare_totals,
    delete_generation,
    generations_report,
    promote,
    serve_earlier,
)
from strandline.administration.limits import read_limits, write_limits
from strandline.administration.replays import (
    begin_replay,
    check_pipelines,
    estimate_replays,
    find_replay,
    report_of,
)
from strandline.administration.status import read_standing, read_status
from strandline.pipelines.engine.dead_letters import DeadLetter, LetterPlace, list_dead_letters
from strandline.pipelines.replay.records import ask_to_stop, newest_replays
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.wire import acts
from strandline.schemas.wire.base import Page
from strandline.schemas.wire.operations import (
    DeadLetterOut,
    LetterAction,
    LetterActions,
    LimitsIn,
    OperationOut,
    Promotion,
    ReplayIn,
)
from strandline.schemas.wire.replay import DiffTotals, EstimatesReport, GenerationsReport, SwitchReport
from strandline.schemas.wire.work import (
    LimitsReport,
    NamespaceLimitsReport,
    ReplayReport,
    StatusReport,
    WorkerReport,
)
from strandline.service.answering import Routes
from strandline.service.forms import json_response, page_within
from strandline.service.gate.problems import NOT_FOUND, ProblemError
from strandline.service.params import Cursor, PageSize, decoded, read_number_cursor, read_place_cursor
from strandline.service.route import Call
from strandline.service.service import Service

routes = Routes("operations")

P = ParamSpec("P")
T = TypeVar("T")

_LETTERS = "dead-letters"
_OPERATIONS = "operations"
Namespace = Annotated[
    str, Field(description="The namespace.", max_length=2_000, examples=["default"]), decoded
]
Pipeline = Annotated[str, Field(description="The pipeline.", max_length=2_000, examples=["facts"]), decoded]
GenerationId = Annotated[int, Field(ge=1, le=2**31 - 1, description="The number of the generation.")]
ReplayId = Annotated[int, Field(ge=1, le=2**31 - 1, description="The number of the operation.")]
EventId = Annotated[UUID, Field(description="The flush event.")]
Stage = Annotated[str | None, Field(min_length=1, max_length=512, description="Only this stage of it.")]


@routes.answer(acts.GET_STATUS, "operate", "others", holder="installation")
async def get_status(call: Call) -> StatusReport:
    """The work that is due, held, dead and done, and the live workers."""
    return await _operate(call, read_status)


@routes.answer(acts.GET_WORKERS, "operate", "others", holder="installation")
async def get_workers(call: Call) -> Page[WorkerReport]:
    """The workers with a heartbeat."""
    return Page[WorkerReport](items=(await _operate(call, read_standing)).workers)


@routes.answer(acts.GET_NAMESPACES, "operate", "others", holder="namespace")
async def get_namespaces(call: Call) -> LimitsReport:
    """The limits of namespaces that have some, with their use today and what waits."""
    return LimitsReport(namespaces=await _operate(call, read_limits, call.caller.managed_namespace))


@routes.answer(acts.GET_LIMITS, "operate", "others", holder="namespace")
async def get_limits(call: Call, namespace: Namespace) -> NamespaceLimitsReport:
    """The limits of a namespace; 404 if it has none."""
    if call.caller.managed_namespace not in (None, namespace):
        raise ProblemError(NOT_FOUND)
    reports = await _operate(call, read_limits, namespace)
    if not reports:
        raise ProblemError(NOT_FOUND)
    return reports[0]


@routes.answer(acts.PUT_LIMITS, "operate", "others", holder="installation")
async def put_limits(call: Call, namespace: Namespace, body: LimitsIn) -> NamespaceLimitsReport:
    """Set all limits of a namespace; null removes one."""

    def set_and_read(database: Database, settings: Settings) -> list[NamespaceLimitsReport]:
        write_limits(database, namespace, body, whole=True)
        return read_limits(database, settings, namespace)

    reports = await _operate(call, set_and_read)
    return reports[0] if reports else _no_limits(namespace)


@routes.answer(acts.GET_LETTERS, "operate", "others", ("names", "operators"), holder="namespace")
async def get_letters(
    call: Call,
    limit: PageSize = 100,
    cursor: Cursor = None,
    pipeline: Annotated[str | None, Field(max_length=512, description="Only of this pipeline.")] = None,
    dropped: Annotated[bool, Field(description="Also events that were given up for good.")] = False,
) -> Page[DeadLetterOut]:
    """Events that a pipeline gave up on, oldest first, each with its reason."""
    after = read_place_cursor(_LETTERS, cursor, LetterPlace.read)
    letters = await call.block(
        lambda database: list_dead_letters(
            database,
            namespace=call.caller.managed_namespace,
            pipeline=pipeline,
            dropped=dropped,
            after=after,
            limit=limit + 1,
        ),
    )
    await call.reveal((letter.namespace for letter in letters[:limit]), _LETTERS)
    return page_within(DeadLetterOut, letters, limit, _LETTERS, lambda one: str(LetterPlace.of(one)))


@routes.answer(acts.RETRY_LETTER, "operate", "others", holder="namespace")
async def retry_letter(call: Call, event_id: EventId, stage: Stage = None) -> LetterActions:
    """Make an event due again, in the stages that gave up on it."""

    def retry(database: Database) -> LetterActions:
        letters = _letters(call, database, event_id, stage)
        return _actions(retry_letters(database, letters, call.service.resources.ring))

    return await call.block(retry)


@routes.answer(acts.DROP_LETTER, "operate", "others", holder="namespace")
async def drop_letter(call: Call, event_id: EventId, stage: Stage = None) -> LetterActions:
    """Give an event up for good; its messages stay in the log, and reads no longer wait for them."""

    def drop(database: Database) -> LetterActions:
        return _actions(drop_letters(database, _letters(call, database, event_id, stage)))

    return await call.block(drop)


@routes.answer(acts.POST_REPLAY, "operate", "others", answer=OperationOut, status=202, holder="installation")
async def post_replay(call: Call, body: ReplayIn) -> Response:
    """Derive memory again from the log, in place or as a new generation; the operation says how far it is."""
    service = call.service
    begun = await _operate(call, begin_replay, body)
    service.replays.carry_on(service.resources.database(), begun.replay_id)
    form = _operation(service, begun).model_dump(mode="json")
    return json_response(form, 202, {"Location": f"/v1/admin/operations/{begun.replay_id}"})


@routes.answer(acts.ESTIMATE_REPLAY, "operate", "others", holder="installation")
async def estimate_replay(call: Call, body: ReplayIn) -> EstimatesReport:
    """The work and the cost of a replay; nothing is done."""
    return await _operate(call, estimate_replays, body)


@routes.answer(acts.GET_OPERATIONS, "operate", "others", holder="installation")
async def get_operations(call: Call, limit: PageSize = 100, cursor: Cursor = None) -> Page[OperationOut]:
    """Replays, newest first."""
    service = call.service
    before = read_number_cursor(_OPERATIONS, cursor) or None
    newest = await call.block(lambda database: newest_replays(database, before, limit + 1))
    items = [_operation(service, report_of(replay)) for replay in newest]
    return page_within(OperationOut, items, limit, _OPERATIONS, lambda one: one.operation_id)


@routes.answer(acts.GET_OPERATION, "operate", "others", holder="installation")
async def get_operation(call: Call, operation_id: ReplayId) -> OperationOut:
    """How a replay stands."""
    replay = await call.block(lambda database: find_replay(database, operation_id))
    return _operation(call.service, report_of(replay))


@routes.answer(acts.STOP_OPERATION, "operate", "others", holder="installation")
async def stop_operation(call: Call, operation_id: ReplayId) -> OperationOut:
    """Have a replay stop after its present step, in whichever process it runs; `resume` continues it.

    `is_running` is false once it has; a replay that does not run stays as it is.
    """
    service = call.service
    replay = await call.block(lambda database: ask_to_stop(database, operation_id))
    service.replays.stop(operation_id)  # at once, if it is here
    return _operation(service, report_of(replay))


@routes.answer(acts.GET_GENERATIONS, "operate", "others", holder="installation")
async def get_generations(
    call: Call,
    pipeline: Annotated[str | None, Field(max_length=512, description="Only of this pipeline.")] = None,
) -> GenerationsReport:
    """The generations of each pipeline, and replays that are not finished."""
    return await _operate(call, generations_report, pipeline)


@routes.answer(acts.DIFF_GENERATION, "operate", "others", holder="installation")
async def diff_generation(
    call: Call,
    generation: GenerationId,
    against: Annotated[int | None, Field(ge=1, le=2**31 - 1, description="Default: what serves.")] = None,
) -> DiffTotals:
    """How much the memory of a generation differs from that of the serving one.

    Only counts: `strandline generations diff` shows what differs, to who may open the database.
    """
    return await call.block(lambda database: compare_totals(database, generation, against))


@routes.answer(acts.PROMOTE_GENERATION, "operate", "others", holder="installation")
async def promote_generation(call: Call, generation: GenerationId, body: Promotion) -> SwitchReport:
    """Let a generation serve all owners that it covers, or one."""
    return await call.block(lambda database: promote(database, generation, body))


@routes.answer(acts.PRUNE_GENERATION, "operate", "others", holder="installation")
async def prune_generation(call: Call, generation: GenerationId) -> SwitchReport:
    """Delete a generation that does not serve."""
    return await call.block(lambda database: delete_generation(database, generation))


@routes.answer(acts.ROLL_PIPELINE_BACK, "operate", "others", holder="installation")
async def roll_pipeline_back(call: Call, pipeline: Pipeline) -> SwitchReport:
    """Let the generation serve again that served before, for all owners."""

    def roll_back(database: Database, settings: Settings) -> SwitchReport:
        check_pipelines(database, settings, (pipeline,))
        return serve_earlier(database, pipeline)

    return await _operate(call, roll_back)


async def _operate(
    call: Call, act: Callable[Concatenate[Database, Settings, P], T], *arguments: P.args, **named: P.kwargs
) -> T:
    """The result of an operator's blocking act; it ends with the request."""
    return await call.block(lambda database: act(database, call.service.settings, *arguments, **named))


def _no_limits(namespace: str) -> NamespaceLimitsReport:
    unset = dict.fromkeys(NamespaceLimitsReport.model_fields)
    unused = dict.fromkeys(("calls_today", "tokens_today", "usd_today", "lanes_at_work", "due"), 0)
    known = {"namespace": namespace, "agents_read_only": False}
    return NamespaceLimitsReport.model_validate(unset | unused | known)


def _letters(call: Call, database: Database, event_id: UUID, stage: str | None) -> list[DeadLetter]:
    letters = list_dead_letters(
        database, namespace=call.caller.managed_namespace, event_id=event_id, stage=stage
    )
    if not letters:
        raise ProblemError(NOT_FOUND)
    return letters


def _actions(done: list[LetterDone]) -> LetterActions:
    return LetterActions(items=[LetterAction.model_validate(one) for one in done])


def _operation(service: Service, replay: ReplayReport) -> OperationOut:
    return OperationOut.of(
        replay,
        operation_id=replay.replay_id,
        is_running=replay.is_alive or service.replays.is_running(replay.replay_id),
        failed=service.replays.reason(replay.replay_id),
    )
