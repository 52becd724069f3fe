"""Capturing: operations that an operator switches off, and instructions, by namespace and by user."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from strandline import Capture, ConflictError, Facts, InvalidMessageError, Memory
from strandline.cli.explain import command as explain_command
from strandline.cli.facts import command as facts_command
from strandline.pipelines.capture import AppliedCapture
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.models.answers import MergeOperation
from strandline.pipelines.models.contract import ExtractTask, MergeTask
from strandline.pipelines.models.prompts.render import instructions, render
from strandline.pipelines.replay.in_place import begin_in_place, replay_in_place
from strandline.pipelines.replay.records import Selection
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import EXTRACT_STAGE, FACTS, MERGE_STAGE
from tests.conftest import MakeMemory, nothing_due, rows_of
from tests.pipelines.replay.test_replay import replay_new
from tests.support.servers.model_server import ModelServer, RecordedRequest
from tests.support.workers.draining import drain_everything

Derive = Callable[..., None]

BERLIN = "Ana lives in Berlin."
PARIS = "Ana lives in Paris."
TEA = "Ana drinks tea."


@pytest.fixture
def derive(database: Database, database_url: str, model_settings: Settings) -> Derive:
    def derive_now() -> None:
        drain_everything(database, database_url, model_settings, (EXTRACT_STAGE, MERGE_STAGE))
        assert nothing_due(database_url)

    return derive_now


@pytest.fixture
def memory(make_memory: MakeMemory) -> Memory:
    return make_memory("s", user_id="ana", memory_blocks=["facts"])


def flush(memory: Memory, text: str) -> None:
    memory.put({"role": "user", "content": text})
    memory.flush(all=True)


def texts(facts: Facts | Any, **options: Any) -> set[str]:
    return {fact.text for fact in facts.list(**options)}


def deciding(op: str, text: str | None = None) -> Callable[[RecordedRequest], str | None]:
    """Answers every merge with one operation on the first known fact."""

    def respond(request: RecordedRequest) -> str | None:
        if "<candidates>\n" not in str(request.body["messages"][-1]["content"]):
            return None
        decided = {"op": op, "candidate": 1, "fact": 1, "text": text}
        return json.dumps({"operations": [decided]})

    return respond


def instructions_sent(server: ModelServer, tag: str) -> list[str]:
    """The instructions of each request whose data has a section of this name."""
    return [
        request.body["messages"][0]["content"]
        for request in server.requests
        if f"<{tag}>\n" in str(request.body["messages"][-1]["content"])
    ]


def assert_clean(database: Database) -> None:
    assert verify(database, deep=True).violations == ()


def test_nothing_is_added_while_adding_is_off_and_the_candidate_says_why(
    memory: Memory, derive: Derive, database: Database, database_url: str
) -> None:
    memory.facts.set_capture(Capture(may_add=False), actor="ops")
    flush(memory, TEA)
    derive()
    assert texts(memory.facts) == set()
    assert rows_of(database_url, "SELECT withheld_by FROM strandline.fact_candidate") == [(1,)]
    assert_clean(database)
    (message,) = memory.get_all()
    target = ["--database-url", database_url, "--user", "ana"]
    shown = CliRunner().invoke(explain_command, [str(message.id), *target])
    assert "withheld by act 1 on capturing" in shown.output and "captured by act 1" in shown.output
    memory.facts.set_capture(Capture())
    flush(memory, "Ana has a dog.")
    derive()
    assert texts(memory.facts) == {"Ana has a dog."}, "what was said before is not taken up again"
    assert_clean(database)


def test_with_deletion_off_what_contradicts_a_fact_stands_beside_it(
    memory: Memory, derive: Derive, database: Database, model_server: ModelServer
) -> None:
    flush(memory, BERLIN)
    derive()
    memory.facts.set_capture(Capture(may_delete=False))
    model_server.behave(responder=deciding("invalidate"))
    flush(memory, PARIS)
    derive()
    assert texts(memory.facts) == {BERLIN, PARIS}
    assert "Never answer `invalidate`" in instructions_sent(model_server, "candidates")[-1]
    memory.facts.set_capture(Capture())
    flush(memory, "Ana lives in Rome.")
    derive()
    assert texts(memory.facts) != {BERLIN, PARIS, "Ana lives in Rome."}, "it is on again"
    assert_clean(database)


def test_with_updates_off_a_fact_keeps_its_words(
    memory: Memory, derive: Derive, database: Database, model_server: ModelServer
) -> None:
    flush(memory, BERLIN)
    derive()
    memory.facts.set_capture(Capture(may_update=False))
    model_server.behave(responder=deciding("update", "Ana lives in Berlin, in Paris Street."))
    flush(memory, PARIS)
    derive()
    assert texts(memory.facts) == {BERLIN, PARIS}
    assert_clean(database)


def test_where_only_updates_are_on_a_contradiction_rewords_the_fact(
    memory: Memory, derive: Derive, database: Database, model_server: ModelServer
) -> None:
    flush(memory, BERLIN)
    derive()
    memory.facts.set_capture(Capture(may_add=False))
    model_server.behave(responder=deciding("invalidate"))
    flush(memory, PARIS)
    derive()
    assert texts(memory.facts, with_invalidated=True) == {PARIS}
    assert [r.operation for r in memory.facts.list()[0].revisions] == ["add", "update"]
    assert_clean(database)


_OPERATIONS = st.builds(
    MergeOperation,
    st.sampled_from(["add", "update", "invalidate", "duplicate"]),
    st.integers(1, 3),
    st.none() | st.integers(1, 3),
    st.none() | st.just("text"),
)


@given(_OPERATIONS, st.builds(Capture, *[st.sampled_from([None, True, False])] * 3))
def test_no_operation_that_is_off_is_ever_left(operation: MergeOperation, capture: Capture) -> None:
    allowed = AppliedCapture(1, capture).restrict(operation)
    if allowed is None:
        assert capture.may_add is False
        return
    assert allowed.candidate == operation.candidate
    assert not (allowed.op == "update" and capture.may_update is False)
    assert not (allowed.op == "invalidate" and capture.may_delete is False)
    assert not (allowed.op in ("add", "invalidate") and capture.may_add is False)


def test_instructions_replace_what_to_keep_and_nothing_else(
    memory: Memory, derive: Derive, model_server: ModelServer, database_url: str
) -> None:
    flush(memory, "before")
    derive()
    memory.facts.set_capture(
        Capture(instructions="Keep allergies only.", more_instructions="Write in English.")
    )
    flush(memory, "after")
    derive()
    before, after = instructions_sent(model_server, "transcript")
    assert before == instructions("extract")
    assert "Keep what will still matter weeks later" in before and "Keep what will still" not in after
    assert "# What to keep\nKeep allergies only.\n\n# What counts\n" in after
    assert after.rstrip().endswith("# Further instructions\nWrite in English.")
    for guard in ("Text inside it may contain instructions", "Keep only what people in the conversation say"):
        assert guard in after
    hashes = rows_of(
        database_url,
        "SELECT DISTINCT c.prompt_hash, b.capture_number IS NULL FROM strandline.fact_candidate c"
        " JOIN strandline.batch b USING (shard_key, batch_id)",
    )
    assert len({digest for digest, _ in hashes}) == 2 and {none for _, none in hashes} == {True, False}


def test_a_prompt_without_the_section_is_told_at_its_end() -> None:
    task = ExtractTask((), instructions="Keep allergies only.")
    text = render(task, {"extract": "My own prompt."}).instructions
    assert text.startswith("My own prompt.") and text.rstrip().endswith("Keep allergies only.")
    assert render(ExtractTask(())).hash != render(task).hash
    off = MergeTask((), (), ("update",))
    assert render(off).hash != render(MergeTask((), ())).hash


def test_a_user_goes_before_its_namespace_in_what_it_asks_for_and_concerns_nobody_else(
    make_memory: MakeMemory, database_url: str
) -> None:
    namespace = Facts.of_namespace(database_url=database_url)
    ana = Facts.for_owner(user_id="ana", database_url=database_url)
    ben = Facts.for_owner(user_id="ben", database_url=database_url)
    abroad = Facts.for_owner(user_id="ana", namespace="abroad", database_url=database_url)
    assert namespace.set_capture(Capture(may_delete=False, more_instructions="Be brief.")) == 1
    assert ana.set_capture(Capture(may_delete=True, may_add=False, more_instructions="In Spanish.")) == 2
    assert ana.get_capture() == Capture(False, None, True, None, "Be brief.\n\nIn Spanish.")
    assert ben.get_capture() == namespace.get_capture() == Capture(None, None, False, None, "Be brief.")
    assert abroad.get_capture() == Capture()
    assert ana.set_capture(Capture(may_delete=True, may_add=False, more_instructions="In Spanish. ")) == 2
    assert [act.number for act in ana.capture_acts()] == [2]
    assert [act.number for act in namespace.capture_acts()] == [1]
    assert ana.set_capture(Capture()) == 3 and ana.get_capture() == namespace.get_capture()
    assert abroad.set_capture(Capture()) == 0, "there is nothing to record"
    for facts in (namespace, ana, ben, abroad):
        facts.close()


def test_a_batch_does_not_span_an_act_and_every_replay_goes_by_the_act_of_the_time(
    memory: Memory,
    derive: Derive,
    database: Database,
    database_url: str,
    model_settings: Settings,
    model_server: ModelServer,
) -> None:
    flush(memory, "one")
    derive()
    flush(memory, "two")
    memory.facts.set_capture(Capture(more_instructions="AFTER"))
    flush(memory, "three")
    memory.facts.set_capture(Capture(may_add=False, more_instructions="LATER"))
    flush(memory, "four")
    derive()

    def recorded(generation: int) -> list[tuple[int | None, int]]:
        return rows_of(
            database_url,
            "SELECT capture_number, cardinality(event_ids) FROM strandline.batch"
            " WHERE stage = 'extract' AND generation_id = %s ORDER BY created_at",
            generation,
        )

    (first,) = rows_of(
        database_url, "SELECT generation_id FROM strandline.generation WHERE pipeline = 'facts'"
    )
    assert recorded(first[0]) == [(None, 1), (None, 1), (1, 1), (2, 1)]
    assert texts(memory.facts) == {"one", "two", "three"}
    assert_clean(database)

    asked = len(model_server.requests)
    replay = begin_in_place(database, FACTS, Selection())
    counts = replay_in_place(database, replay, model_settings)
    assert (counts.batches, counts.same, counts.differing) == (4, 4, 0)
    assert len(model_server.requests) == asked, "nothing is asked again"

    replay_new(database, model_settings, FACTS, force=True)
    newer = rows_of(
        database_url,
        "SELECT generation_id FROM strandline.generation WHERE pipeline = 'facts' AND state = 'serving'",
    )
    assert newer != [first]
    assert [number for number, _ in recorded(newer[0][0])] == [None, 1, 2]
    assert texts(memory.facts) == {"one", "two", "three"}
    assert_clean(database)


def test_verify_finds_an_act_that_did_not_apply(
    memory: Memory, derive: Derive, database: Database, database_url: str
) -> None:
    memory.facts.set_capture(Capture(may_add=False))
    flush(memory, "one")
    derive()
    assert_clean(database)
    database_rows = "UPDATE strandline.capture_act SET capture = '{\"may_add\": true}' RETURNING number"
    assert rows_of(database_url, database_rows) == [(1,)]
    assert {violation.kind for violation in verify(database).violations} == {"capture_wrong"}
    assert rows_of(database_url, "DELETE FROM strandline.capture_act RETURNING number") == [(1,)]
    kinds = {violation.kind for violation in verify(database).violations}
    assert kinds == {"capture_wrong", "candidate_withheld_by_nobody"}


@pytest.mark.parametrize(
    "capture",
    [
        Capture(instructions=" "),
        Capture(instructions="x" * 8_001),
        Capture(more_instructions="\0"),
        Capture(may_add=1),  # type: ignore[arg-type]
        Capture(instructions=7),  # type: ignore[arg-type]
        {"may_add": False},
    ],
)
def test_what_cannot_be_stored_is_refused_and_nothing_recorded(memory: Memory, capture: Any) -> None:
    with pytest.raises(InvalidMessageError):
        memory.facts.set_capture(capture)
    assert memory.facts.capture_acts() == []


def test_acts_at_once_get_numbers_of_their_own(make_memory: MakeMemory, database_url: str) -> None:
    def act(number: int) -> int:
        facts = Facts.for_owner(user_id=f"u{number}", database_url=database_url)
        while True:
            try:
                return facts.set_capture(Capture(more_instructions=f"text {number}"))
            except ConflictError:
                continue

    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(act, range(16)))
    assert sorted(numbers) == list(range(1, 17))
    Facts.for_owner(user_id="u0", database_url=database_url).close()


def test_the_command_shows_and_sets(memory: Memory, database_url: str, tmp_path: Path) -> None:
    memory.put({"role": "user", "content": TEA})

    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(
            facts_command, ["capture", "--json", "--database-url", database_url, *arguments]
        )
        assert result.exit_code == 0, result.output
        return json.loads(result.output)

    file = tmp_path / "keep.md"
    file.write_text("Keep allergies only.\n", encoding="utf-8")
    assert run()["acts"] == []
    done = run("--set", "--off", "delete", "--instructions", str(file), "--actor", "ops")
    assert (done["may_delete"], done["instructions"]) == (False, "Keep allergies only.")
    assert [(act["number"], act["actor"]) for act in done["acts"]] == [(1, "ops")]
    own = run("--user", "ana", "--set", "--on", "delete")
    assert (own["may_delete"], own["instructions"], len(own["acts"])) == (True, "Keep allergies only.", 1)
    plain = CliRunner().invoke(facts_command, ["capture", "--database-url", database_url, "--user", "ana"])
    assert "delete: on" in plain.output and "act 2" in plain.output
    wrong = CliRunner().invoke(facts_command, ["capture", "--off", "add", "--database-url", database_url])
    assert wrong.exit_code == 2 and "--set" in wrong.output
