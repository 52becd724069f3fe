"""The operations behind puts, resets and policy changes, with the compliance hook and the audit trail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from strandline.pipelines.audit.appending import Act
from strandline.producers.arguments import check_flag, listed_messages
from strandline.producers.blocks.base import BaseMemoryBlock
from strandline.producers.memory_parts.search import MemorySearch
from strandline.producers.writing.accepting import Accept, put_whole
from strandline.producers.writing.correcting.reset import reset
from strandline.producers.writing.put import PutRequest, PutResult, put_messages
from strandline.producers.writing.set_policy import PolicySet, set_policy
from strandline.producers.writing.validate import PutLimits
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.postgres.operations import Compute, Operation, Run, is_aside
from strandline.schemas.values.message import HEAD_ROLES
from strandline.schemas.values.policy import Policy, PolicyChange

T = TypeVar("T")


class MemoryWriting(MemorySearch):
    """What the writing methods of ``SessionMemory`` run."""

    _policy: Policy
    _put_limits: PutLimits
    _blocks: tuple[BaseMemoryBlock, ...]
    _count_text: Callable[[str], int]
    _part_tokens: Mapping[str, int]

    def _changing_policy(
        self, change: PolicyChange, actor: str | None, connection: object | None
    ) -> Operation[PolicySet]:
        changing = partial(set_policy, self._identity, change, in_callers_transaction=connection is not None)
        return self._recorder.carry_out(Act.here("policy", actor=actor), changing)

    def _reset_operation(self, derived: bool) -> Operation[None]:
        resetting = partial(reset, self._identity, derived=derived)
        return self._recorder.carry_out(Act.here("forget" if derived else "reset"), resetting)

    def _put_all(
        self,
        messages: Sequence[object],
        replace_prompt: bool,
        accept: Accept,
        *,
        in_callers_transaction: bool,
    ) -> Operation[PutResult]:
        replace_prompt = check_flag("replace_prompt", replace_prompt)
        most = self._resources.settings.max_messages_per_put
        check = partial(self._check_put, messages, max_messages=most, replace_prompt=replace_prompt)
        if self._redaction is not None or is_aside():
            return self._put_checked_aside(check, accept, in_callers_transaction)
        request = check()
        if self._resources.compliance is not None:
            return self._put_checked(request, accept, in_callers_transaction)
        return put_messages(request, accept, in_callers_transaction=in_callers_transaction)

    def _put_checked_aside(
        self, check: Callable[[], PutRequest], accept: Accept, in_callers_transaction: bool
    ) -> Operation[PutResult]:
        request = yield from self._check_aside(check)
        if self._resources.compliance is None:
            return (yield from put_messages(request, accept, in_callers_transaction=in_callers_transaction))
        return (yield from self._put_checked(request, accept, in_callers_transaction))

    def _check_aside(self, check: Callable[[], T]) -> Operation[T]:
        """Check off the event loop: a hook of the application runs, or the messages are large."""
        checked: T = yield Compute(check) if self._redaction is None else Run(check)
        return checked

    def _put_checked(
        self, request: PutRequest, accept: Accept, in_callers_transaction: bool
    ) -> Operation[PutResult]:
        request = yield from self._check_act(request)
        return (yield from put_messages(request, accept, in_callers_transaction=in_callers_transaction))

    def _check_act(self, request: PutRequest) -> Operation[PutRequest]:
        """The put with the flags of the compliance hook, which may refuse it."""
        messages = [message.source for message in request.messages]
        act = yield from self._recorder.check(request.make_act(), messages=messages)
        request.flags = act.flags
        return request

    def _check_put(
        self,
        messages: Sequence[object],
        *,
        max_messages: int,
        is_redacted: bool = False,
        replace_prompt: bool = False,
    ) -> PutRequest:
        request = PutRequest.check(
            messages,
            identity=self._identity,
            policy=self._policy,
            count_text=self._count_text,
            part_tokens=self._part_tokens,
            limits=self._put_limits,
            max_messages=max_messages,
            redaction=None if is_redacted else self._redaction,
            blocks=self._blocks,
        )
        request.turn_delay_seconds = self._resources.settings.turn_delay_seconds
        return _replacing_prompt(request) if replace_prompt else request

    def _replace_operation(self, messages: Sequence[object]) -> Operation[PutResult]:
        messages = listed_messages(messages)
        request: PutRequest | None = None
        if messages:
            limit = self._resources.settings.max_messages_per_put
            check = partial(self._check_put, messages, max_messages=limit)
            request = check() if self._redaction is None else (yield Run(check))
            request.act = None  # all of it is one act
        act = Act.here("set", count=len(messages))
        kept = [] if request is None else [message.source for message in request.messages]
        changing = partial(self._replace_messages, request)
        return (yield from self._recorder.change(act, changing, messages=kept))

    def _replace_messages(self, request: PutRequest | None) -> Operation[PutResult]:
        yield from reset(self._identity, None, derived=False)
        if request is None:
            return PutResult([], None)
        return (yield from put_messages(request, put_whole, in_callers_transaction=True))


def _replacing_prompt(request: PutRequest) -> PutRequest:
    """The put, whose first message takes the place of the prompt; raises InvalidMessageError if it cannot."""
    if request.places[0] != 0 or request.messages[0].role not in HEAD_ROLES:
        where = "message" if len(request.places) == 1 else "messages[0]"
        raise InvalidMessageError(
            f"{where}.role", "must be system or developer: with replace_prompt it becomes the prompt"
        )
    request.replaces_prompt = True
    return request
