"""Summary: an ordered pipeline that folds a session's messages into a rolling summary."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from strandline.pipelines.capture import load_capture
from strandline.pipelines.engine.parts import halves, steps_in_order
from strandline.pipelines.engine.stage import Batch, Call, RawAnswer, add_state, latest_state
from strandline.pipelines.models.answers import RolledSummary, ask, parse_summary
from strandline.pipelines.models.contract import SummaryTask, TextModel, TranscriptLine
from strandline.pipelines.transcript import Transcript, load_transcript
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.values.lanes import SUMMARY_STAGE, Lane

_STEP = "summary"

# Room for the characters of a token in any script, so that a summary is cut only if it ignored its limit.
_CHARACTERS_PER_TOKEN = 8


@dataclass(frozen=True, slots=True)
class SummaryWork:
    """The state before the batch, the batch's transcript, and how an operator wants it written."""

    previous: Mapping[str, Any]
    transcript: Transcript
    instructions: str | None = None


@dataclass(frozen=True, slots=True)
class SummaryStage:
    """Rolls the summary forward, batch by batch; each state is kept, so that folding can restart from it."""

    model: TextModel
    max_tokens: int
    name: ClassVar[str] = SUMMARY_STAGE

    def wait_seconds(self) -> float:
        return self.model.wait_seconds()

    def load(self, fetcher: Fetcher, batch: Batch) -> SummaryWork:
        return self.load_onto(latest_state(fetcher, batch.lane), fetcher, batch)

    def load_onto(
        self, state: str | None, fetcher: Fetcher, batch: Batch, between: Callable[[], None] = lambda: None
    ) -> SummaryWork:
        instructions = load_capture(fetcher, batch).capture.summary_instructions
        return SummaryWork(json.loads(state) if state else {}, load_transcript(fetcher, batch), instructions)

    def calls(self, batch: Batch, work: SummaryWork) -> Sequence[Call]:
        texts = [work.previous.get("text", "")]  # each call continues from the previous one's result

        def fold(lines: tuple[TranscriptLine, ...]) -> RawAnswer:
            return ask(self.model, SummaryTask(texts[-1], lines, self.max_tokens, work.instructions))

        def call(step: str, lines: tuple[TranscriptLine, ...]) -> Call:
            def go_on(answer: RawAnswer) -> tuple[()]:
                texts.append(self._read(answer).summary or texts[-1])
                return ()

            def parts() -> list[Call]:
                return [call(*half) for half in halves(step, lines)]

            return Call(step, partial(fold, lines), go_on, parts if len(batch.events) == 1 else None)

        return [call(step, lines) for step, lines in work.transcript.lines_by_step(_STEP).items()]

    def effect(self, batch: Batch, work: SummaryWork, answers: Mapping[str, RawAnswer]) -> str | None:
        """The state after the batch, as JSON; None if the one before it stays: no answer says anything."""
        for step in reversed(steps_in_order(answers, work.transcript.lines_of)):
            answer = answers[step]
            rolled = self._read(answer)
            if rolled.summary:
                break
        else:
            return None
        state = {
            "text": rolled.summary,
            "topics": list(rolled.topics),
            "model": answer.model,
            "prompt_hash": answer.prompt_hash,
        }
        return json.dumps(state)

    def _read(self, answer: RawAnswer) -> RolledSummary:
        return parse_summary(answer.body.decode(), max_characters=self.max_tokens * _CHARACTERS_PER_TOKEN)

    def write(self, fetcher: Fetcher, batch: Batch, work: SummaryWork, effect: str | None) -> list[Lane]:
        if effect is not None:
            add_state(fetcher, batch, effect)
        return []
