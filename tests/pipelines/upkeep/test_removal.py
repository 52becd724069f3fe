"""Retention's steps on the real database: what leaves, what stays, and what an archive that fails keeps."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import psycopg
import pytest

from strandline import ArchiveError, Memory, Message, NotFoundError, Retention, retention
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.pipelines.inspect.explain_message import explain_fact_alone
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.upkeep import handler_archive
from strandline.pipelines.upkeep.archive import LeavingRange
from strandline.pipelines.upkeep.handler_archive import HandlerArchive, LeavingMessages
from strandline.pipelines.upkeep.object_archive import ObjectArchive
from strandline.pipelines.upkeep.passes import Which, forget_aged, run_once, tick
from strandline.pipelines.upkeep.removal import Removal, Remover, StepPoint
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.queries.derived.facts_merge import PendingCandidates
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import identify_session
from strandline.wiring.archives import open_archive
from tests.conftest import MakeMemory, Rig, rows_of, wait_until
from tests.support.aging import DAY, age_messages, age_session
from tests.support.opened_rows import clear_only, stored_rows_of
from tests.support.servers.databases import temporary_database
from tests.support.servers.object_server import BUCKET, ObjectServer
from tests.support.stored import flush_events
from tests.support.workers.draining import drain_everything

LIMITS: dict[str, Any] = {"token_limit": 400, "token_flush_size": 60, "chat_history_token_ratio": 0.5}
ALL = Which(namespace=None, session_key=None)
OLD = 30
COLUMNS = (
    "seq, id, role, tokens, bytes, encode(digest, 'hex'), envelope::text, metadata::text, calls::text,"
    " answers, created_at, labels"
)
ODD = 'Zürich "quoted" \\ back, \u2028 lines, 日本語 and a tab\t.'


class Killed(BaseException):
    """The process is gone: nothing of its own runs any more."""


def said(number: int) -> Message:
    important = {"important": True, "n": number} if number == 4 else {"n": number}
    text = (
        f"My boat number {number} is called Aurora {number}." if number % 2 == 0 else f"Noted {number}. {ODD}"
    )
    return Message(role="user" if number % 2 == 0 else "assistant", content=text, metadata=important)


@pytest.fixture(scope="module")
def filled(stack: EmbeddedStack) -> Iterator[str]:
    """The name of a database with one derived session; its first thirty messages are 40 days old."""
    with temporary_database(stack.database_url) as url, pytest.MonkeyPatch.context() as environment:
        environment.setenv("STRANDLINE_EMBEDDED", "never")
        memory = Memory.from_defaults("s", user_id="ana", database_url=url, **LIMITS)
        memory.put(Message(role="system", content="Be kind."))
        for number in range(2, 62):
            memory.put(said(number))
        settings = load_settings(database_url=url)
        database = Database.connect(ConnectionOptions.from_settings(url, settings))
        drain_everything(database, url, settings)
        memory.close()
        database.close()
        age_messages(url, "s", 40 * DAY, OLD)
        yield urlsplit(url).path[1:]


@pytest.fixture
def database_url(stack: EmbeddedStack, filled: str) -> Iterator[str]:
    with temporary_database(stack.database_url, filled) as url:
        yield url


@pytest.fixture
def memory(make_memory: MakeMemory) -> Memory:
    return make_memory("s", user_id="ana", **LIMITS)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return f"file://{tmp_path}/archive"


def remove(
    database: Database,
    opener: Callable[[str], Any] = open_archive,
    reach: Callable[[StepPoint], None] = lambda _point: None,
) -> Removal:
    return run_once(database, Remover(database, opener, reach=reach, busy_seconds=0.0, rest=0.0), ALL)


def stored(url: str) -> dict[int, tuple[Any, ...]]:
    """All messages of the session as they are stored, by number."""
    rows = stored_rows_of(url, f"SELECT {COLUMNS} FROM strandline.message ORDER BY seq")
    return {row[0]: row for row in rows}


def archived(database: Database, opener: Callable[[str], Any] = open_archive) -> dict[int, tuple[Any, ...]]:
    """The same from the archive's objects."""
    found = {}
    for one in retention.archived_ranges(database, "s"):
        assert one.archive and one.object_name and one.object_digest
        content = opener(one.archive).read(one.object_name, one.object_digest)
        for row in [json.loads(line) for line in content.decode().split("\n")[1:] if line]:
            row["created_at"] = datetime.fromisoformat(row["created_at"])
            names = ("seq", "id", "role", "tokens", "bytes", "digest", "envelope", "metadata", "calls")
            found[row["seq"]] = tuple(row[name] for name in (*names, "answers", "created_at", "labels"))
    return found


