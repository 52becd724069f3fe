"""The forms of requests: from full support down to the least that all servers take.

A refusal that names its objection gives the next form; an unexplained one leads to the plainest, once.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from strandline.pipelines.models.answer_forms import answer_schema
from strandline.pipelines.models.contract import (
    ChooseTask,
    ExtractTask,
    MergeTask,
    NumberedFact,
    SummaryTask,
    Task,
    TaskName,
    TranscriptLine,
)
from strandline.pipelines.models.openai.errors import Rejection
from strandline.pipelines.models.openai.replies import MAX_TOKENS_OF_CALL
from strandline.schemas.model_roles import TextRole

Messages = Sequence[dict[str, str]]

# Room for an answer and the thoughts before it; more is added by the task.
_BASE_TOKENS = 512
# Around the words of an item, and bytes of its words for each token.
_TOKENS_PER_ITEM = 48
_BYTES_PER_TOKEN = 3
_TOKENS_PER_NUMBER = 8
# An answer that was cut off before it said anything is asked for once more with so much room for thoughts.
THOUGHT_TOKENS = 16_384

# A form that is weaker than it need be is given up after so long.
_FORM_SECONDS = 3_600.0

_REFUSING = frozenset({400, 404, 405, 406, 415, 422, 500, 501})
# Statuses of an unexplained refusal of the form.
_UNEXPLAINED = _REFUSING - {404}

_ANSWER_FORMAT = re.compile(
    r"response.?format|json.?schema|json.?object|json_validate|structured.?output|guided|grammar|response.?schema"
    r"|additionalProperties|schema conversion|no endpoints found",
    re.IGNORECASE,
)
_SYSTEM = re.compile(
    r"system.{0,3}(role|message|prompt|instruction)|role.{0,30}\bsystem\b|messages\[0\]"
    r"|\bsystem\b.{0,40}not support|roles must alternate|only user and assistant roles",
    re.IGNORECASE,
)
_LIMIT = re.compile(
    r"max_(completion_|new_)?tokens|maximum context|context.{0,3}(length|window)", re.IGNORECASE
)
# No lower limit is worth asking with.
_MIN_LIMIT_TOKENS = 256
# Also in groups of three, but none within a name or a date.
_NUMBER = re.compile(r"(?<![\w-])(?:(?<!\[)\d{1,3}(?:,\d{3})+|\d{3,7})(?![\w-])")
_STREAM = re.compile(r"(?<![a-z])stream|server-sent|\bSSE\b", re.IGNORECASE)
_TEMPERATURE = re.compile(r"temperature", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RequestForm:
    """A request's features."""

    answer: Literal["json_schema", "json_object", "text"] = "json_schema"
    temperature: float | None = 0
    system: bool = True
    limit: Literal["max_tokens", "max_completion_tokens", "none"] = "max_tokens"
    # The most that the limit may be.
    most_tokens: int = MAX_TOKENS_OF_CALL
    stream: Literal["with usage", "plain", "none"] = "with usage"
    # The configured form of answers stays, even if a server objects to it.
    keeps_answer: bool = False

    @classmethod
    def of_role(cls, role: TextRole) -> RequestForm:
        """The form that a role's settings ask for; the strongest where they ask for none."""
        answer, limit = role.answer_form or "auto", role.max_tokens_field or "auto"
        temperature = 0 if role.temperature is None else role.temperature
        return cls(
            answer="json_schema" if answer == "auto" else answer,
            temperature=None if temperature == "none" else temperature,
            limit="max_tokens" if limit == "auto" else limit,
            keeps_answer=answer != "auto",
        )

    def plainest(self) -> RequestForm:
        """The form that all servers take."""
        answer = self.answer if self.keeps_answer else "text"
        return RequestForm(
            answer, None, system=False, limit="none", stream="none", keeps_answer=self.keeps_answer
        )

    def weaker(self, rejection: Rejection, asked_tokens: int) -> RequestForm | None:
        """The form without what ``rejection`` names; None if it names nothing that this form has.

        A limit of tokens that is refused is lowered to a number that the refusal has: the largest lower one,
        and then the smallest, so that few requests find it.
        """
        if rejection.status not in _REFUSING:
            return None
        words = rejection.subject
        if self.temperature is not None and _TEMPERATURE.search(words):
            return replace(self, temperature=None)
        if self.limit != "none" and _LIMIT.search(words):
            if self.limit == "max_tokens" and "max_completion_tokens" in words:
                return replace(self, limit="max_completion_tokens")
            asked = min(asked_tokens, self.most_tokens)
            numbers = {int(number.replace(",", "")) for number in _NUMBER.findall(words)}
            lower = [n for n in numbers - {rejection.status} if _MIN_LIMIT_TOKENS <= n < asked]
            if lower:
                is_first = self.most_tokens == MAX_TOKENS_OF_CALL
                return replace(self, most_tokens=max(lower) if is_first else min(lower))
            return replace(self, limit="none")
        if self.answer != "text" and not self.keeps_answer and _ANSWER_FORMAT.search(words):
            return replace(self, answer="json_object" if self.answer == "json_schema" else "text")
        if self.system and _SYSTEM.search(words):
            return replace(self, system=False)
        if self.stream != "none" and _STREAM.search(words):
            return replace(self, stream="plain" if self.stream == "with usage" else "none")
        return None

    def request(self, model: str, messages: Messages, task: TaskName, max_tokens: int) -> dict[str, Any]:
        """The body of a request in this form."""
        request: dict[str, Any] = {"model": model, "messages": self._messages(messages, task)}
        if self.temperature is not None:
            request["temperature"] = self.temperature
        if self.limit != "none":
            request[self.limit] = min(max_tokens, self.most_tokens)
        if self.answer == "json_schema":
            schema = {"name": task, "strict": True, "schema": answer_schema(task)}
            request["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif self.answer == "json_object":
            request["response_format"] = {"type": "json_object"}
        if self.stream != "none":
            request["stream"] = True
        if self.stream == "with usage":
            request["stream_options"] = {"include_usage": True}
        return request

    def _messages(self, messages: Messages, task: TaskName) -> list[dict[str, str]]:
        system, user, *rest = messages
        instructions = system["content"]
        if self.answer != "json_schema":
            schema = json.dumps(answer_schema(task))
            instructions += (
                "\nAnswer with JSON only: no code fence and no other word."
                f" The JSON schema of the answer: {schema}"
            )
        if self.system:
            return [{**system, "content": instructions}, user, *rest]
        return [{**user, "content": f"{instructions}\n\n{user['content']}"}, *rest]


class KnownForms:
    """The form that a server is asked in, and the forms that it took; threads only repeat a request here."""

    def __init__(self, strongest: RequestForm) -> None:
        self._form = self._strongest = strongest
        self._until = float("inf")
        self._worked: frozenset[RequestForm] = frozenset()
        # How often in a row the plainest form helped, and nothing said why.
        self._helped = 0
        self._is_broken_in_any = False

    def now(self) -> RequestForm:
        """The form to ask in."""
        if time.monotonic() > self._until:
            self._form, self._until = self._strongest, float("inf")
        return self._form

    def plainer(self, form: RequestForm, rejection: Rejection) -> RequestForm | None:
        """The plainest form if an unexplained refusal may be about the form; a 500 is not once it worked."""
        plainest, is_proven = form.plainest(), form in self._worked or self._is_broken_in_any
        may_help = rejection.status in (400, 422) or not is_proven
        if form != plainest and may_help and rejection.status in _UNEXPLAINED:
            return plainest
        self._is_broken_in_any = rejection.status >= 500
        return None

    def without_stream(self, form: RequestForm) -> RequestForm | None:
        """The form without a stream, if none of the server's streams was ever read."""
        is_proven = form.stream == "none" or any(one.stream == form.stream for one in self._worked)
        return None if is_proven else replace(form, stream="none")

    def keep(self, form: RequestForm, *, is_explained: bool) -> bool:
        """Ask in this form from now on; without an explanation, only once it has helped twice.

        Returns whether that is another form than before.
        """
        self._is_broken_in_any = False
        self._worked |= {form}
        self._helped = 0 if is_explained else self._helped + 1
        if form == self._form or self._helped == 1:
            return False
        self._form, self._until = form, time.monotonic() + _FORM_SECONDS
        return True


def most_tokens(task: Task) -> int:
    """The tokens that an answer to ``task`` may take: each of its lines or facts said again, as an item."""
    items: Sequence[TranscriptLine | NumberedFact]
    match task:
        case ExtractTask():
            items = task.lines
        case MergeTask():
            items = task.candidates
        case ChooseTask():
            return _BASE_TOKENS + _TOKENS_PER_NUMBER * task.max_facts
        case SummaryTask():
            return _BASE_TOKENS + 2 * task.max_tokens
        case _:
            items = task.facts
    return _BASE_TOKENS + sum(
        _TOKENS_PER_ITEM + len(item.text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN for item in items
    )
