"""Dead letters: shown with their reason, retried as if nothing had ever failed, or dropped."""

from __future__ import annotations

import json
import threading
from typing import Any

import psycopg
import pytest
import redis

from strandline import Memory
from strandline.pipelines.engine.batches import ClaimedLane, claim
from strandline.pipelines.engine.dead_letters import (
    DeadLetter,
    drop_dead_letter,
    list_dead_letters,
    retry_dead_letter,
)
from strandline.pipelines.engine.leases import LeaseTerms, lock_lease, release
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.errors import LeaseLostError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.work.dead_letters import Refold, ReviveEvent
from strandline.schemas.queries.work.workers import Beat
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import Lane
from tests.conftest import MakeMemory, Rig, lock_is_awaited, rows_of, wait_until
from tests.pipelines.conftest import Drain
from tests.support.processes.commands import Ended, run_here
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest
from tests.support.workers.draining import drain_everything

POISON = "zyzzyva"
REFUSAL = Raw(400, json.dumps({"error": {"message": "no such words", "code": None}}).encode())


@pytest.fixture
def settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A model server for text, the local embedder; one event per batch, so that each is one fold."""
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    return load_settings(database_url=database_url, embedding_backend="local", batch_token_budget=1)


def refuse(model_server: ModelServer, *words: str, where: str = "") -> None:
    """The model refuses prompts with one of these words, in prompts that have the section ``where``."""

    def respond(request: RecordedRequest) -> Raw | None:
        prompt = json.dumps(request.body)
        return REFUSAL if where in prompt and any(word in prompt for word in words) else None

    model_server.behave(responder=respond)


def converse(memory: Memory, *texts: str) -> None:
    """Put each text and flush it as a separate event."""
    for number, text in enumerate(texts, 1):
        memory.put({"role": "user", "content": text, "id": f"m{number}"})
        assert len(memory.flush(all=True)) == 1


def derived(database_url: str) -> dict[str, list[tuple[Any, ...]]]:
    """The pipelines' results, without ids and times."""
    return {
        "summary": rows_of(
            database_url, "SELECT through_seq, state->>'text' FROM strandline.block_state ORDER BY 1"
        ),
        "facts": rows_of(database_url, "SELECT text, live FROM strandline.fact ORDER BY 1"),
        "chunks": rows_of(database_url, "SELECT from_seq, piece, length FROM strandline.chunk ORDER BY 1, 2"),
        "receipts": rows_of(
            database_url,
            "SELECT e.from_seq, r.stage, r.outcome FROM strandline.receipt r"
            " JOIN strandline.flush_event e USING (shard_key, event_id) ORDER BY 1, 2",
        ),
    }


def only_letter(database: Database, stage: str) -> DeadLetter:
    (letter,) = list_dead_letters(database, stage=stage)
    return letter


def violations(database: Database) -> list[str]:
    return [violation.sentence for violation in verify(database, deep=True).violations]


def test_a_summary_is_folded_again_as_if_it_had_never_failed(rig: Rig, drain: Drain) -> None:
    texts = ("the boat is blue", f"the {POISON} sleeps", "the sail is torn", "the wind is up")
    converse(rig.memory("s"), *texts)
    refuse(rig.model, POISON, where="<summary_so_far>")
    drain()
    letter = only_letter(rig.database, "summary")
    assert (letter.from_seq, letter.is_ordered, letter.current) == (2, True, True)
    assert [row[0] for row in derived(rig.url)["summary"]] == [1, 3, 4]
    assert violations(rig.database) == []
    calls_before = len(rig.model.requests)
    rig.model.behave()

    retry = retry_dead_letter(rig.database, letter)
    assert (retry.outcome, retry.refolded) == ("due", 2)
    assert violations(rig.database) == []
    drain()

    after = derived(rig.url)
    assert [seq for seq, _text in after["summary"]] == [1, 2, 3, 4]
    places = [after["summary"][-1][1].index(text) for text in texts]
    assert places == sorted(places), "folded in the order of the conversation"
    assert {outcome for _seq, _stage, outcome in after["receipts"]} == {"applied"}
    assert list_dead_letters(rig.database) == []
    assert len(rig.model.requests) == calls_before + 3, "the later answers spoke of another summary"
    assert violations(rig.database) == []
    assert after == untroubled(rig.memory, rig.url, drain, texts)