def assert_derived(url: str) -> None:
    """Each event reached the end of each pipeline, and each message was in one."""
    events = flush_events(url)
    stages = "SELECT stage, count(*) FROM strandline.receipt WHERE outcome = 'applied' GROUP BY stage"
    found = dict(rows_of(url, stages))
    assert found == dict.fromkeys(("extract", "merge", "summary", "vectors"), events)


def removed_seqs(url: str) -> set[int]:
    return set(range(1, 62)) - set(stored(url))


def test_what_is_old_leaves_in_whole_events_and_is_in_the_archive_byte_for_byte(
    rig: Rig, memory: Memory, folder: str
) -> None:
    before = stored(rig.url)
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))
    done = remove(rig.database)
    gone = removed_seqs(rig.url)
    last = max(gone)
    ends = [row[0] for row in rows_of(rig.url, "SELECT through_seq FROM strandline.flush_event")]
    assert gone == set(range(2, last + 1)) - {4} and last in ends and OLD - 10 < last <= OLD
    assert done.removed == len(gone) and done.kept == 1 and done.archived == len(gone) + 1
    assert archived(rig.database) == {seq: before[seq] for seq in range(2, last + 1)}, (
        "the important one as well"
    )
    assert [message.seq for message in memory.get_all()] == [1, 4, *range(OLD + 1, 62)]
    assert verify(rig.database, deep=True).violations == ()
    (one,) = retention.archived_ranges(rig.database, "s")
    assert (one.kept_seqs, one.state, one.cause) == ((4,), "removed", "age")
    assert remove(rig.database) == Removal(), "nothing is left to do"


def test_facts_outlive_their_messages_and_say_where_these_are(
    memory: Memory, database: Database, folder: str
) -> None:
    facts = memory.facts.list(limit=100)
    first = next(fact for fact in facts if "Aurora 2." in fact.text)
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))
    remove(database)
    assert [(one.fact_id, one.text) for one in memory.facts.list(limit=100)] == [
        (one.fact_id, one.text) for one in facts
    ]
    explained = explain_fact_alone(database, str(first.fact_id), user_id="ana")
    (revision,) = explained.revisions  # type: ignore[union-attr]
    (source,) = revision.removed
    assert (source.from_seq, source.cause, source.archive) == (2, "age", folder) and source.object_name


def test_facts_go_with_their_messages_if_that_is_asked_for(memory: Memory, database: Database) -> None:
    important = {fact.text for fact in memory.facts.list(limit=100)}
    memory.set_retention(Retention(max_age_seconds=30 * DAY, forget_facts=True))
    remove(database)
    texts = {fact.text for fact in memory.facts.list(limit=100)}
    assert not any(f"Aurora {n}." in text for text in texts for n in range(6, 20))
    assert any("Aurora 40." in text for text in texts) and texts < important
    assert verify(database, deep=True).violations == ()


@pytest.mark.parametrize("point", get_args(StepPoint))
def test_a_kill_at_each_step_loses_nothing_and_doubles_nothing(
    rig: Rig, memory: Memory, folder: str, tmp_path: Path, point: StepPoint
) -> None:
    before = stored(rig.url)
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))

    def kill(reached: StepPoint) -> None:
        if reached == point:
            raise Killed

    with pytest.raises(Killed):
        remove(rig.database, reach=kill)
    if point != "removal_done":
        assert stored(rig.url) == before, "nothing leaves before it was read back"
    remove(rig.database)
    gone = removed_seqs(rig.url)
    assert gone and archived(rig.database) == {seq: before[seq] for seq in range(2, max(gone) + 1)}
    objects = list(tmp_path.rglob("*.jsonl"))
    assert len(objects) == len(retention.archived_ranges(rig.database, "s")) == 1
    assert verify(rig.database, deep=True).violations == ()


