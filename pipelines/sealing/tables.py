"""The tables whose rows hold content, each with what seals its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from strandline.pipelines.sealing.derived_rows import (
    reseal_answers,
    reseal_chunks,
    reseal_items,
    reseal_states,
)
from strandline.pipelines.sealing.fact_rows import (
    reseal_candidates,
    reseal_fact_events,
    reseal_facts,
    reseal_revisions,
)
from strandline.pipelines.sealing.message_rows import (
    reseal_archived_inputs,
    reseal_corrections,
    reseal_messages,
    reseal_runs,
    reseal_shared_messages,
)
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.sealing.owner_keys import OwnerKeys

Reseal = Callable[[Fetcher, OwnerKeys, int], Iterator[int]]

# An owner's facts are compared by their words: they are sealed together, when the owner gets its keys.
FACT_TABLES: tuple[Reseal, ...] = (reseal_facts, reseal_revisions, reseal_candidates, reseal_fact_events)
# Every table whose rows hold content; each yields how many rows it found, page by page.
RESEALED: tuple[Reseal, ...] = (
    reseal_messages,
    reseal_shared_messages,
    reseal_corrections,
    reseal_runs,
    reseal_archived_inputs,
    reseal_items,
    reseal_chunks,
    reseal_states,
    reseal_answers,
    *FACT_TABLES,
)
