"""A summary of the last messages or runs, asked for by an application, sync and async."""

from __future__ import annotations

from functools import partial

from strandline.producers.arguments import check_count
from strandline.producers.execution import async_method, sync_method
from strandline.producers.memory_parts.search import MemorySearch
from strandline.producers.model_calls import payer_of
from strandline.producers.runs.latest_summary import (
    MAX_SUMMARIZED_MESSAGES,
    LatestSummary,
    LatestSummaryRequest,
    summarize_last,
)
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.acts.capture import Capture
from strandline.schemas.values.identity import check_name


class MemorySummaries(MemorySearch):
    """The methods of ``SessionMemory`` that have a model summarize a part of the session."""

    @sync_method
    def summarize_last(
        self,
        messages: int | None = None,
        *,
        runs: int | None = None,
        instructions: str | None = None,
        model: str | None = None,
    ) -> Operation[LatestSummary | None]:
        """Have a model summarize the last messages, or those of the last runs; None if nothing was said.

        This process calls the model that ``STRANDLINE_SUMMARY_MODEL`` names, once, and waits for it.  Nothing
        is delivered, and nothing is stored: the session's own summary, which tells of all of it, is that of
        ``summarize``.  The result says what it cost; the ledger and the namespace's budget count it.

        Args:
            messages: of the newest so many messages, up to 1,000, system messages aside; of a longer text
                than 120,000 characters, the newest part.
            runs: only of the last so many runs that came to an end (``add_run``).
            instructions: how to write it, in place of what the prompt says, at most 8,000 characters; by
                default as an operator set it (``Capture.summary_instructions``).  It becomes part of the
                prompt: never put there what users said.
            model: another model of the same server.

        Raises:
            ConfigurationError: neither ``messages`` nor ``runs`` is given, or one is no such number; no model
                is configured, or many have been named.
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
        settings = self._resources.settings
        name = settings.summary_model if model is None else check_name("model", model)
        summary = summarize_last(
            LatestSummaryRequest(
                identity=self._identity,
                messages=None if messages is None else _message_count(messages),
                runs=None if runs is None else check_count("runs", runs),
                instructions=Capture(summary_instructions=instructions).check().summary_instructions,
                max_tokens=settings.summary_max_tokens,
                ask_model=partial(self._resources.ask_model, model=name),
                payer=payer_of(self._identity, settings),
            )
        )
        return self._record_read("summary.read", summary)

    asummarize_last = async_method(summarize_last)


def _message_count(messages: int) -> int:
    if check_count("messages", messages) > MAX_SUMMARIZED_MESSAGES:
        raise ConfigurationError(
            f"messages is {messages:,}; at most {MAX_SUMMARIZED_MESSAGES:,} are summarized at once."
        )
    return messages