def test_several_processes_at_once_remove_it_once(
    rig: Rig, memory: Memory, folder: str, tmp_path: Path
) -> None:
    before = stored(rig.url)
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))
    inner: list[Removal] = []

    def meanwhile(point: StepPoint) -> None:
        if point == "removal_stored" and not inner:
            inner.append(Removal())
            inner[0] = remove(rig.database)

    outer = remove(rig.database, reach=meanwhile)
    gone = removed_seqs(rig.url)
    assert outer.removed + inner[0].removed == len(gone) > 0
    assert archived(rig.database) == {seq: before[seq] for seq in range(2, max(gone) + 1)}
    assert len(list(tmp_path.rglob("*.jsonl"))) == 1


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_store_that_fails_keeps_everything_and_says_so(
    rig: Rig, scheme: str, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stored(rig.url)
    with ObjectServer() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=f"{scheme}://{BUCKET}/kept"))
        server.refused = {"PUT"}
        assert remove(rig.database).failed == 1 and stored(rig.url) == before
        server.refused = set()
        server.corrupted = b"something else"
        assert remove(rig.database).failed == 1 and stored(rig.url) == before, "it is read back first"
        (step,) = retention.status(rig.database).steps
        assert "digest differs" in (step.last_error or "") and step.attempts == 2
        assert "secret" not in (step.last_error or "")
        server.corrupted = None
        done = remove(rig.database)
        gone = removed_seqs(rig.url)
        assert done.removed == len(gone) > 0
        assert archived(rig.database) == {seq: before[seq] for seq in range(2, max(gone) + 1)}
        names = sorted(server.objects)
        assert len(names) == 2 and all(name.startswith("kept/") for name in names)
        manifest = json.loads(server.objects[names[1]])
        assert manifest["messages"] == len(gone) + 1 and names[0].endswith(manifest["object"])
        assert all(server.signed) or scheme == "gs", "its key says that it signs nothing"
        assert [message.text for message in retention.read_archived(rig.database, "s")][2] == said(4).text


class Refusing:
    """An archive that is told what to do."""

    has_objects = False

    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.taken: list[list[Message]] = []

    def store(self, _leaving: LeavingRange, messages: Callable[[], list[Message]]) -> str | None:
        if self.fails:
            raise ArchiveError("It is full.")
        self.taken.append(messages())
        return None

    def check(self, name: str, digest: str) -> None:
        raise AssertionError("there is nothing to read back")

    read = delete = check


def test_a_handler_that_fails_keeps_everything(memory: Memory, database: Database, database_url: str) -> None:
    before = stored(database_url)
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive="handler:mine"))
    handler = Refusing(fails=True)
    assert remove(database, lambda _name: handler).failed == 1
    assert stored(database_url) == before
    handler.fails = False
    assert remove(database, lambda _name: handler).removed == len(removed_seqs(database_url)) > 0
    last = max(removed_seqs(database_url))
    assert [message.seq for message in handler.taken[0]] == list(range(2, last + 1))


TAKEN: list[LeavingMessages] = []
OPEN = threading.Event()


def take(leaving: LeavingMessages) -> None:
    if not OPEN.wait(timeout=20):
        raise TimeoutError
    TAKEN.append(leaving)


def test_a_handler_of_an_installed_package_is_called_in_time_or_again(
    rig: Rig, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stored(rig.url)
    places = {("strandline.archives", "mine"): f"{__name__}:take"}
    monkeypatch.setattr(handler_archive, "find_installed", lambda *names: places.get(names))
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive="handler:mine"))
    TAKEN.clear()
    OPEN.clear()
    assert remove(rig.database, lambda _name: HandlerArchive("mine", seconds=0.05)).failed == 1
    assert stored(rig.url) == before
    assert "did not return within 0.05 s" in str(retention.status(rig.database).steps[0].last_error)
    OPEN.set()
    assert remove(rig.database).removed == len(removed_seqs(rig.url)) > 0
    assert {one.step_id for one in TAKEN} == {TAKEN[0].step_id}, "it is called again with the same id"
    assert [message.seq for message in TAKEN[-1].messages] == list(range(2, max(removed_seqs(rig.url)) + 1))


