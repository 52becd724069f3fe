"""The chaos campaign: its plan, its judge, and a short run of the whole; ``make chaos`` runs a long one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.schemas.settings import load_settings
from tests.chaos.campaign import Campaign, heeded_until
from tests.chaos.conversation import digest_of, message_of, speakers_of, user_of
from tests.chaos.faults.faults import FROZEN_WORKER
from tests.chaos.judging import judge
from tests.chaos.judging.findings import fill_recoveries
from tests.chaos.judging.journal import Ack, Entry, Intent, Journal, JournalReader
from tests.chaos.judging.recoveries import Recovery
from tests.chaos.judging.report import Report, as_json, as_text
from tests.chaos.judging.timeline import Interval, Timeline
from tests.chaos.plan import KINDS, NATURES, DoesNotFitError, PlannedFault, Shape, make_plan
from tests.conftest import MakeMemory, Rig, wait_until
from tests.support.processes import forking
from tests.support.workers.draining import drain_everything

SHORT = Shape(faults=26, calm=1.5, span=20.0, workers=2, producers=2)
# Puts per second, of both producers together: each fault meets some.
RATE = 10.0


@given(seed=st.integers(), faults=st.integers(26, 150), span=st.floats(300, 1200))
def test_a_seed_has_one_plan(seed: int, faults: int, span: float) -> None:
    shape = Shape(faults, calm=10.0, span=span)
    plan = make_plan(seed, shape)
    assert plan == make_plan(seed, shape)
    assert len(plan) == faults
    assert set(KINDS) == {fault.kind for fault in plan}
    assert [fault.number for fault in plan] == list(range(1, faults + 1))
    assert list(plan) == sorted(plan, key=lambda fault: fault.at)
    assert all(fault.at >= 0 and fault.at + fault.seconds <= shape.seconds for fault in plan)
    # The puts that an outage is compared with come first, and nothing else disturbs the two.
    assert (plan[0].kind, plan[0].at, plan[0].seconds) == ("model fails", 10.0, 10.0)
    assert all(fault.at >= 30.0 for fault in plan[1:])


@given(seed=st.integers(), span=st.floats(30, 600))
def test_faults_of_one_track_do_not_overlap(seed: int, span: float) -> None:
    plan = make_plan(seed, Shape(30, calm=1.0, span=span, workers=2))
    tracks = defaultdict(list)
    for fault in plan:
        tracks[fault.target, fault.slot].append(fault)
        assert NATURES[fault.kind].shortest - 0.01 <= fault.seconds <= NATURES[fault.kind].longest + 0.01
    for faults in tracks.values():
        assert all(one.at + one.seconds <= other.at for one, other in pairwise(faults))


def test_a_plan_that_does_not_fit_says_so() -> None:
    with pytest.raises(DoesNotFitError, match="give the campaign more minutes or fewer faults"):
        make_plan(1, Shape(faults=200, calm=1.0, span=10.0))
    with pytest.raises(DoesNotFitError, match="at least 26 faults"):
        make_plan(1, Shape(faults=24, calm=1.0, span=100.0))


@given(entries=st.lists(st.builds(Intent, st.text(), st.just("p0"), st.integers(1, 99))), cut=st.data())
@settings(max_examples=50)
def test_a_journal_that_a_kill_cut_is_read_and_continued(
    tmp_path_factory: pytest.TempPathFactory, entries: list[Entry], cut: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal"
    journal = Journal(path)
    journal.write(*entries, durably=True)
    journal.close()
    whole = path.read_bytes()
    kept = whole[: cut.draw(st.integers(0, len(whole)))]
    path.write_bytes(kept)
    reader = JournalReader(path)
    complete = entries[: kept.count(b"\n")]
    assert list(reader.new_entries()) == complete
    last = Intent("last", "p0", 1)
    journal = Journal(path)
    journal.write(last)
    journal.close()
    assert [*complete, *reader.new_entries()][-1] == last
    assert list(reader.new_entries()) == []


def test_a_recovery_is_timed_from_when_it_could_begin() -> None:
    timeline = Timeline([Interval("postgres", 10, 14), Interval("broker", 13, 15), Interval("model", 11, 30)])
    needs = ("postgres", "broker")
    assert timeline.could_begin(12, 20, needs) == 15
    assert timeline.could_begin(16, 20, needs) == 16
    assert timeline.could_begin(9, 13.5, needs) == 13.5, "what is still away ends the time so far"


def test_recoveries_that_never_came_are_violations_and_long_ones_are_named_apart() -> None:
    def recovery(number: int, seconds: float | None) -> Recovery:
        return Recovery("worker killed", number, 0.0, (), lambda _: True, seconds=seconds)

    report = Report(seed=1, broker="redis")
    recoveries = [recovery(1, 9.9), recovery(2, 10.1), recovery(3, None)]
    assert fill_recoveries(report, [], recoveries, began=0.0) == [
        "Fault 3 (worker killed) was never recovered from."
    ]
    assert report.late == ["Fault 2 (worker killed): recovery took 10.1 s, and 10 s are allowed."]
    assert next(row.longest for row in report.faults if row.kind == "worker killed") == 10.1


def test_the_judge_sees_what_is_lost_changed_or_made_up(rig: Rig) -> None:
    acks = _said(rig.memory, turns=30)
    models = load_settings(openai_base_url=rig.model.base_url, embedding_backend="local")
    drain_everything(rig.database, rig.url, models)
    with psycopg.connect(rig.url, autocommit=True) as connection:
        assert judge.compare(connection, acks).violations == ()
        assert judge.compare_histories(acks, rig.url) == []
        for tampering, named in TAMPERINGS.items():
            with connection.transaction(force_rollback=True):
                connection.execute(tampering.encode())
                found = [*judge.compare(connection, acks).violations, *judge.check_tables(connection)]
                assert any(named in sentence for sentence in found), (named, found)


TAMPERINGS = {
    "DELETE FROM strandline.message WHERE seq = 3": "1 acknowledged messages that are lost",
    'UPDATE strandline.message SET envelope = \'{"content": "x"}\' WHERE seq = 3': "has other words",
    "UPDATE strandline.message SET seq = 1000 WHERE seq = 3": "acknowledged as 3, is 1000",
    "UPDATE strandline.message SET id = 'other' WHERE seq = 3": "messages that nobody acknowledged",
    "DELETE FROM strandline.receipt WHERE stage = 'merge'": "events that did not reach a stage's end",
    "UPDATE strandline.batch SET state = 'open'": "batches that were never closed",
    "DELETE FROM strandline.batch WHERE stage = 'summary'": "receipts of something else than the batch",
    "UPDATE strandline.batch SET state = 'dead'": "receipts of something else than the batch",
    "UPDATE strandline.fact SET text = 'made up'": "facts that nobody said",
    "DELETE FROM strandline.chunk WHERE from_seq = 1": "not each in one searchable piece",
    "DELETE FROM strandline.block_state": "sessions whose summary does not reach their last flush",
    """INSERT INTO strandline.batch (shard_key, batch_id, scope_key, generation_id, stage, state, lease_epoch,
        event_ids) SELECT shard_key, gen_random_uuid(), scope_key, generation_id, stage, state, 1, event_ids
        FROM strandline.batch""": "events applied by more than one batch",
    """INSERT INTO strandline.fact (shard_key, generation_id, fact_id, text, fingerprint, lexemes, topics,
        said_at) SELECT shard_key, generation_id, gen_random_uuid(), text,
        convert_to(gen_random_uuid()::text, 'UTF8'), '{}', '{}', said_at
        FROM strandline.fact""": "facts that an owner has twice",
}


def test_the_judge_sees_messages_out_of_order() -> None:
    acks = [Ack("s", "p0", number, f"s.p0.{number}", "", 3 - number, 0, 0, 0) for number in (1, 2)]
    assert list(judge._out_of_order(acks)) == ["s of p0"]
    assert list(judge._out_of_order(acks[:1])) == []


def test_every_session_has_one_owner() -> None:
    owners = defaultdict(set)
    for slot in range(4):
        for speaker in speakers_of(slot):
            owners[speaker.session].add(speaker.user)
            assert user_of(speaker.session) == speaker.user
    assert Counter(map(len, owners.values())) == {1: len(owners)}


def test_a_producer_that_is_killed_as_the_load_ends_recovers() -> None:
    """It is started again at the end of the plan, and the load goes on until it has put once more."""
    shape = Shape(faults=26, calm=0.0, span=2.0, workers=1, producers=2)
    plan = (PlannedFault(1, at=1.0, seconds=0.5, kind="producer killed", slot=1),)
    report = Campaign(
        2, shape, rate=RATE, broker="redis", say=print, plan=plan, patience=10, popen=forking.Popen
    ).run()
    assert report.violations == []
    assert [one.seconds is not None for one in report.recoveries] == [True]


def test_a_short_campaign_finds_no_violation(capsys: pytest.CaptureFixture[str]) -> None:
    report = Campaign(
        seed=5, shape=SHORT, rate=RATE, broker="redis", say=print, patience=10, popen=forking.Popen
    ).run()
    with capsys.disabled():
        print(f"\n{as_text(report)}")
    assert report.violations == []
    assert report.verified == "no violation"
    assert (report.lost, report.doubled, report.stuck, report.unexplained) == (0, 0, 0, 0)
    assert sum(row.count for row in report.faults) == SHORT.faults
    assert all(row.count for row in report.faults)
    assert report.accepted > 0
    # A new derivation applies each event once more.
    assert report.applied >= 4 * report.events > 0
    assert report.edits and report.resets
    assert json.loads(as_json(report))["seed"] == 5
    # They are kept where a recovery came late, which says how fast the machine was just then.
    assert report.late or not Path(report.logs or "/none").exists()


def test_an_interrupted_campaign_leaves_nothing_behind(tmp_path: Path) -> None:
    campaign = forking.Popen(
        [sys.executable, "-m", "tests.chaos", "--minutes", "3"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert campaign.stderr is not None
    with campaign.stderr:
        lines = iter(campaign.stderr.readline, "")
        assert any("puts" in line for line in lines), "it began"
        assert len(_processes_of(tmp_path)) > 8
        campaign.send_signal(signal.SIGINT)
        said = campaign.stderr.read()
    assert campaign.wait(300) == 130, said
    assert "every process that was started is gone" in said
    wait_until(lambda: not _processes_of(tmp_path), timeout=5, what="its processes to end")
    assert [path for path in tmp_path.iterdir() if path.name.startswith("chaos-")] == []


def _said(make_memory: MakeMemory, turns: int) -> list[Ack]:
    """A producer's turns in one session, put; the acknowledgements."""
    speaker = speakers_of(0)[0]
    memory = make_memory(speaker.session, user_id=speaker.user, token_limit=300, token_flush_size=60)
    acks = []
    for number in range(1, turns + 1):
        message = message_of(speaker, number)
        seq = memory.put(message)
        digest = digest_of(message["role"], message["content"])
        acks.append(
            Ack(speaker.session, speaker.writer, number, message["id"], digest, seq, time.monotonic(), 0, 0)
        )
    memory.flush(all=True)
    return acks


def _processes_of(directory: Path) -> list[int]:
    """Processes whose command line, environment or working directory names the directory."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                texts = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                if str(directory).encode() in texts or str(directory) in str((process / "cwd").readlink()):
                    found.append(int(process.name))
            except OSError:
                continue
    return found


def test_a_wrong_answer_explains_what_a_worker_does_with_it_when_it_wakes_up() -> None:
    wrong, inf = Interval("model answers otherwise", 100.0, 110.0), float("inf")
    assert heeded_until(wrong, []) == 118.0
    assert heeded_until(wrong, [Interval(FROZEN_WORKER, 105.0, 122.0)]) == 130.0
    assert heeded_until(wrong, [Interval(FROZEN_WORKER, 105.0, inf)]) == inf
    assert heeded_until(wrong, [Interval(FROZEN_WORKER, 90.0, 99.0)]) == 118.0, "it was awake by then"
    assert heeded_until(wrong, [Interval(FROZEN_WORKER, 119.0, 130.0)]) == 118.0, "it had heeded it by then"
