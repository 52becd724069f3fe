"""Text models behind any server that speaks OpenAI's protocol (OpenAI, vLLM, Ollama, …).

Each call is made once: retrying, backing off and giving up belong to the engine.  Further requests repair an
unusable answer (once), find the form that a server takes, and probe whether it answers at all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from strandline.pipelines.models.answer_forms import storable
from strandline.pipelines.models.answers import CheckedAnswer, check_answer
from strandline.pipelines.models.contract import ChooseTask, ModelAnswer, Task, TaskName
from strandline.pipelines.models.openai.client import PROBE_SECONDS, ModelClient
from strandline.pipelines.models.openai.errors import (
    RejectedError,
    Rejection,
    after_answers,
    is_moderated,
    is_too_long,
    judge,
    refuses_everything,
)
from strandline.pipelines.models.openai.replies import Completion, Usage, read_completion
from strandline.pipelines.models.openai.request_forms import (
    MORE_ROOM,
    Messages,
    RequestForm,
    may_be_about_form,
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
# A form that is weaker than it need be is given up after so long.
FORM_SECONDS = 3_600.0
_CHARACTERS_PER_TOKEN = 4

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
        # Replaced as a whole once a weaker form has worked; threads that race here only repeat a request.
        self._form = self._strongest = RequestForm.of_role(role.of)
        self._form_until = float("inf")
        self._worked: frozenset[RequestForm] = frozenset()
        # How often in a row the plainest form helped, and nothing said why.
        self._helped = 0
        self._has_answered = False
        self._is_broken_in_any_form = False

    def close(self) -> None:
        """Close the HTTP connections; calls after this fail."""
        self._client.close()

    def answer(self, task: Task) -> ModelAnswer:
        """Return a checked answer, as one JSON object; at most one repair is asked for.

        Raises:
            TransientModelError: time-out, connection failure, 429, 5xx, or a wrong key, model or address.
            PermanentModelError: refused, or unusable after the repair.
        """
        prompt = render(task, self._prompts)
        messages = _messages(prompt)
        limit, spent, best, problem = self._role.of.max_tokens, Usage(), CheckedAnswer("", weight=-1), ""
        room = limit or most_tokens(task)
        for is_repair in (False, True):
            try:
                with after_answers(some=is_repair):
                    completion = self._complete(messages, task.name, room)
            except ModelError as error:
                if best.weight > 0 and not _passes(error):
                    break
                raise
            spent = spent.plus(completion.usage or _estimate_usage(messages, completion))
            if completion.is_refused:
                if best.weight > 0:
                    break
                raise PermanentModelError("The model refused to answer for this input.")
            try:
                checked = check_answer(task, completion.text)
            except PermanentModelError as error:
                problem = str(error)
                if completion.is_cut_off:
                    raised_by = self._role.place("max_tokens")
                    problem = f"The answer was cut off because it became too long; {raised_by} allows more."
            else:
                if not checked.shortcoming:
                    return self._answer(prompt, checked, spent)
                best, problem = max(best, checked, key=lambda one: one.weight), checked.shortcoming
            room *= MORE_ROOM if completion.is_cut_off and limit is None else 1
            messages = _repair(messages, completion, problem)
        if best.text:
            logger.warning("an answer is used in part", extra={"model": self.model, "reason": problem})
            return self._answer(prompt, best, spent)
        if not completion.text.strip() and not completion.is_cut_off:
            self.probe()  # which finds out whether all answers are empty
        raise UnusableAnswerError(f"The model's answer stayed unusable after one repair. {problem}")

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

    def _answer(self, prompt: Prompt, checked: CheckedAnswer, spent: Usage) -> ModelAnswer:
        return ModelAnswer(
            checked.text, self.model, prompt.hash, spent.prompt_tokens, spent.completion_tokens
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
        form, is_explained = self._form_now(), True
        while True:
            request = form.request(self.model, messages, task, room)
            try:
                completion = read_completion(
                    self._client.post(COMPLETIONS, request, timeout_seconds=timeout_seconds)
                )
            except RejectedError as error:
                rejection = error.rejection
            else:
                self._remember(form, is_explained)
                return completion
            problem = judge(rejection, self._role)
            if is_moderated(rejection):
                raise problem
            weaker, plainest = form.weaker(rejection), form.plainest()
            is_explained = is_explained and "json_validate" not in rejection.subject
            if weaker is None and form != plainest and self._may_be_about_form(form, rejection, problem):
                weaker, is_explained = plainest, False
            if weaker is None:
                self._is_broken_in_any_form = rejection.status >= 500
                if isinstance(problem, PermanentModelError):
                    self._check_others_are_answered(rejection, is_probe=is_probe)
                raise problem
            form = weaker

    def _may_be_about_form(self, form: RequestForm, rejection: Rejection, error: ModelError) -> bool:
        is_explained = isinstance(error, ProviderSetupError) and rejection.status not in (405, 415)
        is_proven = form in self._worked or self._is_broken_in_any_form
        return not is_explained and may_be_about_form(rejection, is_proven=is_proven)

    def _check_others_are_answered(self, rejection: Rejection, *, is_probe: bool) -> None:
        """Raise if the server refuses everything alike: then a refusal for no known reason is its own.

        It is asked with the smallest request, unless it has answered since it last refused one.
        """
        if is_too_long(rejection):
            return
        if is_probe:
            raise refuses_everything(rejection, self._role)
        if not self._has_answered:
            self.probe()
        self._has_answered = False

    def _form_now(self) -> RequestForm:
        if time.monotonic() > self._form_until:
            self._form, self._form_until = self._strongest, float("inf")
        return self._form

    def _remember(self, form: RequestForm, is_explained: bool) -> None:
        """Ask in this form from now on; without an explanation, only once it has helped twice."""
        self._has_answered, self._is_broken_in_any_form = True, False
        self._worked |= {form}
        self._helped = 0 if is_explained else self._helped + 1
        if form == self._form or self._helped == 1:
            return
        self._form, self._form_until = form, time.monotonic() + FORM_SECONDS
        logger.info(
            "model server needs a weaker request form",
            extra={"model": self.model, "answer_form": form.answer, "temperature": form.temperature},
        )


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