@pytest.mark.parametrize("name", ["other", "os:remove"])
def test_an_act_chooses_only_among_installed_handlers(name: str) -> None:
    with pytest.raises(ArchiveError, match="No installed package has an archive handler"):
        HandlerArchive(name)


Change = Callable[[Memory], object]
NOWHERE = "file:///proc/nowhere/archive"  # no folder can be made there


@pytest.mark.parametrize(
    "change",
    [
        lambda memory: memory.set_retention(Retention()),
        lambda memory: memory.set_retention(Retention(max_age_seconds=50 * DAY)),
    ],
    ids=["nothing leaves any more", "more is kept"],
)
@pytest.mark.parametrize(
    "point", ["removal_planned", "removal_stored", "removal_archived", "removal_read_back"]
)
def test_a_step_does_not_outlive_the_act_that_it_was_planned_by(
    rig: Rig, change: Change, point: StepPoint, memory: Memory, folder: str, tmp_path: Path
) -> None:
    before = stored(rig.url)
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))

    def end(reached: StepPoint) -> None:
        if reached == point:
            raise Killed

    with pytest.raises(Killed):
        remove(rig.database, reach=end)
    change(memory)
    done = remove(rig.database)
    assert (done.removed, done.given_up) == (0, 1) and stored(rig.url) == before
    assert not list(tmp_path.rglob("*.jsonl")), "what it had archived is deleted"
    assert retention.status(rig.database).steps == ()
    ((state,),) = rows_of(rig.url, "SELECT reason FROM strandline.given_up_step")
    assert state == "the retention was changed"


def test_a_corrected_archive_is_used_at_once(rig: Rig, memory: Memory, folder: str) -> None:
    """Although a step whose attempt failed is left alone for a minute."""
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=NOWHERE))
    remover = Remover(rig.database, open_archive, rest=0.0)
    assert run_once(rig.database, remover, ALL).failed == 1
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))
    before = stored(rig.url)
    done = run_once(rig.database, remover, ALL)
    gone = removed_seqs(rig.url)
    assert done.given_up == 1 and done.removed == len(gone) > 0
    assert archived(rig.database) == {seq: before[seq] for seq in range(2, max(gone) + 1)}


def test_an_act_that_comes_while_a_step_is_archived_stops_it(
    rig: Rig, memory: Memory, folder: str, tmp_path: Path
) -> None:
    before = stored(rig.url)
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))

    def keep(point: StepPoint) -> None:
        if point == "removal_read_back":
            memory.set_retention(Retention())

    assert remove(rig.database, reach=keep).removed == 0 and stored(rig.url) == before
    assert not list(tmp_path.rglob("*.jsonl"))


def test_an_object_that_a_step_left_is_named_until_it_is_deleted(
    rig: Rig, memory: Memory, folder: str, tmp_path: Path
) -> None:
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))

    def end(reached: StepPoint) -> None:
        if reached == "removal_archived":
            raise Killed

    with pytest.raises(Killed):
        remove(rig.database, reach=end)
    memory.set_retention(Retention())

    def refuse(_name: str) -> Any:
        raise ArchiveError("It is not there today.")

    assert remove(rig.database, refuse).given_up == 1
    assert len(list(tmp_path.rglob("*.jsonl"))) == 1
    left = "SELECT archive = %s, object_name IS NOT NULL, deleted_at IS NULL FROM strandline.given_up_step"
    assert rows_of(rig.url, left.replace("%s", f"'{folder}'")) == [(True, True, True)]
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute("UPDATE strandline.given_up_step SET tried_at = tried_at - interval '2 hours'")
    remove(rig.database)
    assert not list(tmp_path.rglob("*.jsonl"))


