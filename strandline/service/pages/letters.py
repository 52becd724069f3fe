"""Dead letters: what pipelines gave up on, by reason; retried or given up for good."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from starlette.responses import Response

from strandline.schemas.wire import acts
from strandline.schemas.wire.acts import WireAct
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
    return visit.page("letters.html", groups=groups, following=letters["next_cursor"])


@pages("POST /letters/retry")
async def retry(visit: Visit) -> Response:
    """Make the chosen events due again."""
    return await _act_on(visit, acts.RETRY_LETTER, "retried")


@pages("POST /letters/drop")
async def drop(visit: Visit) -> Response:
    """Give the chosen events up."""
    return await _act_on(visit, acts.DROP_LETTER, "dropped")


async def _act_on(visit: Visit, act: WireAct, done: str) -> Response:
    outcomes = await _outcomes(visit, act, visit.fields.get("letter", [])[:LETTERS_SHOWN])
    is_done = {"due", "void", "dropped"} & {*outcomes}
    return way_to(f"{PATH}/letters", done=done if is_done else "gone")


async def _outcomes(visit: Visit, act: WireAct, chosen: Sequence[str]) -> Iterable[str]:
    outcomes = []
    for letter in chosen:
        event_id, _, stage = letter.partition(" ")
        answer = await visit.ask(act, event_id=event_id, query={"stage": stage})
        outcomes += [one["outcome"] for one in answer["items"]]
    return outcomes
