"""The phases of forgetting (``forget_facts_v1``), each a function, on rows made by hand.

A session has one event here, with the same key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid5

import psycopg
import pytest
from psycopg import sql

OWNER, FORGOTTEN, SIBLING, OTHER = (UUID(int=number) for number in (1, 2, 3, 4))
BATCH, EVENT, CONDENSING = (UUID(int=number) for number in (10, 11, 12))


class Known:
    """The facts of one owner in one generation, named by letters."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def insert(self, table: str, **values: object) -> None:
        values = {"shard_key": OWNER, "generation_id": 1, **values}
        self._connection.execute(
            sql.SQL("INSERT INTO strandline.{} ({}) VALUES ({})").format(
                sql.Identifier(table),
                sql.SQL(", ").join(map(sql.Identifier, values)),
                sql.SQL(", ").join(sql.Placeholder() * len(values)),
            ),
            list(values.values()),
        )

    def fact(self, name: str, text: str, **values: object) -> UUID:
        self.insert(
            "fact", fact_id=named(name), **wording(text), **{"topics": [], "said_at": MOMENT} | values
        )
        return named(name)

    def revision(self, name: str, number: int, session: UUID, text: str, **values: object) -> None:
        """One step of a fact's history; ``own`` is what the session's candidate said by itself."""
        own = values.pop("own", None)
        if own is not None:
            values |= {f"own_{column}": value for column, value in wording(str(own)).items()}
        source = dict.fromkeys(("extract_batch_id", "merge_batch_id"), BATCH) | {"event_id": session}
        described = {
            "model": "m",
            "prompt_hash": "p",
            "seqs": [1],
            "operation": "add",
            "session_key": session,
        }
        row = wording(text) | source | described | values
        self.insert("fact_revision", fact_id=named(name), revision=number, **row)

    def call(self, function: str, *arguments: object) -> Any:
        places = sql.SQL(", ").join(sql.Placeholder() * (1 + len(arguments)))
        call = sql.SQL("SELECT * FROM strandline.{}({})").format(sql.Identifier(function), places)
        rows = self._connection.execute(call, [OWNER, *arguments]).fetchall()
        return rows[0][0] if rows and len(rows[0]) == 1 else rows

    def texts(self) -> dict[str, str]:
        """The texts of the facts, by name."""
        rows = self._connection.execute("SELECT fact_id, text FROM strandline.fact").fetchall()
        return {name_of(fact_id): text for fact_id, text in rows}

    def history(self) -> list[tuple[str, int, str, str]]:
        """The steps of all histories: fact, number, operation and words."""
        rows = self._connection.execute(
            "SELECT fact_id, revision, operation, text FROM strandline.fact_revision"
        ).fetchall()
        return sorted((name_of(fact_id), *rest) for fact_id, *rest in rows)

    def column(self, name: str, column: str) -> Any:
        query = sql.SQL("SELECT {} FROM strandline.fact WHERE fact_id = %s").format(sql.Identifier(column))
        ((value,),) = self._connection.execute(query, [named(name)]).fetchall()
        return value


MOMENT = "2026-01-02 03:04:05+00"
BEFORE, AFTER = "2026-01-01 00:00:00+00", "2026-01-03 00:00:00+00"


def named(name: str) -> UUID:
    return uuid5(OWNER, name)


def name_of(fact_id: UUID) -> str:
    names = {named(letter): letter for letter in "abcdefgh"}
    return names.get(fact_id, "alone")


def wording(text: str) -> dict[str, object]:
    return {"text": text, "fingerprint": text.encode(), "lexemes": text.split()}


@pytest.fixture
def known(database_url: str) -> Iterator[Known]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield Known(connection)


def test_what_a_session_said_is_read_from_the_history(known: Known) -> None:
    known.fact("a", "boat harbour")
    known.revision("a", 1, FORGOTTEN, "boat", own="boat red", created_at=MOMENT)
    known.revision("a", 2, SIBLING, "harbour", created_at=BEFORE)
    known.fact("b", "tide")
    known.revision("b", 1, FORGOTTEN, "tide", operation="invalidate", created_at=AFTER)
    ((fact_ids, said, since),) = known.call("read_event_words_v1", [FORGOTTEN])
    assert set(fact_ids) == {named("a"), named("b")}
    assert set(said) == {"boat", "red"}, "what it ended, it did not say"
    assert since.isoformat() == "2026-01-02T03:04:05+00:00"