@clear_only("reads the text of an archived object")
def test_words_that_a_correction_takes_back_meanwhile_are_in_no_archive(
    rig: Rig, memory: Memory, folder: str, tmp_path: Path
) -> None:
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))
    done: list[bool] = []

    def correct(point: StepPoint) -> None:
        if point == "removal_read_back" and not done:
            done.append(True)
            memory.set_retention(Retention())
            memory.replace(10, "Something harmless.")
            memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))

    outcome = remove(rig.database, reach=correct)
    assert (outcome.removed, outcome.waiting) == (0, 1), "its event is derived again first"
    drain_everything(rig.database, rig.url, rig.settings)
    assert remove(rig.database).removed > 0
    texts = [path.read_text() for path in tmp_path.rglob("*.jsonl")]
    assert len(texts) == 1 and "Something harmless." in texts[0] and "Aurora 10." not in texts[0]
    assert verify(rig.database, deep=True).violations == ()


def test_a_step_whose_messages_changed_begins_anew_at_once(
    rig: Rig, memory: Memory, folder: str, tmp_path: Path
) -> None:
    """Although a step that has been begun is left alone for a minute."""
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))
    done: list[bool] = []

    def change(point: StepPoint) -> None:
        if point == "removal_read_back" and not done:
            done.append(True)
            changed = """'{"content": "changed"}' WHERE seq = 5 RETURNING 1"""
            rows_of(rig.url, f"UPDATE strandline.message SET envelope = {changed}")

    outcome = run_once(rig.database, Remover(rig.database, open_archive, reach=change, rest=0.0), ALL)
    assert outcome.busy == 0
    assert outcome.removed > 0
    assert len(list(tmp_path.rglob("*.jsonl"))) == 1


def test_what_workers_still_derive_waits(rig: Rig, memory: Memory) -> None:
    memory.replace(10, "My boat is called Borealis.")
    memory.set_retention(Retention(max_age_seconds=30 * DAY))
    early = remove(rig.database)
    assert early.waiting == 1 and 10 in stored(rig.url)
    drain_everything(rig.database, rig.url, rig.settings)
    assert remove(rig.database).removed and 10 not in stored(rig.url)
    assert_derived(rig.url)


def test_the_newest_messages_stay_by_number_and_the_window_moves(rig: Rig, memory: Memory) -> None:
    memory.set_retention(Retention(max_messages=6))
    for _ in range(2):
        remove(rig.database)
        drain_everything(rig.database, rig.url, rig.settings)
    left = sorted(set(stored(rig.url)) - {1, 4})
    assert left == list(range(left[0], 62)) and 6 <= len(left) <= 12
    assert [m.seq for m in memory.get().window] == [seq for seq in left if seq >= memory.get().window_from]
    assert verify(rig.database, deep=True).violations == ()
    memory.put(said(62))
    assert memory.get().window[-1].text == said(62).text


def test_a_session_that_expired_goes_whole_once_it_is_derived(rig: Rig, folder: str) -> None:
    memory = rig.memory("s", user_id="ana", **LIMITS)
    memory.set_retention(Retention(ttl_seconds=3_600, archive=folder))
    memory.put(Message(role="user", content="My yacht is called Calypso."))
    before = stored(rig.url)
    age_session(rig.url, "s", 4_000)
    assert remove(rig.database).waiting == 1, "what was not delivered is derived first"
    drain_everything(rig.database, rig.url, rig.settings)
    done = remove(rig.database)
    assert done.removed == 61 and set(stored(rig.url)) == {4}
    assert archived(rig.database) == before
    assert_derived(rig.url)
    assert [message.seq for message in memory.get_all()] == [4]
    assert verify(rig.database, deep=True).violations == ()
    memory.put(Message(role="user", content="hello again"))
    assert [message.text for message in memory.get_all()][1:] == ["hello again"]
    assert verify(rig.database, deep=True).violations == ()
    (state,) = rows_of(rig.url, "SELECT count(*) FROM strandline.chunk WHERE from_seq <> 4")
    assert state == (0,)


