"""Answering: the model calls of a batch, each made once, stored before it is applied, and paid for.

No database connection is held while a model is called.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from strandline.pipelines.engine.engine import Engine
from strandline.pipelines.engine.leases import Lease
from strandline.pipelines.engine.stage import Batch, Call, RawAnswer, database_of_call
from strandline.schemas.errors import LeaseLostError, PermanentModelError, TransientModelError
from strandline.schemas.postgres.database import Database
from strandline.schemas.prices import cost_usd
from strandline.schemas.queries.work.lanes import StoreAnswer, StoredAnswer

# So many, and the event is given up: a model that cannot be used would be asked about each line.
MAX_LEFT_OUT = 3


@dataclass(frozen=True, slots=True)
class Answering:
    """The model calls of a batch, under the lease of its lane."""

    engine: Engine
    lease: Lease
    batch: Batch

    def answer_all(self, calls: Iterable[Call]) -> dict[str, RawAnswer]:
        """The answers of a batch by step, one call after another.

        A call is divided if it gets no answer that can be used, or fails for the last time it may while
        others succeed; its smallest parts are left out, if others are answered.  Then follow calls for its
        open lines.

        Raises:
            PermanentModelError, TransientModelError: nothing was answered, or too little.
        """
        answers: dict[str, RawAnswer] = {}
        waiting, left_out = deque(calls), 0
        while waiting:
            call = waiting.popleft()
            try:
                answers[call.step] = self.answer(call)
            except (PermanentModelError, TransientModelError) as error:
                if call.parts is None or not self._is_due_to_input(error):
                    raise
                parts = call.parts()
                left_out += not parts
                if left_out > MAX_LEFT_OUT or not (parts or waiting or answers):
                    raise
                waiting.extendleft(reversed(parts))
            else:
                waiting.extendleft(reversed(call.follow(answers[call.step])))
        return answers

    def _is_due_to_input(self, error: PermanentModelError | TransientModelError) -> bool:
        if isinstance(error, PermanentModelError):
            return True
        return error.counts and self.lease.failures + 1 >= self.engine.retry.max_failures

    def answer(self, call: Call) -> RawAnswer:
        """Return the stored answer of this step; without one, call the model and store its answer first."""
        stored = (
            _find_stored_answer(self.engine.database, self.batch, call.step)
            if self._may_be_answered()
            else None
        )
        if stored is not None:
            return stored
        self.engine.admit(self.batch.lane)
        began = time.monotonic()
        asking = database_of_call.set(self.engine.database)
        try:
            new_answer = self._get_new_answer(call)
        finally:
            database_of_call.reset(asking)
        seconds = time.monotonic() - began
        self.engine.troubles.settle(self.batch.lane)
        self.engine.reach("called")
        is_first = self._store(call.step, new_answer, seconds)
        self.engine.reach("stored")
        if is_first:
            return new_answer
        # Two holders have overlapped: the first answer stayed, and it is the one to apply.
        return _find_stored_answer(self.engine.database, self.batch, call.step) or new_answer

    def _get_new_answer(self, call: Call) -> RawAnswer:
        """Get a new answer; if the namespace has a budget, count the call before, and its actual use after.

        A call that the provider did not process is not counted: outages and rate limits use up no budget.
        """
        if self.engine.budgets is None or not self.lease.has_budget:
            return call.make()
        estimated_tokens = sum(event.tokens for event in self.batch.events)
        self.engine.budgets.admit(self.lease.namespace, estimated_tokens)
        try:
            answer = call.make()
        except TransientModelError as error:
            if error.is_unpaid:
                self.engine.budgets.settle(self.lease.namespace, -estimated_tokens, 0.0, calls=-1)
            raise
        size = {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens}
        cost = cost_usd(self.engine.prices, answer.model, **size)
        self.engine.budgets.settle(
            self.lease.namespace, sum(size.values()) - estimated_tokens, float(cost or 0)
        )
        return answer

    def _may_be_answered(self) -> bool:
        """Whether another worker may have stored an answer, so that this call's would be refused."""
        return time.monotonic() - self.batch.made_at > self.engine.terms.dead_after_seconds / 4

    def _store(self, step: str, answer: RawAnswer, seconds: float) -> bool:
        cost = cost_usd(
            self.engine.prices,
            answer.model,
            input_tokens=answer.input_tokens,
            output_tokens=answer.output_tokens,
        )
        stored = self.engine.database.fetch(
            StoreAnswer.of(
                answer,
                **self.lease.keys,
                batch_id=self.batch.batch_id,
                step=step,
                seconds=seconds,
                cost_usd=cost,
            )
        )
        if not stored:
            raise LeaseLostError(f"The lease on lane {self.lease.lane} was lost during a model call.")
        self.engine.watch.note_call(self.lease.lane.stage, answer, seconds, cost)
        return stored[0].is_first


def _find_stored_answer(database: Database, batch: Batch, step: str) -> RawAnswer | None:
    stored = StoredAnswer(shard_key=batch.lane.shard_key, batch_id=batch.batch_id, step=step)
    for row in database.fetch(stored):
        return RawAnswer(row.model, row.prompt_hash, row.body)
    return None