def untroubled(
    make_memory: MakeMemory, database_url: str, drain: Drain, texts: tuple[str, ...]
) -> dict[str, list[tuple[Any, ...]]]:
    """The results of the same conversation if nothing fails."""
    make_memory("s").reset(derived=True)
    fresh = make_memory("s", user_id=None)
    before = rows_of(database_url, "SELECT next_seq FROM strandline.session")[0][0] - 1
    converse(fresh, *texts)
    drain()
    made = derived(database_url)
    return {
        "summary": [(seq - before, text) for seq, text in made["summary"]],
        "facts": made["facts"],
        "chunks": [(seq - before, piece, length) for seq, piece, length in made["chunks"]],
        "receipts": [(seq - before, stage, outcome) for seq, stage, outcome in made["receipts"]],
    }


def test_a_fold_that_reached_around_a_hole_is_done_again_whole(rig: Rig) -> None:
    """Events 1 and 2 die; 1 is retried and folds in one batch with 3; then 2 is retried."""
    converse(rig.memory("s"), "alphaword here", "betaword there", "gamma is last")
    refuse(rig.model, "alphaword", "betaword", where="<summary_so_far>")
    drain_everything(rig.database, rig.url, rig.settings)
    first, second = sorted(list_dead_letters(rig.database), key=lambda letter: letter.from_seq)
    refuse(rig.model, "betaword", where="<summary_so_far>")
    assert retry_dead_letter(rig.database, first).refolded == 1
    roomy = rig.settings.model_copy(update={"batch_token_budget": 8000})
    drain_everything(rig.database, rig.url, roomy)
    assert rows_of(
        rig.url,
        "SELECT cardinality(event_ids) FROM strandline.batch WHERE stage = 'summary' AND state = 'applied'",
    ) == [(2,)]
    assert violations(rig.database) == []

    rig.model.behave()
    assert retry_dead_letter(rig.database, second).refolded == 2
    assert violations(rig.database) == []
    drain_everything(rig.database, rig.url, rig.settings)
    (text,) = rows_of(
        rig.url, "SELECT state->>'text' FROM strandline.block_state ORDER BY through_seq DESC LIMIT 1"
    )[0]
    assert text.index("alphaword") < text.index("betaword") < text.index("gamma")
    assert violations(rig.database) == []


def test_another_dead_letter_of_the_lane_stays_a_hole(rig: Rig, drain: Drain) -> None:
    converse(rig.memory("s"), "alphaword here", "plain talk", "betaword there", "more talk")
    refuse(rig.model, "alphaword", "betaword", where="<summary_so_far>")
    drain()
    first, second = sorted(list_dead_letters(rig.database), key=lambda letter: letter.from_seq)
    rig.model.behave()
    assert retry_dead_letter(rig.database, first).refolded == 2
    drain()
    assert [letter.event_id for letter in list_dead_letters(rig.database)] == [second.event_id]
    assert violations(rig.database) == []


@pytest.mark.parametrize(("stage", "section"), [("extract", "<transcript>"), ("merge", "<candidates>")])
def test_facts_come_once_after_a_retry(rig: Rig, drain: Drain, stage: str, section: str) -> None:
    # Merge asks its model only where there is something to compare.
    texts = ("I keep bees in Kotor", f"I keep bees and a {POISON}", "I sold the bees")
    memory = rig.memory("s", memory_blocks=["facts"])
    converse(memory, *texts)
    refuse(rig.model, POISON, where=section)
    drain("extract")
    refuse(rig.model, POISON, where=section)
    drain()
    letter = only_letter(rig.database, stage)
    assert not letter.is_ordered
    assert violations(rig.database) == []
    rig.model.behave()
    assert retry_dead_letter(rig.database, letter).refolded == 0
    assert verify(rig.database).pending == 1
    assert violations(rig.database) == []
    drain()
    assert sorted(fact.text for fact in memory.facts.list()) == sorted(texts)
    assert violations(rig.database) == []