def test_what_a_reset_left_is_past_its_age_as_well(rig: Rig, memory: Memory) -> None:
    memory.reset()
    memory.put(Message(role="user", content="new"))
    age_messages(rig.url, "s", 40 * DAY, 61)
    memory.set_retention(Retention(max_age_seconds=30 * DAY))
    assert remove(rig.database).removed == 60
    assert set(stored(rig.url)) == {4, 62}
    assert [message.text for message in memory.get_all()] == ["new"]
    assert verify(rig.database, deep=True).violations == ()


def test_a_turn_of_a_worker_goes_through_all_sessions_and_goes_on_with_steps(
    rig: Rig, memory: Memory, folder: str
) -> None:
    remover = Remover(rig.database, open_archive, busy_seconds=0.0, rest=0.0)

    def turn() -> Removal:
        return tick(rig.database, remover, interval_seconds=3_600, is_ending=lambda: False)

    assert turn() == Removal() and rows_of(rig.url, "SELECT FROM strandline.retention_run") == []
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))
    done = turn()
    assert done.removed == len(removed_seqs(rig.url)) > 0
    ((state, counts),) = rows_of(rig.url, "SELECT state, counts FROM strandline.retention_run")
    assert state == "done" and counts["removed"] == done.removed and counts["sessions"] == 1
    assert turn() == Removal(), "the next pass comes after its interval"


def test_the_plan_says_what_would_leave_and_changes_nothing(memory: Memory, database: Database) -> None:
    assert list(retention.plan(database)) == []
    memory.set_retention(Retention(max_age_seconds=30 * DAY, max_messages=19))
    (past,) = retention.plan(database)
    assert (past.session_id, past.aged, past.surplus, past.important) == ("s", OLD - 2, 12, 1)
    assert len(memory.get_all()) == 33, "nothing was changed"
    assert 0 < past.waiting < past.aged + past.surplus
    assert remove(database).removed == past.free, "what can leave now"
    (rest,) = retention.plan(database)
    assert (rest.free, rest.waiting) == (0, past.waiting)


def test_it_cannot_be_taken_back_to_what_is_gone(rig: Rig, memory: Memory) -> None:
    memory.set_retention(Retention(max_age_seconds=30 * DAY))
    remove(rig.database)
    last = max(removed_seqs(rig.url))
    with pytest.raises(NotFoundError, match="left its log by its retention"):
        memory.rewind(last)
    with pytest.raises(NotFoundError, match="retention"):
        memory.replace(last, "other words")
    memory.replace(4, "An important thing, said otherwise.")
    memory.rewind(last + 4)
    drain_everything(rig.database, rig.url, rig.settings)
    assert verify(rig.database, deep=True).violations == ()
    assert 4 in stored(rig.url)


def test_a_folder_that_is_missing_is_not_made_anew(
    rig: Rig, memory: Memory, folder: str, tmp_path: Path
) -> None:
    """Such as that of a disk which is not mounted: neither is anything put there, nor taken for deleted."""
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))
    assert remove(rig.database).removed > 0
    age_messages(rig.url, "s", 40 * DAY)
    (tmp_path / "archive").rename(tmp_path / "away")
    before = stored(rig.url)
    assert remove(rig.database).failed == 1 and stored(rig.url) == before
    assert "not mounted" in str(retention.status(rig.database).steps[0].last_error)
    assert not (tmp_path / "archive").exists()
    (tmp_path / "away").rename(tmp_path / "archive")
    assert remove(rig.database).removed > 0


def test_the_folder_is_made_and_an_object_is_never_written_again(tmp_path: Path) -> None:
    archive = ObjectArchive(f"file://{tmp_path}/deep/down")
    keys = identify_session("default", "s", None)

    def leaving(text: str) -> Any:
        return LeavingRange(
            shard_key=keys.shard_key,
            session_key=keys.session_key,
            namespace="default",
            session_id=text,
            user_id=None,
            step_id=keys.session_key,
            from_seq=1,
            through_seq=2,
            cause="age",
            rows=(),
        )

    digest = archive.store(leaving("a"), list)
    assert archive.store(leaving("a"), list) == digest
    with pytest.raises(ArchiveError, match="other content"):
        archive.store(leaving("b"), list)
    archive.delete(leaving("a").object_name)
    archive.delete(leaving("a").object_name)
    with pytest.raises(ArchiveError, match="missing"):
        archive.check(leaving("a").object_name, str(digest))
    (tmp_path / "file").write_text("")
    with pytest.raises(ArchiveError):
        ObjectArchive(f"file://{tmp_path}/file/below").store(leaving("a"), list)