def test_what_was_worded_beside_a_session_begins_with_its_batch(known: Known) -> None:
    known.fact("a", "boat")
    known.revision("a", 1, FORGOTTEN, "boat", created_at=MOMENT)
    batch = {"batch_id": BATCH, "scope_key": OWNER, "stage": "merge", "lease_epoch": 1, "event_ids": [EVENT]}
    known.insert("batch", **batch, created_at=BEFORE)
    ((_, _, since),) = known.call("read_event_words_v1", [FORGOTTEN])
    assert since.isoformat() == "2026-01-01T00:00:00+00:00"


def test_a_session_without_a_part_in_any_fact_said_nothing(known: Known) -> None:
    assert known.call("read_event_words_v1", [FORGOTTEN]) == []


def condensed(known: Known, name: str, text: str, session: UUID, made: str = AFTER, **values: object) -> None:
    known.fact(name, text, **values)
    known.revision(
        name, 1, session, text, operation="condense", condense_batch_id=CONDENSING, created_at=made
    )


def part(known: Known, name: str, text: str, session: UUID, of: str) -> None:
    known.fact(name, text, live=False, condensed_into=named(of))
    known.revision(name, 1, session, text)


def test_condensed_facts_that_hold_or_quote_a_session_are_found(known: Known) -> None:
    condensed(known, "a", "tide", FORGOTTEN)
    condensed(known, "b", "boat harbour", SIBLING)
    part(known, "c", "harbour", SIBLING, of="b")
    condensed(known, "d", "boat tide", SIBLING)
    part(known, "e", "boat", SIBLING, of="d")
    condensed(known, "f", "boat rope", SIBLING, made=BEFORE)
    found = known.call("find_condensed_quotes_v1", [FORGOTTEN], ["boat"], MOMENT)
    # d has its boat from another session, f is older than what was said.
    assert {name_of(fact_id) for fact_id in found} == {"a", "b"}


def test_what_holds_a_condensed_quote_is_found_with_it(known: Known) -> None:
    condensed(known, "a", "tide", FORGOTTEN, live=False, condensed_into=named("b"))
    condensed(known, "b", "tide rope", SIBLING, made=BEFORE)
    found = known.call("find_condensed_quotes_v1", [FORGOTTEN], ["tide"], MOMENT)
    assert {name_of(fact_id) for fact_id in found} == {"a", "b"}
    assert known.call("find_condensed_quotes_v1", [OTHER], ["rope"], AFTER) is None


def test_a_wording_that_quotes_gets_its_own_words_back(known: Known) -> None:
    known.fact("a", "boat harbour")
    known.revision("a", 1, SIBLING, "boat harbour", own="harbour", created_at=AFTER)
    known.fact("b", "rope harbour")
    known.revision("b", 1, SIBLING, "rope harbour", own="harbour", created_at=AFTER)
    touched = known.call("replace_quotes_v1", [FORGOTTEN], ["boat"], MOMENT)
    assert set(touched) == {named("a")}
    assert known.history() == [("a", 1, "add", "harbour"), ("b", 1, "add", "rope harbour")]


def test_an_addition_that_quotes_stands_alone(known: Known) -> None:
    known.fact("a", "harbour boat rope")
    known.revision("a", 1, OTHER, "harbour", created_at=BEFORE)
    known.revision("a", 2, SIBLING, "harbour boat rope", own="rope", operation="update", created_at=AFTER)
    touched = known.call("replace_quotes_v1", [FORGOTTEN], ["boat"], MOMENT)
    assert {name_of(fact_id) for fact_id in touched} == {"a", "alone"}
    assert known.history() == [("a", 1, "add", "harbour"), ("alone", 1, "add", "rope")]
    assert known.texts() == {"a": "harbour boat rope", "alone": "rope"}


def test_facts_that_only_the_forgotten_session_said_are_deleted(known: Known) -> None:
    known.fact("a", "boat")
    known.revision("a", 1, FORGOTTEN, "boat")
    known.fact("b", "harbour")
    known.revision("b", 1, SIBLING, "harbour")
    known.revision("b", 2, FORGOTTEN, "harbour", operation="duplicate")
    known.call("drop_unsourced_v1", [FORGOTTEN], [named("a"), named("b")])
    assert known.texts() == {"b": "harbour"}
    assert known.history() == [("b", 1, "add", "harbour")]


