"""Pipelines that a session names but no worker has registered: misspelt, or their worker is missing."""

from __future__ import annotations

from difflib import get_close_matches

from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import UnknownPipelineError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.derived.generations import ServingGenerations


def unknown_pipelines(names: str, consequence: str) -> Operation[UnknownPipelineError]:
    """The error for ``names``, separated by commas as the database lists them; it names the registered ones.

    ``consequence`` is a sentence that says what follows from the error.
    """
    rows = yield from fetch(ServingGenerations())
    registered = [row.pipeline for row in rows]
    there = f"registered are {', '.join(registered)}" if registered else "none is registered yet"
    near = [match for name in names.split(", ") for match in get_close_matches(name, registered, n=1)]
    guess = f" (did you mean {', '.join(map(quote, near))}?)" if near else ""
    return UnknownPipelineError(
        f"No worker has registered {names} in this database; {there}. {consequence} Check the spelling{guess}"
        ", start a worker that serves it (`strandline worker`), or leave the block out."
    )
