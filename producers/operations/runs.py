"""Operations on the runs of agents, and the summary of the last messages or runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from strandline.producers.arguments import check_count, listed_messages
from strandline.producers.model_calls import payer_of
from strandline.producers.operations.session import Session
from strandline.producers.operations.writing import check_aside, check_put
from strandline.producers.runs import add
from strandline.producers.runs.add import AddedRun, RunRequest, name_messages
from strandline.producers.runs.latest_summary import (
    MAX_SUMMARIZED_MESSAGES,
    LatestSummary,
    LatestSummaryRequest,
)
from strandline.producers.runs.latest_summary import summarize_last as summarize_latest
from strandline.producers.runs.run import (
    DEFAULT_LAST_RUNS,
    UNFINISHED,
    RunHistoryRequest,
    RunRecord,
    SessionRun,
    check_roles,
    check_statuses,
)
from strandline.producers.runs.run import run_history as stored_run_history
from strandline.producers.writing.correcting.correct import Replacement
from strandline.producers.writing.put import PutRequest
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.operations import Operation, is_aside
from strandline.schemas.values.acts.capture import Capture
from strandline.schemas.values.identity import check_name
from strandline.schemas.values.message import Message, Role, RunStatus


def add_run(
    session: Session,
    run_id: str,
    messages: Sequence[object],
    *,
    status: RunStatus = "completed",
    agent_id: str | None = None,
    team_id: str | None = None,
    connection: object | None = None,
) -> Operation[SessionRun]:
    """Put the messages of an agent's run, as ``put_messages`` does, and keep which they are.

    The same id again replaces the run: messages that are as they were stay, the others are taken back as
    by ``rewind`` if the run is the last, or given other content as by ``replace`` if it is not.  If a run
    in the middle has other calls or roles, or another number of messages, the log is taken back up to the
    first of these, and what stood behind is put again behind the run, under new numbers.  All or nothing.
    A message that a person replaced or took back stands as the person left it, as long as the run brings
    it as before; a run of which nothing is left is as new.

    A system message without an id is stored once, whichever runs bring it.  Other messages without an
    id get one of the run's id and their place, so a repeated call adds nothing.

    Args:
        run_id: names the run in its session; at most 512 bytes.
        messages: all messages of the run, in order; at most as many as one put takes.
        status: ``pending``, ``running``, ``paused``, ``completed``, ``cancelled`` or ``error``.
        agent_id, team_id: who ran, for ``run_history``.

    Raises:
        InvalidMessageError: a message or an id cannot be stored as given.
        ConfigurationError: ``status`` is unknown.
        ConflictError: a message's id was already used with different content; or the run has other
            messages now, and too many were put behind it.
        DeliveredError: a message of the pinned head would have to go, and others were delivered.
        OwnerError, UnknownPipelineError, DatabaseUnavailableError: as ``put``.
    """
    record = RunRecord.check(session.identity, run_id, status, agent_id, team_id)
    sources = listed_messages(messages)
    check = partial(_check_run, session, record, sources)
    is_quick = session.redaction is None and not is_aside()
    put, request = check() if is_quick else (yield from check_aside(session, check))
    kept = [message.source for message in request.messages]
    adding = partial(add.add_run, request)
    added: AddedRun = yield from session.recorder.carry_out(put.make_act(), adding, messages=kept)
    session.notify(added.flushed, connection)
    return added.run


def run_history(
    session: Session,
    last_n: int | None = DEFAULT_LAST_RUNS,
    *,
    skip_roles: Sequence[Role] = (),
    skip_statuses: Sequence[RunStatus] = UNFINISHED,
    agent_id: str | None = None,
    team_id: str | None = None,
    connection: object | None = None,
) -> Operation[list[Message]]:
    """The messages of the last runs, in the order of the runs.

    A message of several runs is given once, and so is the system message: the first run's.  Messages that
    were put without a run are in ``history``, and not here.

    Args:
        last_n: number of runs, among runs that pass the filters and have messages left; 0: none, None: all.
        skip_roles: roles whose messages are left out.
        skip_statuses: statuses of runs that are left out; by default all but ``completed``.
        agent_id, team_id: only runs of these.

    Raises:
        ConfigurationError: an argument is not one of these; the error names it.
        OwnerError, DatabaseUnavailableError: as ``get``.
    """
    request = RunHistoryRequest(
        session.identity,
        None if last_n is None else check_count("last_n", last_n),
        check_roles(skip_roles),
        check_statuses(skip_statuses),
        None if agent_id is None else check_name("agent_id", agent_id),
        None if team_id is None else check_name("team_id", team_id),
    )
    return session.record_read("history", stored_run_history(request), connection)


def _check_run(
    session: Session, record: RunRecord, sources: Sequence[object]
) -> tuple[PutRequest, RunRequest]:
    names = name_messages(session.identity, record.run_id, sources, session.rules)
    # Its messages were redacted when they were named, or when they were put.
    check = partial(check_put, session, is_redacted=True)
    put = check(list(names))
    request = RunRequest(
        record=record,
        messages=tuple(put.messages[place] for place in put.places if place is not None),
        check=check,
        replacement=partial(_replacement, session),
        max_messages=session.resources.settings.max_messages_per_put,
    )
    return put, request


def _replacement(session: Session, seq: int, message: Message) -> Replacement:
    return Replacement(seq, message.content, session.rules)


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
