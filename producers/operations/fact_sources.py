"""Operations that make facts of messages that are in no chat, and change them by an instruction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from strandline.pipelines.audit.appending import Act
from strandline.producers.arguments import check_timeout
from strandline.producers.operations.facts import FactOwner
from strandline.producers.sessions import SessionKind
from strandline.producers.writing.correcting.reset import reset
from strandline.producers.writing.sources import (
    FactChanges,
    SourceRequest,
    keep_source,
    named_source,
    wait_for_changes,
)
from strandline.producers.writing.validate import PutLimits, PutRules
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.postgres.operations import Operation, Run
from strandline.schemas.values.same_named import make_from
from strandline.schemas.values.stored_text import check_text

MAX_INSTRUCTION_CHARACTERS = 2_000


def create_from(
    facts: FactOwner, messages: Sequence[object], *, key: str | None = None, wait: float | None = None
) -> Operation[FactChanges]:
    """Have facts made of messages outside any chat; return the outcome.

    The messages are kept as the source of these facts, and appear in neither lists of sessions nor searches.
    Workers read them as they read a chat's flushes.

    Args:
        messages: ``Message`` objects or OpenAI dicts, together one conversation.
        key: a name for this call; repeating it with the same messages adds nothing. Default: a new one.
        wait: the longest wait for the workers, in seconds; None: do not wait.

    Raises:
        ConfigurationError: these are the facts of a session without a user.
        InvalidMessageError: a message or ``key`` cannot be used.
        ConflictError: the key was already used with other messages; nothing was stored.
        UnknownPipelineError: no worker has registered facts in this database.
    """
    return _keep(facts, messages, key, wait, "source")


def instruct(
    facts: FactOwner, task: str, *, key: str | None = None, wait: float | None = None
) -> Operation[FactChanges]:
    """Have this user's facts changed as the user asks for ("forget my address"); return the changes.

    A model reads the newest 400 facts with the instruction.  Its changes are recorded as edits with
    the actor ``instruction``, holds in every derivation, and concerns this user alone.  Operations that
    are switched off (``set_capture``) are left out.  ``failure`` of the result says why it failed: the
    model's answer was unusable, or there is only the local stand-in.

    Args:
        task: the instruction, at most 2,000 characters.
        key, wait: as for ``create_from``.

    Raises: as ``create_from``.
    """
    return _keep(facts, [_instruction(task)], key, wait, "instruction")


def forget_source(facts: FactOwner, source_id: str) -> Operation[None]:
    """Delete a source's messages, and the facts that only it supports; unknown ids change nothing."""
    resetting = partial(reset, named_source(facts.owner, source_id), derived=True)
    return facts.recorder.carry_out(Act.here("forget"), resetting)


def _keep(
    facts: FactOwner, messages: Sequence[object], key: str | None, wait: float | None, kind: SessionKind
) -> Operation[FactChanges]:
    settings = facts.resources.settings
    wait_seconds = None if wait is None else check_timeout(wait)
    check = partial(
        SourceRequest.check,
        facts.owner,
        messages,
        key=key,
        kind=kind,
        rules=PutRules(make_from(PutLimits, settings), facts.redaction),
        max_messages=settings.max_messages_per_put,
    )
    return _keep_and_wait(facts, check, wait_seconds)


def _keep_and_wait(
    facts: FactOwner, check: Callable[[], SourceRequest], wait_seconds: float | None
) -> Operation[FactChanges]:
    request = check() if facts.redaction is None else (yield Run(check))
    request.put.act = "facts.source" if request.kind == "source" else "facts.instruct"
    messages = [message.source for message in request.put.messages]
    act = yield from facts.recorder.check(request.put.make_act(), messages=messages)
    request.put.flags = act.flags
    source = yield from keep_source(request)
    yield Run(lambda: facts.resources.ring(source.lanes))
    return (yield from wait_for_changes(facts.owner, source, wait_seconds))


def _instruction(task: object) -> dict[str, str]:
    check_text("task", task)
    text = str(task).strip()
    if not text or len(text) > MAX_INSTRUCTION_CHARACTERS:
        raise InvalidMessageError(
            "task", f"must have between 1 and {MAX_INSTRUCTION_CHARACTERS:,} characters; it has {len(text):,}"
        )
    return {"role": "user", "content": text}
