"""A summary of the last messages or runs, made by a model while the caller waits."""

from __future__ import annotations

from functools import partial

from strandline.producers.arguments import check_count
from strandline.producers.model_calls import payer_of
from strandline.producers.operations.session import Session
from strandline.producers.runs.latest_summary import (
    MAX_SUMMARIZED_MESSAGES,
    LatestSummary,
    LatestSummaryRequest,
)
from strandline.producers.runs.latest_summary import summarize_last as summarize_latest
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.acts.capture import Capture
from strandline.schemas.values.identity import check_name


def summarize_last(
    session: Session,
    messages: int | None = None,
    *,
    runs: int | None = None,
    instructions: str | None = None,
    model: str | None = None,
) -> Operation[LatestSummary | None]:
    """Have a model summarize the last messages, or the last runs' messages; None if nothing was said.

    This process calls the model that ``STRANDLINE_SUMMARY_MODEL`` names, once, and waits for it.  Nothing
    is delivered, and nothing is stored: ``summarize`` makes the session's own summary, which covers all of
    it.  The result has its cost; the ledger and the namespace's budget count it.

    Args:
        messages: of the newest so many messages, up to 1,000, system messages aside; of a longer text
            than 120,000 characters, the newest part.
        runs: only of the last so many runs that came to an end (``add_run``).
        instructions: how to write it, in place of the prompt's, at most 8,000 characters; by
            default as an operator set it (``Capture.summary_instructions``).  It becomes part of the
            prompt: never put users' words there.
        model: another model of the same server.

    Raises:
        ConfigurationError: neither ``messages`` nor ``runs`` is given, or one is out of bounds; no model is
            configured, or many have been named.
        InvalidMessageError: ``instructions`` or ``model`` cannot be used.
        ModelError: the model does not answer, or not in the form asked for; or the namespace has used up
            its budget, and the model was not asked.
        OwnerError, DatabaseUnavailableError: as ``get``.
    """
    if messages is None and runs is None:
        raise ConfigurationError(
            "Say what to summarize: messages= or runs=, the number of the last ones.",
            for_clients="Say what to summarize: `messages` or `runs`, the number of the last ones.",
        )
    settings = session.resources.settings
    name = settings.summary_model if model is None else check_name("model", model)
    summary = summarize_latest(
        LatestSummaryRequest(
            identity=session.identity,
            messages=None if messages is None else _message_count(messages),
            runs=None if runs is None else check_count("runs", runs),
            instructions=Capture(summary_instructions=instructions).check().summary_instructions,
            max_tokens=settings.summary_max_tokens,
            ask_model=partial(session.resources.ask_model, model=name),
            payer=payer_of(session.identity, settings),
        )
    )
    return session.record_read("summary.read", summary)


def _message_count(messages: int) -> int:
    if check_count("messages", messages) > MAX_SUMMARIZED_MESSAGES:
        raise ConfigurationError(
            f"messages is {messages:,}; at most {MAX_SUMMARIZED_MESSAGES:,} are summarized at once."
        )
    return messages
