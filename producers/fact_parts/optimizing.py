"""An owner's facts in fewer sentences, on call: the methods of an owner's facts, each sync and async."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.execution import async_method, sync_method
from strandline.producers.fact_parts.editing import FactEdits
from strandline.producers.fact_parts.recorded import Recorded
from strandline.producers.facts.optimizing import Optimization, apply_optimization, propose_optimization
from strandline.producers.model_calls import payer_of
from strandline.producers.tokens import text_counter
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.identity import Owner


class FactOptimizing(Recorded):
    """Methods of ``OwnerFacts``."""

    _owner: Owner
    _redaction: Redaction | None

    @property
    def _edits(self) -> FactEdits:
        return FactEdits(self._owner, self._recorder, self._redaction)

    @sync_method
    def optimize(self) -> Operation[Optimization]:
        """Propose to say the facts in fewer sentences, with the tokens before and after; changes nothing.

        This process asks the model of the derivation that serves, once, and waits for its answer.  At most
        100 facts are shown, those that have most in common.  What people worded or judged stays as it is.
        The ledger and the namespace's budget count the call.

        Raises:
            UnknownPipelineError: no worker has registered facts in this database.
            ModelError: the model failed, or its answer would lose facts; or the namespace has used up its
                budget, and the model was not asked.
        """
        proposing = propose_optimization(
            payer_of(self._owner, self._resources.settings),
            self._resources.build_facts_model,
            text_counter(None),
        )
        return self._record_read("facts.read", proposing)

    aoptimize = async_method(optimize)

    @sync_method
    def apply_optimization(self, optimization: Optimization) -> Operation[None]:
        """Carry out a proposal of ``optimize``, all of it or nothing.

        The parts stay on record, and a reset of their session takes a sentence apart again. A new derivation
        begins with the parts.

        Raises:
            ConflictError: a fact was added, changed or removed since the proposal; nothing was changed.
            InvalidMessageError: the proposal is of another owner.
        """
        if not isinstance(optimization, Optimization):
            raise InvalidMessageError("optimization", "must be what optimize() returned")
        if optimization.keys["shard_key"] != self._owner.shard_key:
            raise InvalidMessageError("optimization", "is of another owner's facts")
        return self._edits.edit(
            "facts.optimize",
            partial(apply_optimization, optimization),
            describe=lambda act, _done: replace(act, count=len(optimization.merged)),
            text="\n".join(one.text for one in optimization.merged),
        )

    aapply_optimization = async_method(apply_optimization)