def test_a_retry_takes_the_ordered_lane_from_its_holder_and_its_open_batch(rig: Rig, drain: Drain) -> None:
    memory = rig.memory("s")
    converse(memory, f"the {POISON} sleeps")
    refuse(rig.model, POISON, where="<summary_so_far>")
    drain()
    memory.put({"role": "user", "content": "still here"})
    memory.flush(all=True)
    letter = only_letter(rig.database, "summary")
    claimed = claimed_lane(rig.database, letter)
    batch = claimed.batch()
    assert batch is not None
    retry_dead_letter(rig.database, letter)
    with pytest.raises(LeaseLostError), rig.database.transaction() as tx:
        lock_lease(tx, claimed.lease)
    assert rows_of(rig.url, "SELECT state FROM strandline.batch WHERE batch_id = %s", batch.batch_id) == [
        ("void",)
    ]
    assert violations(rig.database) == []
    rig.model.behave()
    drain()
    assert violations(rig.database) == []


def claimed_lane(database: Database, letter: DeadLetter) -> ClaimedLane:
    """The letter's lane, leased to a live worker."""
    database.fetch(Beat(worker_id=letter.batch_id, host="h", pid=1, version="0", stages=["summary"]))
    lane = Lane(letter.shard_key, letter.scope_key, letter.generation_id, letter.stage)
    taken = claim(database, lane, letter.batch_id, LeaseTerms(60.0, 60.0), 8_000)
    assert taken is not None
    return taken


def test_a_retry_waits_for_the_worker_that_writes_and_locks_no_session(rig: Rig, drain: Drain) -> None:
    memory = rig.memory("s")
    converse(memory, f"the {POISON} sleeps")
    refuse(rig.model, POISON, where="<summary_so_far>")
    drain()
    letter = only_letter(rig.database, "summary")
    memory.put({"role": "user", "content": "still here"})
    memory.flush(all=True)
    lease = claimed_lane(rig.database, letter).lease
    retrying = threading.Thread(target=retry_dead_letter, args=(rig.database, letter))
    with rig.database.transaction() as tx:
        lock_lease(tx, lease)
        retrying.start()
        memory.put({"role": "user", "content": "a put waits for neither"})
        wait_until(lambda: lock_is_awaited(rig.url), timeout=10, what="the retry to wait for the worker")
        assert len(list_dead_letters(rig.database)) == 1, "the worker writes under its lease first"
    retrying.join(100)
    assert not retrying.is_alive()
    assert list_dead_letters(rig.database) == []
    release(rig.database, lease)


def test_a_put_during_a_retry_does_not_wait(rig: Rig, drain: Drain) -> None:
    memory = rig.memory("s")
    converse(memory, f"the {POISON} sleeps")
    refuse(rig.model, POISON, where="<summary_so_far>")
    drain()
    letter = only_letter(rig.database, "summary")
    with rig.database.transaction() as tx:
        tx.fetch(ReviveEvent(**letter.keys, retries=0))
        tx.fetch(Refold(**letter.lane.keys, event_id=letter.event_id))
        # On another connection of the pool, while all that a retry locks is locked.
        memory.put({"role": "user", "content": "straight through"})
        assert len(memory.flush(all=True)) == 1


def test_after_a_reset_a_retry_only_ends_it(rig: Rig, drain: Drain) -> None:
    memory = rig.memory("s")
    converse(memory, f"the {POISON} sleeps")
    refuse(rig.model, POISON, where="<summary_so_far>")
    drain()
    memory.reset()
    letter = only_letter(rig.database, "summary")
    assert not letter.current
    assert retry_dead_letter(rig.database, letter).outcome == "void"
    assert retry_dead_letter(rig.database, letter).outcome == "gone"
    report = verify(rig.database)
    assert (report.pending, report.holes, report.voids, report.violations) == (0, 0, 1, ())


def test_what_is_dropped_leaves_the_tail_and_stays_proved(rig: Rig, drain: Drain) -> None:
    memory = rig.memory("s", memory_blocks=["summary"])
    converse(memory, f"the {POISON} sleeps", "the wind is up")
    refuse(rig.model, POISON, where="<summary_so_far>")
    drain()
    assert any(POISON in str(message) for message in memory.get())
    letter = only_letter(rig.database, "summary")
    assert drop_dead_letter(rig.database, letter)
    assert not drop_dead_letter(rig.database, letter)
    assert not any(POISON in str(message) for message in memory.get())
    report = verify(rig.database)
    assert (report.holes, report.dropped, report.violations) == (0, 1, ())
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.receipt WHERE outcome = 'dead'") == [(1,)]


