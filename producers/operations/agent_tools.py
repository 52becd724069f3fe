"""The tools that a session's memory offers to an agent, and their calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from strandline.producers.arguments import check_flag
from strandline.producers.operations.reading import make_read
from strandline.producers.operations.session import Session
from strandline.producers.reading.request import ReadRequest
from strandline.producers.tools import calling as calls
from strandline.producers.tools.calling import ToolScope
from strandline.schemas.postgres.operations import Operation


def call_tool(
    session: Session, name: str, arguments: str | Mapping[str, Any] | None = None, *, read_only: bool = False
) -> Operation[dict[str, Any]]:
    """Carry out a model's call of one of ``tools()``; return what ``json.dumps`` takes, for the model.

    A call that cannot be carried out (an unknown tool or id, wrong arguments, broken JSON) raises
    nothing: the result then has ``error``, one of ``unknown_tool``, ``invalid_arguments``, ``not_found``
    and ``read_only``, and ``message``, a sentence for the model.  Changes are recorded with the actor
    ``agent``.

    Args:
        arguments: the JSON text of the model's call, or a mapping.
        read_only: refuse the tools that change something.  A namespace can refuse them to all its
            memories (`strandline limits set NAMESPACE --agents-read-only`).

    Raises:
        ConfigurationError: ``read_only`` is neither True nor False.
        OwnerError: the session belongs to another owner.
        RedactionError: a redaction hook failed, or took too long; nothing was stored.
        UnknownPipelineError: no worker has ever run, so there is nowhere to keep facts.
        DatabaseUnavailableError: Postgres cannot be reached.
    """
    scope = ToolScope(
        session.identity,
        session.resources.embed_query,
        partial(_read_for_tool, session),
        session.recorder,
        session.redaction,
    )
    calling = calls.call_tool(scope, name, arguments, read_only=check_flag("read_only", read_only))
    return (yield from calling).as_json()


def _read_for_tool(session: Session, question: str, token_limit: int) -> ReadRequest:
    request = make_read(session, question)
    limit = min(token_limit, request.token_limit)
    # The rest is for what matches the question.
    return replace(request, token_limit=limit, within_own=False, latest_tokens=limit // 4)
