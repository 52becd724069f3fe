"""Dead letters: what pipelines gave up on, by reason; retried or given up for good."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from strandline.schemas.wire import acts
from strandline.schemas.wire.acts import WireAct
from strandline.service.pages.asking import AnswerError
from strandline.service.pages.routing import Pages
from strandline.service.pages.sessions import PATH
from strandline.service.pages.visits import Visit, way_to

pages = Pages()
LETTERS_SHOWN = 100


@pages("GET /letters")
async def show_letters(visit: Visit) -> Response:
    """The oldest of them, grouped by stage and reason."""
    query = {name: visit.query.get(name) for name in ("pipeline", "cursor", "dropped")}
    letters = await visit.ask(acts.GET_LETTERS, query={**query, "limit": LETTERS_SHOWN})
    groups: dict[tuple[str, str], list[Any]] = {}
    for letter in letters["items"]:
        groups.setdefault((letter["stage"], letter["reason"]), []).append(letter)
    return await visit.page("letters.html", groups=groups, following=letters["next_cursor"])


@pages("POST /letters/retry")
async def retry(visit: Visit) -> Response:
    """Make the chosen events due again."""
    return await _act_on(visit, acts.RETRY_LETTER, "due")


@pages("POST /letters/drop")
async def drop(visit: Visit) -> Response:
    """Give the chosen events up."""
    return await _act_on(visit, acts.DROP_LETTER, "dropped")


@pages("POST /sessions/{session_id}/messages/{message_id}/retry")
async def retry_message(visit: Visit) -> Response:
    """Make the event of a message due again, in the stages that gave up on it."""
    outcomes = await _outcomes(visit, acts.RETRY_LETTER, visit.field("event_id") or "")
    return way_to(visit.path.removesuffix("/retry"), **_notice(outcomes, "due"))


async def _act_on(visit: Visit, act: WireAct, outcome: str) -> Response:
    chosen = dict.fromkeys(visit.fields.get("letter", [])[:LETTERS_SHOWN])
    outcomes = [one for letter in chosen for one in await _outcomes(visit, act, letter)]
    return way_to(visit.address(f"{PATH}/letters", **_notice(outcomes, outcome)))


async def _outcomes(visit: Visit, act: WireAct, letter: str) -> list[str]:
    event_id, _, stage = letter.partition(" ")
    try:
        answer = await visit.ask(act, event_id=event_id, query={"stage": stage})
    except AnswerError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return ["gone"]
    return [one["outcome"] for one in answer["items"]]


def _notice(outcomes: list[str], outcome: str) -> dict[str, str]:
    """The query by which the next page says how many of the letters have this outcome."""
    done, of = outcomes.count(outcome), len(outcomes)
    if 0 < done < of:
        return {"done": f"part-{outcome}", "part": f"{done} of {of}"}
    return {"done": outcome if done else "gone" if of else "unticked"}