def test_a_lost_dead_letter_is_not_taken_for_a_dropped_one(rig: Rig, drain: Drain) -> None:
    converse(rig.memory("s"), f"the {POISON} sleeps")
    refuse(rig.model, POISON, where="<summary_so_far>")
    drain()
    with psycopg.connect(rig.url) as connection:
        connection.execute("DELETE FROM strandline.dead_letter")
    assert [violation.kind for violation in verify(rig.database).violations] == ["dead_without_letter"]


def command(database_url: str, *arguments: str) -> Ended:
    """``strandline dead-letters``, run to its end in this process."""
    return run_here("dead-letters", *arguments, on=database_url)


def test_the_command_lists_shows_retries_and_drops(rig: Rig, drain: Drain) -> None:
    converse(rig.memory("calm"), f"a {POISON} far away")
    converse(rig.memory("storm"), f"a {POISON} near by")
    refuse(rig.model, POISON, where="<summary_so_far>")
    drain()
    listed = command(rig.url, "list", "--json", "--session", "storm")
    (letter,) = json.loads(listed.out)["dead_letters"]
    assert (letter["pipeline"], letter["stage"], letter["session_id"]) == ("summary", "summary", "storm")
    assert letter["id"] == f"{letter['event_id']}/summary"
    assert letter["reason"] and letter["reason"] in command(rig.url, "show", letter["id"]).out

    retried = command(rig.url, "retry", letter["id"], "--json")
    done = {"id": letter["id"], "outcome": "due", "refolded": 0, "rung": False}
    assert json.loads(retried.out)["actions"] == [done]
    unknown = command(rig.url, "retry", letter["id"])
    assert unknown.code == 1 and unknown.err.startswith("strandline: No dead letter has the id")
    assert command(rig.url, "retry").code == 2
    assert command(rig.url, "drop", "nonsense").code == 2
    dropped = command(rig.url, "drop", "--all", "--pipeline", "summary")
    assert dropped.code == 0 and dropped.out.strip().endswith("dropped")
    assert command(rig.url, "list").out == "no dead letters\n"
    assert violations(rig.database) == []


def test_what_was_dropped_is_kept_on_record(rig: Rig, drain: Drain) -> None:
    converse(rig.memory("s"), f"a {POISON} far away")
    refuse(rig.model, POISON, where="<summary_so_far>")
    drain()
    letter = only_letter(rig.database, "summary")
    name = f"{letter.event_id}/summary"
    assert command(rig.url, "drop", name).out == f"{name}: dropped\n"
    assert list_dead_letters(rig.database) == []
    (kept,) = json.loads(command(rig.url, "list", "--all", "--json").out)["dead_letters"]
    assert (kept["id"], kept["reason"]) == (name, letter.reason)
    assert kept["dropped_at"] is not None
    assert f"dropped {kept['dropped_at'][:4]}" in command(rig.url, "list", "--all").out
    assert letter.reason in command(rig.url, "show", name).out
    # Given up for good: neither retried nor dropped again.
    assert retry_dead_letter(rig.database, letter).outcome == "gone"
    assert command(rig.url, "retry", name).code == 1
    assert violations(rig.database) == []


def test_a_letter_of_a_retired_generation_cannot_be_retried(rig: Rig, drain: Drain) -> None:
    converse(rig.memory("s"), f"a {POISON} far away")
    refuse(rig.model, POISON, where="<summary_so_far>")
    drain()
    rows_of(
        rig.url,
        "UPDATE strandline.generation SET state = 'retired' WHERE pipeline = 'summary' RETURNING 1",
    )
    refused = command(rig.url, "retry", "--all")
    assert refused.code == 1
    assert "its generation is retired and serves no owner; drop it instead" in refused.out
    assert "only dropped" in command(rig.url, "show", str(only_letter(rig.database, "summary").event_id)).out
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.due WHERE stage = 'summary'") == [(0,)]
    assert command(rig.url, "drop", "--all").code == 0


def test_a_retry_rings_for_its_lane_where_there_is_a_broker(rig: Rig, drain: Drain) -> None:
    converse(rig.memory("s"), f"a {POISON} far away")
    refuse(rig.model, POISON, where="<summary_so_far>")
    for rung, options in ((False, ()), (True, ("--broker-url", rig.broker_url))):
        drain()
        retried = command(rig.url, "retry", "--all", *options)
        assert retried.out.strip().endswith(
            "a worker was notified" if rung else "without a broker, a sweep finds it"
        )
    with redis.Redis.from_url(rig.broker_url) as broker:
        assert broker.llen("strandline.summary") == 1
