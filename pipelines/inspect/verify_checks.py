"""The checks of ``verify``, each with its statement, and their scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple, Protocol, TypedDict
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.inspection.verify import (
    VerifyBatches,
    VerifyCandidates,
    VerifyCaptures,
    VerifyChunks,
    VerifyContexts,
    VerifyCorrections,
    VerifyDue,
    VerifyErased,
    VerifyEventContents,
    VerifyFacts,
    VerifyGenerations,
    VerifyLetters,
    VerifyLog,
    VerifyOrder,
    VerifyRanges,
    VerifyReceipts,
    VerifyRetention,
    VerifyRevisions,
    VerifySearchable,
    VerifyShared,
    VerifySharedCorrections,
    VerifyStates,
    VerifyStrays,
    VerifyWork,
)
from strandline.schemas.values.lanes import PIPELINES


class ScopeParams(TypedDict):
    owners: list[UUID] | None
    session_key: UUID | None


class StageChain(TypedDict):
    """Each later stage with the one before it, as parallel arrays for the statements."""

    stages: list[str]
    stages_before: list[str]


class Scope(NamedTuple):
    """The scope of a check: everything, the owners of a namespace, or one session and its owner's facts.

    ``is_deep``: sealed content is opened where a check has to look into it.
    """

    owners: list[UUID] | None = None
    session_key: UUID | None = None
    is_deep: bool = False

    @property
    def params(self) -> ScopeParams:
        return {"owners": self.owners, "session_key": self.session_key}


class _Finding(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def place(self) -> str: ...


Check = Callable[[Scope], Query[_Finding]]


CHECKS: Mapping[str, Check] = {
    "logs, marks and token counts": lambda scope: VerifyLog(**scope.params),
    "messages outside their log": lambda scope: VerifyStrays(**scope.params),
    "what retention removed": lambda scope: VerifyRetention(**scope.params),
    "coverage by flush events": lambda scope: VerifyRanges(**scope.params),
    "contents of flush events": lambda scope: VerifyEventContents(**scope.params),
    "corrections": lambda scope: VerifyCorrections(**scope.params),
    "generations that serve": lambda scope: VerifyGenerations(owners=scope.owners),
    "work neither due nor received": lambda scope: VerifyWork(**scope.params, **stage_chain()),
    "order of stages": lambda scope: VerifyOrder(**scope.params, **stage_chain()),
    "due work": lambda scope: VerifyDue(**scope.params),
    "receipts": lambda scope: VerifyReceipts(**scope.params, **stage_chain()),
    "dead letters": lambda scope: VerifyLetters(**scope.params),
    "batches": lambda scope: VerifyBatches(**scope.params),
    "context of batches": lambda scope: VerifyContexts(**scope.params),
    "acts on capturing": lambda scope: VerifyCaptures(**scope.params),
    "candidates": lambda scope: VerifyCandidates(**scope.params, **stage_chain()),
    "chunks": lambda scope: VerifyChunks(**scope.params),
    "messages without chunks": lambda scope: VerifySearchable(**scope.params, with_sealed=scope.is_deep),
    "shared messages": lambda scope: VerifyShared(**scope.params),
    "shared messages that were corrected": lambda scope: VerifySharedCorrections(**scope.params),
    "states": lambda scope: VerifyStates(**scope.params),
    "facts": lambda scope: VerifyFacts(owners=scope.owners),
    "provenance of facts": lambda scope: VerifyRevisions(**scope.params, **stage_chain()),
    "erased users and sessions": lambda _scope: VerifyErased(),
}


def stage_chain() -> StageChain:
    chains = (pairwise(pipeline.stages) for pipeline in PIPELINES.values())
    pairs = [(after, before) for chain in chains for before, after in chain]
    return {"stages": [pair[0] for pair in pairs], "stages_before": [pair[1] for pair in pairs]}
