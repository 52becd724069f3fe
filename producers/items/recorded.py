"""Operations on items with the compliance hook and the audit trail."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from uuid import UUID

from strandline.pipelines.audit.appending import Act, append_act
from strandline.producers.audit.carrying_out import Recorder
from strandline.producers.items.operations import Answer, Request, answer_requests
from strandline.producers.items.requests import ItemPut
from strandline.schemas.postgres.operations import Atomic, Operation


def answer_recorded(
    recorder: Recorder, shard_key: UUID, requests: Sequence[Request]
) -> Operation[list[Answer]]:
    """Carry requests out as ``answer_requests`` does, and append what was done to the trail.

    Deletions are recorded as changes are, in their transaction.  Puts and reads are recorded where reads are,
    which this process asks for every five seconds.

    Raises:
        ActRefusedError: the compliance hook refuses one of them; nothing was done.
    """
    puts = [one for one in requests if isinstance(one, ItemPut)]
    gone = sum(1 for one in puts if one.value is None)
    if not puts:
        act = Act.here("items.read", count=len(requests))
        return (yield from recorder.read(act, answer_requests(shard_key, requests)))
    acts = []
    for kind, count in (
        ("items.read", len(requests) - len(puts)), ("items.put", len(puts) - gone), ("items.delete", gone),
    ):  # fmt: skip
        if count:
            acts.append((yield from recorder.check(Act.here(kind, count=count))))
    if not (yield from recorder.records_reads()):
        acts = [act for act in acts if act.level == "changes"]
    if not acts:
        return (yield from answer_requests(shard_key, requests))
    answers: list[Answer] = yield Atomic(partial(_answer_and_append, recorder, shard_key, requests, acts))
    return answers


def _answer_and_append(
    recorder: Recorder, shard_key: UUID, requests: Sequence[Request], acts: Sequence[Act]
) -> Operation[list[Answer]]:
    answers = yield from answer_requests(shard_key, requests)
    for act in acts:
        yield from append_act(recorder.whom, act)
    return answers
