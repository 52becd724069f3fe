"""Routes that the page alone reaches, with the demands of all others."""

from __future__ import annotations

from datetime import datetime

from strandline.administration.attention import lines_of
from strandline.administration.status import read_rates, read_standing
from strandline.pipelines.audit.appending import Act, append_act
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.inspection.status import LedgerTotals, LongestDue
from strandline.schemas.values.identity import Owner, SessionIdentity
from strandline.schemas.wire.acts import WireAct
from strandline.schemas.wire.base import Answer, Name, Page
from strandline.schemas.wire.base import Request as Body
from strandline.schemas.wire.work import ModelCallsReport, Standing
from strandline.service.answering import Routes
from strandline.service.gate.problems import NOT_FOUND, ProblemError
from strandline.service.route import Call

routes = Routes("page")

STARTER = "strandline worker"
STANDING = WireAct("GET", "/page/-/standing")
MODELS = WireAct("GET", "/page/-/models")
DUE_LONGEST = WireAct("GET", "/page/-/longest-due")
REVEAL = WireAct("POST", "/page/-/reveal", "same", names_user=True)


class StandingOut(Standing):
    """Waiting work and workers.

    ``rates`` has the events done in each minute of the last hour; ``notes`` says what keeps memory back.
    """

    rates: dict[str, list[int]]
    notes: list[str]


class WaitingEvent(Answer):
    """The event that waits longest for a stage."""

    stage: str
    namespace: str
    session_id: str
    user_id: str | None
    from_seq: int
    through_seq: int
    waits_since: datetime


class StepCalls(ModelCallsReport):
    """The calls of a model for one step of the stages; ``seconds`` of one on average."""

    step: str
    seconds: float
    last_at: datetime


class RevealIn(Body):
    """Whose content is to be shown: a user's, or a session's."""

    user: Name | None = None
    session_id: Name | None = None


class Revealed(Answer):
    """The reveal is in the trail."""

    recorded: bool = True


@routes.answer(STANDING, "operate", "others", holder="installation")
async def get_standing(call: Call) -> StandingOut:
    """The part of the status that takes no totals of large tables, and the rates of the stages."""
    settings = call.service.settings

    def look(database: Database) -> StandingOut:
        standing = read_standing(database, settings)
        return StandingOut.of(standing, rates=read_rates(database), notes=lines_of(standing, STARTER))

    return await call.block(look)


@routes.answer(MODELS, "operate", "others", holder="installation")
async def get_models(call: Call) -> Page[StepCalls]:
    """The ledger of model calls, which names no tenant."""
    rows = await call.block(lambda database: database.fetch(LedgerTotals()))
    return Page[StepCalls](items=[StepCalls.of(row) for row in rows])


@routes.answer(DUE_LONGEST, "operate", "others", ("names",), holder="installation")
async def get_longest(call: Call) -> Page[WaitingEvent]:
    """Of each stage the event that waits longest."""
    rows = await call.block(lambda database: database.fetch(LongestDue()))
    await call.reveal((row.namespace for row in rows), "page")
    return Page[WaitingEvent](items=[WaitingEvent.model_validate(row) for row in rows])


@routes.answer(REVEAL, "read", "reads")
async def reveal(call: Call, body: RevealIn) -> Revealed:
    """Record that stored content is shown to the one who asks."""
    whom: Owner | SessionIdentity
    if body.session_id is not None:
        whom = call.caller.session(body.session_id)
        await call.service.records.find(whom)
    elif body.user is not None:
        whom = call.caller.owner(body.user)
    else:
        raise ProblemError(NOT_FOUND)
    act = Act.here("reveal", detail={"from": "page"})
    await call.run(call.recorder(whom).carry_out(act, lambda checked: append_act(whom, checked)))
    return Revealed()


OWN_ROUTES = routes.router.routes