@clear_only("changes facts by SQL")
def test_a_fact_that_is_revived_meanwhile_is_not_taken_for_an_ended_one(rig: Rig) -> None:
    """What is past its age is looked for under the locks of edits, so what these bring back stays."""
    retention.set_retention(rig.database, Retention(ended_facts_seconds=DAY), namespace="default")
    ((shard_key, ended, by_fact),) = rows_of(
        rig.url,
        "UPDATE strandline.fact f SET live = false, invalidated_at = now() - interval '9 days',"
        " invalidated_by = o.fact_id FROM (SELECT * FROM strandline.fact ORDER BY fact_id LIMIT 1) AS o"
        " WHERE f.fact_id = (SELECT max(fact_id::text)::uuid FROM strandline.fact)"
        " RETURNING f.shard_key, f.fact_id, o.fact_id",
    )
    with psycopg.connect(rig.url) as edit:
        edit.execute(
            "SELECT FROM strandline.lane WHERE scope_key = %s AND stage = 'merge' FOR UPDATE", [shard_key]
        )
        edit.execute("DELETE FROM strandline.fact WHERE fact_id = %s", [by_fact])
        (revived,) = edit.execute("SELECT strandline.revive_facts_v1(%s)", [shard_key]).fetchone() or ()
        assert revived == [ended]
        passing = threading.Thread(target=forget_aged, args=[rig.database])
        passing.start()
        waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()"
        wait_until(lambda: rows_of(rig.url, waits), timeout=30, what="the pass to wait")
        edit.commit()
    passing.join()
    kept = "SELECT f.live, count(r.*) > 0 FROM strandline.fact f LEFT JOIN strandline.fact_revision r"
    kept += " USING (shard_key, generation_id, fact_id) WHERE f.fact_id = %s GROUP BY f.live"
    assert rows_of(rig.url, kept, ended) == [(True, True)]


@clear_only("moves a message by SQL")
def test_what_an_assistant_said_stays_an_assistants_when_it_comes_from_an_archive(rig: Rig) -> None:
    """A derivation from the archive ends and rewords what people wrote no more than any other."""
    ((shard_key, generation_id, event_id, session_key),) = rows_of(
        rig.url,
        "UPDATE strandline.fact_candidate c SET seqs = '{3}' FROM (SELECT event_id, min(ordinal) AS ordinal"
        " FROM strandline.fact_candidate GROUP BY event_id ORDER BY event_id LIMIT 1) AS one"
        " WHERE c.event_id = one.event_id AND c.ordinal = one.ordinal"
        " RETURNING c.shard_key, c.generation_id, c.event_id, c.session_key",
    )

    def said_by_assistants() -> set[bool]:
        keys = {"shard_key": shard_key, "generation_id": generation_id}
        rows = rig.database.fetch(PendingCandidates(**keys, event_ids=[event_id]))
        return {row.is_by_assistants for row in rows if row.seqs == [3]}

    assert said_by_assistants() == {True}
    rows_of(
        rig.url,
        "WITH gone AS (DELETE FROM strandline.message WHERE session_key = %s AND seq = 3 RETURNING *)"
        " INSERT INTO strandline.archived_input (shard_key, session_key, seq, generation_id, id, role,"
        " tokens, envelope, metadata, created_at)"
        " SELECT shard_key, session_key, seq, %s, id, role, tokens, envelope,"
        " metadata, created_at FROM gone RETURNING 1",
        session_key,
        generation_id,
    )
    assert said_by_assistants() == {True}
    rows_of(rig.url, "DELETE FROM strandline.archived_input RETURNING 1")
    assert said_by_assistants() == {False}, "what is known of nobody may be a user's"
