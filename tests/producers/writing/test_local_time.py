"""A message keeps the offset of its time: days are those of who spoke, wherever they are named or shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import InvalidMessageError, Memory, Message
from strandline.erasure import Erasures
from strandline.pipelines.replay.in_place import begin_in_place, replay_in_place
from strandline.pipelines.replay.records import Selection
from strandline.producers.search.ranking import Vectors, prepare_query, serving_vectors
from strandline.producers.writing.validate import PutLimits, prepare
from strandline.schemas.display.local_time import at_offset, in_zone, offset_of
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import load_settings
from tests.conftest import MakeMemory, Rig
from tests.support.workers.draining import drain_everything

TOKYO = "Asia/Tokyo"
# 10 March 2026, 22:30 UTC: 11 March, 7:30 in Tokyo; a Wednesday there.
MOMENT = datetime(2026, 3, 10, 22, 30, tzinfo=UTC)
OFFSETS = st.integers(-15 * 60, 15 * 60)


@pytest.fixture
def drain(database: Database, database_url: str) -> Callable[[], None]:
    settings = load_settings(database_url=database_url, text_backend="local", embedding_backend="local")
    return lambda: drain_everything(database, database_url, settings)


def say(memory: Memory, text: str, at: object) -> None:
    memory.put({"role": "user", "content": text, "created_at": at})
    memory.flush(all=True)


@pytest.mark.parametrize(
    ("zone", "at", "words", "day"),
    [
        (None, MOMENT, "tomorrow", date(2026, 3, 11)),
        (None, MOMENT.astimezone(ZoneInfo(TOKYO)), "tomorrow", date(2026, 3, 12)),
        (None, "2026-03-11T07:30:00+09:00", "next Friday", date(2026, 3, 13)),
        (None, "2026-03-10T19:30:00-08:00", "today", date(2026, 3, 10)),
        (TOKYO, MOMENT, "today", date(2026, 3, 11)),
        (TOKYO, "2026-03-10T22:30:00Z", "tomorrow", date(2026, 3, 12)),
        (TOKYO, "2026-03-10T14:30:00-08:00", "tomorrow", date(2026, 3, 11)),
        ("America/Los_Angeles", "2026-03-11T03:30:00Z", "today", date(2026, 3, 10)),
        # The offset of a zone is that of the moment: summer time began on 8 March.
        ("America/Los_Angeles", "2026-03-08T07:30:00Z", "today", date(2026, 3, 7)),
        ("America/Los_Angeles", "2026-07-08T07:30:00Z", "today", date(2026, 7, 8)),
    ],
)
def test_the_day_of_a_fact_is_the_speakers(
    make_memory: MakeMemory,
    drain: Callable[[], None],
    zone: str | None,
    at: datetime | str,
    words: str,
    day: date,
) -> None:
    memory = make_memory(user_id="ida", time_zone=zone)
    say(memory, f"My sister Ida has her wedding {words}.", at)
    drain()
    (fact,) = memory.facts.list()
    assert fact.about_date == day
    (message,) = memory.get_all()
    assert message.created_at == (datetime.fromisoformat(at) if isinstance(at, str) else at)
    local = in_zone(message.created_at, zone)
    context = str(make_memory(memory.session_id, user_id="ida").get("When is the wedding?"))
    assert f"<conversation date='{local.date()}'>" in context or "<conversation" not in context
    shown = memory.call_tool("get_context", {"question": "When is the wedding?"})["text"]
    assert f"{local.date()} user: My sister" in shown


def test_a_heading_has_the_speakers_day(make_memory: MakeMemory, drain: Callable[[], None]) -> None:
    memory = make_memory(user_id="ida", memory_blocks=["vectors"], token_limit=2_000)
    say(memory, "I moved to Bergen today.", MOMENT.astimezone(ZoneInfo(TOKYO)))
    drain()
    memory.set_policy(memory_blocks=["vectors"], time_zone="America/Los_Angeles")
    memory.put(
        {"role": "user", "content": "I like to sail near Bergen.", "created_at": "2026-03-12T03:30:00Z"}
    )
    say(memory, "So do I.", "2026-03-12T04:30:00Z")
    drain()
    context = memory.get("When did I move to Bergen, and what do I like near Bergen?")
    assert context.time_zone == "America/Los_Angeles"
    head = context[0].text
    assert "<conversation date='2026-03-11'>\nuser: I moved to Bergen today." in head
    assert "user: I like to sail near Bergen." in head and "2026-03-12" not in head


def test_the_offset_stays_with_the_message_wherever_it_goes(rig: Rig) -> None:
    memory = rig.memory("here", user_id="ida")
    at = MOMENT.astimezone(timezone(timedelta(hours=9)))
    memory.put_messages(
        [
            {"role": "user", "content": "I moved today.", "created_at": at, "id": "m1", "name": "ida"},
            {"role": "user", "content": "In clear words.", "created_at": MOMENT},
        ]
    )
    memory.add_run("r", [{"role": "assistant", "content": "Fine.", "created_at": at}])

    def offsets(of: Memory) -> list[int | None]:
        return [offset_of(one.created_at) for one in of.get_all() if one.created_at is not None]

    assert offsets(memory) == [540, None, 540]
    assert [one.created_at for one in memory.get()] == [at, MOMENT, at]
    memory.replace(1, "I moved to Oslo today.")
    assert offsets(memory) == [540, None, 540]
    fork = memory.fork()
    assert offsets(rig.memory(fork.session_id, user_id="ida")) == [540, None, 540]
    copy = rig.memory("there", user_id="ida")
    copy.import_messages(memory.get_all())
    assert offsets(copy) == [540, None, 540]
    erasures = Erasures.of_namespace(database_url=rig.url)
    lines = [json.loads(line) for line in erasures.export_session("here")]
    erasures.close()
    exported = [Message.from_openai(line["message"]) for line in lines if line["kind"] == "message"]
    assert [offset_of(one.created_at) for one in exported if one.created_at] == [540, None, 540]


def test_the_same_words_at_another_offset_are_the_same_message(make_memory: MakeMemory) -> None:
    memory = make_memory()
    message = {"role": "user", "content": "Hello.", "id": "m"}
    assert memory.put({**message, "created_at": MOMENT.astimezone(ZoneInfo(TOKYO))}) == 1
    assert memory.put({**message, "created_at": MOMENT}) == memory.put(message) == 1
    run = [{"role": "assistant", "content": "Fine.", "created_at": MOMENT.astimezone(ZoneInfo(TOKYO))}]
    first = memory.add_run("r", run)
    again = memory.add_run("r", [{"role": "assistant", "content": "Fine."}])
    assert first.seqs == again.seqs and not again.corrections


def test_a_zone_holds_from_a_change_on_and_a_replay_gives_the_same(
    rig: Rig, drain: Callable[[], None]
) -> None:
    memory = rig.memory(user_id="ida", time_zone=TOKYO)
    say(memory, "My sister Ida has her wedding tomorrow.", MOMENT)
    memory.set_policy(time_zone="UTC", actor="ops")
    drain()
    say(memory, "My brother moves to Oslo tomorrow with his wife.", MOMENT)
    drain()

    def days() -> dict[bool, date | None]:
        return {"wedding" in fact.text: fact.about_date for fact in memory.facts.list()}

    expected = {True: date(2026, 3, 12), False: date(2026, 3, 11)}
    assert days() == expected
    for pipeline in ("facts", "vectors"):
        replay = begin_in_place(rig.database, pipeline, Selection())
        replay_in_place(rig.database, replay, rig.settings)
    drain()
    assert days() == expected


@pytest.mark.parametrize("name", ["Tokyo", "Europe", "../UTC", "", "europe/lisbon", 9, "Asia/Tokyo "])
def test_an_unknown_zone_is_refused(make_memory: MakeMemory, name: Any) -> None:
    with pytest.raises(InvalidMessageError, match=r"time_zone: .*Europe/Lisbon"):
        make_memory(time_zone=name)
    memory = make_memory()
    memory.put({"role": "user", "content": "x"})
    with pytest.raises(InvalidMessageError, match=r"time_zone: .*Europe/Lisbon"):
        memory.set_policy(time_zone=name)


@given(
    minutes=OFFSETS, content=st.text(), extra=st.dictionaries(st.text(min_size=1), st.integers(), max_size=3)
)
def test_an_envelope_without_its_offset_is_that_of_the_message_in_utc(
    minutes: int, content: str, extra: dict[str, int]
) -> None:
    content = content.replace("\0", "").encode(errors="ignore").decode()
    extra = {f"x_{key.encode(errors='ignore').decode()}".replace("\0", ""): v for key, v in extra.items()}
    plain = Message("user", content, id="m", created_at=MOMENT, extra={**extra, "x": {"offset": 5}})
    local = Message("user", content, id="m", created_at=at_offset(MOMENT, minutes), extra=plain.extra)
    one, other = (prepare(message, "message", PutLimits(10**6, 10**6)) for message in (plain, local))
    assert one.digest == other.digest
    assert {**json.loads(other.envelope), "offset": minutes or None} == {
        **json.loads(one.envelope),
        "offset": minutes or None,
    }
    assert json.loads(other.envelope).get("offset", 0) == minutes
    assert other.size == len(other.envelope.encode())


def test_a_question_is_asked_on_the_day_of_its_zone(database: Database) -> None:
    # So far apart that their days are never the same.
    vectors = [Vectors(1, {}, time_zone=zone) for zone in ("Pacific/Kiritimati", "Pacific/Niue")]
    asked = [database.run(prepare_query("What did I say yesterday?", one, None)) for one in vectors]
    assert asked[0].aim.days != asked[1].aim.days


def test_a_session_begins_in_the_zone_of_its_user(make_memory: MakeMemory, database: Database) -> None:
    def zone_of(session_id: str, user_id: str | None, **named: Any) -> str | None:
        memory = make_memory(session_id, user_id=user_id, **named)
        memory.put({"role": "user", "content": "Hello."})
        return memory.set_policy().time_zone

    assert zone_of("a", "ida") is None
    assert zone_of("b", "ida", time_zone=TOKYO) == TOKYO
    assert zone_of("c", "ida") == TOKYO
    assert zone_of("a", "ida") is None, "one that has begun stays as it is"
    assert zone_of("d", "ole") is zone_of("e", None) is None
    assert zone_of("f", "ida", time_zone="UTC") == zone_of("g", "ida") == "UTC"
    make_memory("g", user_id="ida").set_policy(time_zone="Europe/Oslo")
    found = database.run(serving_vectors(make_memory("c", user_id="ida")._subject.identity.shard_key))
    assert found is not None and found.time_zone == "Europe/Oslo", "searches ask in it"


@given(minutes=OFFSETS)
def test_a_zone_counts_only_where_there_is_no_offset(minutes: int) -> None:
    local = at_offset(MOMENT, minutes)
    assert in_zone(local, TOKYO) == MOMENT
    assert in_zone(local, TOKYO).utcoffset() == timedelta(minutes=minutes or 9 * 60)
    assert in_zone(in_zone(local, TOKYO), None).utcoffset() == timedelta(minutes=minutes or 9 * 60)
    # Postgres may be set to another zone, in which a driver then gives all times.
    assert in_zone(MOMENT.astimezone(ZoneInfo("Europe/Berlin")), None).utcoffset() == timedelta()