def test_what_a_fact_that_is_gone_had_ended_is_ended_by_what_ended_it(known: Known) -> None:
    ended = {"live": False, "invalidated_at": MOMENT}
    known.fact("a", "boat", **ended, invalidated_by=named("b"))
    known.revision("a", 1, SIBLING, "boat")
    known.fact("b", "ship", **ended, invalidated_by=named("c"))
    known.revision("b", 1, FORGOTTEN, "ship")
    known.fact("c", "raft")
    known.revision("c", 1, SIBLING, "raft")
    known.call("drop_unsourced_v1", [FORGOTTEN], [named("b")])
    assert known.texts() == {"a": "boat", "c": "raft"}
    assert known.column("a", "invalidated_by") == named("c")


def test_a_fact_goes_back_to_what_is_left_of_its_history(known: Known) -> None:
    known.fact("a", "boat harbour")
    known.revision("a", 1, SIBLING, "harbour")
    known.revision("a", 2, SIBLING, "boat", operation="duplicate")
    known.revision("a", 3, SIBLING, "boat harbour", operation="invalidate")
    assert known.call("restate_facts_v1", [named("a")]) == []
    assert known.texts() == {"a": "harbour"}
    assert known.history()[2] == ("a", 3, "invalidate", "harbour"), "what ended it says what ended"


def test_a_fact_whose_words_another_one_says_gives_it_its_sources(known: Known) -> None:
    known.fact("a", "boat harbour")
    known.revision("a", 1, SIBLING, "harbour")
    known.fact("b", "harbour")
    known.revision("b", 1, OTHER, "harbour")
    known.fact("c", "pier", live=False, invalidated_at=MOMENT, invalidated_by=named("a"))
    assert known.call("restate_facts_v1", [named("a")]) == [named("b")]
    assert known.texts() == {"b": "harbour", "c": "pier"}
    assert known.history() == [("b", 1, "add", "harbour"), ("b", 2, "duplicate", "harbour")]
    assert known.column("c", "invalidated_by") == named("b")


def test_a_fact_that_ended_keeps_its_words_beside_one_that_lives(known: Known) -> None:
    known.fact("a", "boat harbour", live=False, invalidated_at=MOMENT)
    known.revision("a", 1, SIBLING, "harbour")
    known.fact("b", "harbour")
    known.revision("b", 1, OTHER, "harbour")
    assert known.call("restate_facts_v1", [named("a")]) == []
    assert known.texts() == {"a": "harbour", "b": "harbour"}


def test_topics_and_times_are_those_of_the_sources_that_are_left(known: Known) -> None:
    known.fact("a", "harbour", topics=["boats", "work"], said_by="ida", said_at=AFTER)
    known.revision("a", 1, SIBLING, "harbour")
    candidate = {
        "event_id": SIBLING,
        "batch_id": BATCH,
        "session_key": SIBLING,
        "text": "harbour",
        "fingerprint": wording("harbour")["fingerprint"],
        "seqs": [1],
    }
    known.insert(
        "fact_candidate",
        **candidate | {"ordinal": 0, "topics": ["work"], "said_by": "maren", "said_at": MOMENT},
        model="m",
        prompt_hash="p",
    )
    known.call("refresh_facts_v1", [named("a")])
    assert known.column("a", "topics") == ["work"]
    assert known.column("a", "said_by") == "maren"
    assert known.column("a", "said_at").isoformat() == "2026-01-02T03:04:05+00:00"


def test_a_fact_without_sources_keeps_what_it_has(known: Known) -> None:
    known.fact("a", "harbour", topics=["work"], said_by="ida")
    known.call("refresh_facts_v1", [named("a")])
    assert (known.column("a", "topics"), known.column("a", "said_by")) == (["work"], "ida")


def test_facts_live_again_whose_end_is_gone(known: Known) -> None:
    known.fact("a", "boat", live=False, invalidated_at=MOMENT, invalidated_by=named("g"))
    known.fact("b", "rope", live=False, condensed_into=named("c"))
    known.fact("c", "rope tide")
    assert known.call("revive_facts_v1") == [named("a")]
    assert known.column("a", "live") is True
    assert known.column("b", "live") is False


def test_parts_of_a_condensed_fact_that_ended_are_ended_as_it_was(known: Known) -> None:
    condensed(known, "a", "boat rope", SIBLING, live=False, invalidated_at=MOMENT, invalidated_by=named("c"))
    part(known, "b", "boat", SIBLING, of="a")
    known.fact("c", "raft")
    assert known.call("take_apart_v1", [named("a")], [FORGOTTEN]) == []
    assert known.column("b", "condensed_into") is None
    assert known.column("b", "invalidated_by") == named("c")
