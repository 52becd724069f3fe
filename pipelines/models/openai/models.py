"""Text models behind any server that speaks OpenAI's protocol (OpenAI, vLLM, Ollama, …).

Each call is made once: retrying, backing off and giving up belong to the engine.  Further requests repair an
unusable answer (once), find the form that a server takes, and probe whether it answers at all.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus

from strandline.pipelines.models.answer_forms import storable
from strandline.pipelines.models.answers import (
    FEW_ITEMS,
    CheckedAnswer,
    by_numbers_of,
    check_answer,
    items_of,
    with_first,
    without_items,
)
from strandline.pipelines.models.contract import ChooseTask, ModelAnswer, Task, TaskName
from strandline.pipelines.models.loose_json import is_within_thoughts
from strandline.pipelines.models.openai.client import PROBE_SECONDS, ModelClient
from strandline.pipelines.models.openai.errors import (
    RejectedError,
    Rejection,
    after_answers,
    confirmed,
    is_moderated,
    is_too_long,
    judge,
    refuses_everything,
)
from strandline.pipelines.models.openai.replies import Completion, Usage, not_of_form, read_completion
from strandline.pipelines.models.openai.request_forms import (
    THOUGHT_TOKENS,
    KnownForms,
    Messages,
    RequestForm,
    most_tokens,
)
from strandline.pipelines.models.prompts.render import Prompt, render
from strandline.schemas.errors import (
    ModelError,
    PermanentModelError,
    ProviderSetupError,
    RateLimitError,
    TransientModelError,
    UnusableAnswerError,
)
from strandline.schemas.model_roles import Role, TextPurpose, TextRole
from strandline.schemas.settings import Settings

COMPLETIONS = "/chat/completions"
MAX_ECHO_CHARACTERS = 20_000
PROBE_TOKENS = 32
_CHARACTERS_PER_TOKEN = 4
# How an answer begins whose thoughts are over.
_BEGUN = ("{", "[", "`")

logger = logging.getLogger(__name__)


class OpenAITextModel:
    """Answers tasks through chat completions; safe to call from many threads.

    ``prompts`` are own instructions.
    """

    def __init__(
        self,
        client: ModelClient,
        role: Role[TextRole],
        *,
        prompts: Mapping[TaskName, str] | None = None,
    ) -> None:
        self._client = client
        self._role = role
        self._prompts = dict(prompts or {})
        self.model = str(role.of.model)
        self._forms = KnownForms(RequestForm.of_role(role.of))
        # The most lines, or candidates, that are asked about at once.
        self._most = 2**31
        # Whether answers begin with thoughts, and tokens for these.
        self._thinks, self._thoughts = False, THOUGHT_TOKENS

    def close(self) -> None:
        """Close the HTTP connections; calls after this fail."""
        self._client.close()

    def answer(self, task: Task) -> ModelAnswer:
        """Return a checked answer, as one JSON object; at most one repair is asked for.

        Raises:
            TransientModelError: time-out, connection failure, 429, 5xx, or a wrong key, model or address.
            PermanentModelError: refused, or unusable after the repair.
        """
        shown = with_first(task, self._most)
        prompt = render(shown, self._prompts)
        checked, spent = self._ask(shown, _messages(prompt))
        asked = len(items_of(shown))
        text = by_numbers_of(task, asked, checked)
        if checked.covered is not None:
            self._most = FEW_ITEMS
        elif asked == self._most:
            self._most *= 2
        return ModelAnswer(text, self.model, prompt.hash, spent.prompt_tokens, spent.completion_tokens)

    def _ask(self, task: Task, messages: Messages) -> tuple[CheckedAnswer, Usage]:
        limit, spent, best, problem = self._role.of.max_tokens, Usage(), CheckedAnswer("", weight=-1), ""
        thinks = self._thinks
        for is_repair in (False, True):
            room = limit or most_tokens(task) + thinks * self._thoughts
            try:
                with after_answers(some=is_repair):
                    completion = self._complete(messages, task.name, room)
            except ModelError as error:
                if best.weight > 0 and not _passes(error):
                    break
                raise
            usage = completion.usage or _estimate_usage(messages, completion)
            spent = spent.plus(usage)
            if completion.is_refused:
                if best.weight > 0:
                    break
                raise PermanentModelError("The model refused to answer for this input.")
            try:
                is_draft = completion.is_cut_off and is_within_thoughts(completion.text)
                checked = check_answer(task, "" if is_draft else completion.text)
            except PermanentModelError as error:
                problem = str(error)
            else:
                if not checked.shortcoming:
                    if thinks:
                        self._thinks, self._thoughts = True, THOUGHT_TOKENS
                    return checked, spent
                # A server that ends answers below the limit asked for ends the next ones there as well.
                if not checked.is_enough and 2 * usage.completion_tokens > room:
                    checked = replace(checked, covered=None)
                best, problem = max(best, checked, key=lambda one: one.weight), checked.shortcoming
            if completion.is_broken and not best.covered:
                raise not_of_form()
            if completion.has_no_end:
                allowing = self._role.place("timeout_seconds")
                problem = f"The answer did not end: it had no end, or took longer than {allowing} allows."
            elif completion.is_cut_off:
                raised_by = self._role.place("max_tokens")
                problem = f"The answer was cut off because it became too long; {raised_by} allows more."
            if completion.has_no_end or completion.is_broken or (best.covered is not None and best.is_enough):
                break
            thinks = thinks or (completion.is_cut_off and not completion.text.lstrip().startswith(_BEGUN))
            messages = _repair(messages, completion, problem)
        if thinks and completion.is_cut_off and not completion.is_broken:
            self._thoughts //= 2  # more did not help
        if best.text:
            logger.warning("an answer is used in part", extra={"model": self.model, "reason": problem})
            return best, spent
        if completion.is_cut_off and len(items_of(task)) > FEW_ITEMS:
            return without_items(task), spent
        if not completion.text.strip() and not completion.is_cut_off:
            self.probe()  # which finds out whether all answers are empty
        repaired = " after one repair" if is_repair else ""
        raise UnusableAnswerError(f"The model's answer stayed unusable{repaired}. {problem}")

    def probe(self) -> None:
        """Make the smallest request in the form of a real one, to learn whether the server answers at all.

        Raises: as ``answer``; a refusal is never the input's fault.
        """
        task = ChooseTask("What is OK?", (), 1)
        messages = _messages(render(task))
        seconds = min(PROBE_SECONDS, self._role.of.timeout_seconds or PROBE_SECONDS)
        try:
            completion = self._complete(
                messages, task.name, PROBE_TOKENS, is_probe=True, timeout_seconds=seconds
            )
        except PermanentModelError as error:
            raise TransientModelError(str(error)) from None
        if not (completion.text.strip() or completion.is_cut_off or completion.is_refused):
            raise TransientModelError(
                f"The model server's answers are empty; check {self._role.place('model')}."
            )

    def _complete(
        self,
        messages: Messages,
        task: TaskName,
        room: int,
        *,
        is_probe: bool = False,
        timeout_seconds: float | None = None,
    ) -> Completion:
        form, is_explained = self._forms.now(), True
        while True:
            request = form.request(self.model, messages, task, room)
            body = None
            try:
                body = self._client.post(COMPLETIONS, request, timeout_seconds=timeout_seconds)
                completion = read_completion(body)
                if completion.is_broken and self._forms.without_stream(form):
                    raise not_of_form()
            except RejectedError as error:
                rejection = error.rejection
            except TransientModelError:
                if body is None or (plain := self._forms.without_stream(form)) is None:
                    raise
                form, is_explained = plain, False
                continue
            else:
                if self._forms.keep(form, is_explained=is_explained):
                    logger.info(
                        "model server needs a weaker request form",
                        extra={
                            "model": self.model,
                            "answer_form": form.answer,
                            "temperature": form.temperature,
                        },
                    )
                return completion
            problem = judge(rejection, self._role)
            if is_moderated(rejection):
                raise problem
            weaker = form.weaker(rejection, room)
            is_explained = is_explained and "json_validate" not in rejection.subject
            if weaker is None and not _is_explained(rejection, problem):
                weaker, is_explained = self._forms.plainer(form, rejection), False
            if weaker is None:
                # A 500 may say of the server's own memory or queue what others say of an input.
                is_certain = is_too_long(rejection) and rejection.status < HTTPStatus.INTERNAL_SERVER_ERROR
                if isinstance(problem, PermanentModelError) and not is_certain:
                    if is_probe:
                        raise refuses_everything(rejection, self._role)
                    self.probe()  # a server that refuses everything has its own reason
                certain = judge(rejection.certain, self._role)
                raise problem if is_probe else confirmed(problem, certain, self.probe)
            form = weaker


def text_model_from(
    settings: Settings,
    *,
    purpose: TextPurpose,
    prompts: Mapping[TaskName, str] | None = None,
    is_quoted: bool = False,
) -> OpenAITextModel:
    """The configured text model of a role, with its own client; ``is_quoted`` as for ``Role``.

    Raises: as ``ModelClient``.
    """
    role = replace(settings.text_role(purpose), is_quoted=is_quoted)
    client = ModelClient(role, connect_timeout_seconds=settings.connect_timeout_seconds)
    return OpenAITextModel(client, role, prompts=prompts)


def _passes(error: ModelError) -> bool:
    """Whether a call may succeed soon; not if a limit or the time for it may be met again each time."""
    if isinstance(error, RateLimitError) or not isinstance(error, TransientModelError):
        return False
    return not error.is_slow


def _is_explained(rejection: Rejection, error: ModelError) -> bool:
    """Whether a refusal is for another reason than the form of the request."""
    is_known = isinstance(error, (ProviderSetupError, RateLimitError))
    return is_known and rejection.status not in (405, 406, 415)


def _messages(prompt: Prompt) -> Messages:
    return [{"role": "system", "content": prompt.instructions}, {"role": "user", "content": prompt.data}]


def _estimate_usage(messages: Messages, completion: Completion) -> Usage:
    asked = sum(len(message["content"]) for message in messages)
    return Usage(
        prompt_tokens=asked // _CHARACTERS_PER_TOKEN,
        completion_tokens=len(completion.text) // _CHARACTERS_PER_TOKEN,
    )


def _repair(messages: Messages, completion: Completion, problem: str) -> Messages:
    system, user, *_ = messages
    if completion.is_cut_off:
        wish = "An earlier answer became too long and was cut off. Answer much more briefly."
        return [system, {**user, "content": f"{user['content']}\n\n{wish}"}]
    echo = storable(completion.text[:MAX_ECHO_CHARACTERS]) or "(empty)"
    wish = f"This answer cannot be used. {problem} Answer again, with the corrected JSON object only."
    return [system, user, {"role": "assistant", "content": echo}, {"role": "user", "content": wish}]
