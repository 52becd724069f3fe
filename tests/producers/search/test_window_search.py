"""A message is found from the moment it is put: by its words, as it will be when it is flushed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from strandline import ConfigurationError, Memory, OwnerError
from strandline.pipelines.text.weighting import WORDS_BESIDE_VECTOR
from strandline.producers.search.search import FoundMessage, SearchRequest, search_messages
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.lanes import VECTORS_STAGE
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of
from tests.support.workers.draining import drain_everything

TALK = (
    "The spare anchor lies under the port berth.",
    "Good, and the storm jib?",
    "The storm jib lies in the sail locker, beside the boat hook.",
    "We should dry the jib.",
    "Lars has the key of the locker. Lars, Lars!",
    "我的猫叫咪咪,住在里斯本",
    "And where is Kiki, the cat?",
    "She sleeps in the sail locker.",
)
QUERIES = (
    "Where is the anchor?",
    "storm jib locker",
    "Who has the key of the locker?",
    "猫在里斯本吗",
    "Where does the cat sleep?",
)


@pytest.fixture
def settings(database_url: str) -> Settings:
    return load_settings(database_url=database_url, embedding_backend="local", text_backend="local")


@pytest.fixture
def derive(database: Database, database_url: str, settings: Settings) -> Callable[[], None]:
    def derived() -> None:
        drain_everything(database, database_url, settings, [VECTORS_STAGE])
        assert nothing_due(database_url)

    return derived


def converse(memory: Memory, texts: Sequence[str]) -> None:
    roles = ("user", "assistant")
    memory.put_messages([{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)])


def flushed_talk(make_memory: MakeMemory, derive: Callable[[], None]) -> Memory:
    memory = make_memory("s", memory_blocks=["vectors"])
    converse(memory, TALK)
    memory.flush(all=True)
    derive()
    return memory


def by_words(database: Database, memory: Memory, query: str) -> list[tuple[int | None, float]]:
    """Found without an embedding model: number and score, best first."""
    identity = identify_session(memory.namespace, memory.session_id, memory.user_id)
    hits = database.run(search_messages(SearchRequest(identity, query, 50, "session", None)))
    return sorted((hit.message.seq, round(hit.score, 6)) for hit in hits)


def texts(hits: Sequence[FoundMessage]) -> list[str]:
    return [hit.text for hit in hits]


def test_words_weigh_the_same_before_and_after_a_flush(rig: Rig, derive: Callable[[], None]) -> None:
    memory = rig.memory("s", memory_blocks=["vectors"])
    converse(memory, TALK)
    before = {query: by_words(rig.database, memory, query) for query in QUERIES}
    memory.flush(all=True)
    assert {query: by_words(rig.database, memory, query) for query in QUERIES} == before, (
        "delivered, not covered"
    )
    derive()
    assert {query: by_words(rig.database, memory, query) for query in QUERIES} == before, "covered by vectors"
    assert all(before.values())


def test_what_was_just_put_is_found_beside_what_was_flushed(
    make_memory: MakeMemory, derive: Callable[[], None]
) -> None:
    memory = flushed_talk(make_memory, derive)
    memory.put({"role": "user", "content": "The spare anchor is on deck now, beside the mast."})
    memory.put({"role": "user", "content": "Where is the anchor?"})
    hits = memory.search("Where is the anchor?", limit=3)
    flushed, new = sorted(hits[:2], key=lambda hit: hit.message.seq or 0)
    assert "on deck" in new.text, "and not the question itself"
    assert "port berth" in flushed.text and flushed.similarity is not None
    assert new.similarity is None and new.score == pytest.approx(flushed.score, rel=0.1)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len({hit.message.seq for hit in hits}) == len(hits) <= 3
    assert "on deck" not in str(texts(memory.search("Where is the anchor?", include_window=False)))
    # A weak likeness in the window does not pass a strong one that was flushed.
    memory.put(
        {"role": "user", "content": "I left the key at home, with the boat papers and the old charts."}
    )
    assert "Lars has the key" in memory.search("Which locker is the key of Lars for?")[0].text


def test_a_message_in_the_window_scores_as_it_does_once_flushed(
    make_memory: MakeMemory, derive: Callable[[], None]
) -> None:
    memory = flushed_talk(make_memory, derive)
    new = memory.put({"role": "user", "content": "The old charts are in the drawer under the bunk."})
    question = "Where are the charts?"

    def score() -> float:
        return next(hit.score for hit in memory.search(question, limit=50) if hit.message.seq == new)

    before = score()
    memory.flush(all=True)
    derive()
    assert before <= score() + 1e-9, "no likeness of words stands before a better one because it is new"
    assert before >= WORDS_BESIDE_VECTOR - 1e-9


def test_a_better_match_comes_first_whether_it_was_flushed_or_not(
    rig: Rig, derive: Callable[[], None]
) -> None:
    """The best of what was flushed is no longer the best of all."""
    memory = rig.memory("s", memory_blocks=["vectors"])
    converse(memory, ["The jib is torn.", *["Good morning to you."] * 5])
    memory.flush(all=True)
    derive()
    ((alone, before),) = [hit for hit in by_words(rig.database, memory, "storm jib locker") if hit[1] == 1]
    assert (alone, before) == (1, 1)
    converse(memory, ["It rains.", "Again.", "And again.", "The storm jib is in the locker."])
    found = dict(by_words(rig.database, memory, "storm jib locker"))
    assert found[10] == 1 and 0 < found[1] < 0.7


def test_a_read_shows_nothing_twice_for_it(make_memory: MakeMemory, derive: Callable[[], None]) -> None:
    memory = make_memory("s", memory_blocks=["vectors"])
    converse(memory, TALK)
    memory.flush()
    derive()
    shown = "\n".join(message.text for message in memory.get("Where does the cat sleep?"))
    assert shown.count("She sleeps in the sail locker.") == 1


def test_an_idle_flush_makes_no_second_hit(rig: Rig, derive: Callable[[], None]) -> None:
    """Delivered messages that are in the window still are found by their vectors."""
    memory = flushed_talk(rig.memory, derive)
    rows_of(rig.url, "UPDATE strandline.session SET window_from = 1 RETURNING 1")
    hits = memory.search("storm jib", limit=50)
    assert len({hit.message.seq for hit in hits}) == len(hits)
    assert all(hit.similarity is not None for hit in hits)


def test_an_owners_other_sessions_are_found_and_nobody_elses(rig: Rig) -> None:
    one, two = (rig.memory(name, user_id="maren", memory_blocks=["vectors"]) for name in ("one", "two"))
    stranger = rig.memory("three", user_id="lars", memory_blocks=["vectors"])
    elsewhere = rig.memory("one", user_id="maren", namespace="elsewhere", memory_blocks=["vectors"])
    for memory, where in ((one, "one"), (two, "two"), (stranger, "three"), (elsewhere, "elsewhere")):
        memory.put({"role": "user", "content": f"The anchor is in session {where}."})
    assert [hit.session_id for hit in one.search("anchor")] == ["one"]
    assert {hit.session_id for hit in one.search("anchor", scope="owner")} == {"one", "two"}
    only_other = one.search("anchor", scope="owner", exclude_current=True)
    assert [hit.session_id for hit in only_other] == ["two"]
    with pytest.raises(OwnerError):
        rig.memory("one", user_id="lars").search("anchor")
    one.reset()
    assert one.search("anchor") == []
    two.flush(all=True)
    assert [hit.session_id for hit in two.search("anchor")] == ["two"], "delivered, and not covered yet"
    two.reset()
    assert two.search("anchor") == one.search("anchor", scope="owner") == [], "of a life that is over"


def test_messages_of_a_dead_letter_are_found_until_it_is_dropped(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=["vectors"])
    converse(memory, TALK)
    memory.flush(all=True)
    place = "shard_key, session_key, generation_id, stage, from_seq, through_seq, scope_key, event_id"
    place += ", incarnation"
    rows_of(
        rig.url,
        "WITH gone AS (DELETE FROM strandline.due RETURNING *)"
        f" INSERT INTO strandline.dead_letter ({place}, batch_id, reason)"
        f" SELECT {place}, event_id, 'refused' FROM gone RETURNING 1",
    )
    assert memory.search("anchor")[0].text == TALK[0]
    rows_of(rig.url, "UPDATE strandline.dead_letter SET dropped_at = now() RETURNING 1")
    assert memory.search("anchor") == []


@pytest.mark.parametrize("blocks", [[], ["summary"]])
def test_a_session_without_vectors_searches_its_log(make_memory: MakeMemory, blocks: list[Any]) -> None:
    memory = make_memory("s", memory_blocks=blocks)
    converse(memory, TALK)
    before = {query: [(hit.text, hit.score) for hit in memory.search(query)] for query in QUERIES}
    assert all(before.values())
    assert memory.search("anchor", include_window=False) == []
    memory.flush(all=True)
    assert {query: [(hit.text, hit.score) for hit in memory.search(query)] for query in QUERIES} == before
    assert memory.search("anchor", include_window=False) == []
    memory.reset()
    assert memory.search("anchor") == []


def test_what_was_flushed_before_a_session_had_vectors_is_found_once(
    rig: Rig, derive: Callable[[], None]
) -> None:
    rig.memory("first", memory_blocks=["vectors"]).put({"role": "user", "content": "Vectors are known."})
    derive()
    memory = rig.memory("s", memory_blocks=[])
    converse(memory, ["The anchor is rusty.", "Paint it."])
    memory.flush(all=True)
    memory.set_policy(memory_blocks=["vectors"])
    memory.put({"role": "user", "content": "The anchor is painted."})
    memory.flush(all=True)
    derive()
    assert {seq for seq, _ in by_words(rig.database, memory, "rusty anchor painted")} >= {1, 3}
    memory.set_policy(memory_blocks=[])
    memory.put({"role": "user", "content": "The anchor is lost."})
    memory.flush(all=True)
    found = [seq for seq, _ in by_words(rig.database, memory, "anchor")]
    assert set(found) >= {1, 3, 4} and len(found) == len(set(found))


# By language: what is said, and queries by other forms of its words, or by one character.
FORMS = {
    "中文": ("我的狗很可爱", ["狗", "可爱", "我的狗"]),
    "日本語": ("犬が庭にいます", ["犬", "庭", "犬が"]),
    "한국어": ("개가 마당에 있어요", ["개", "마당에"]),
    "русский": ("Я вижу собаку во дворе", ["собака", "собаки", "двор"]),
    "العربية": ("كلبي في الحديقة", ["كلب", "الكلب", "حديقة"]),
    "ελληνικά": ("Βλέπω τις γάτες στην αυλή", ["γάτα", "γάτας"]),
    "हिन्दी": ("आँगन में कुत्ते हैं", ["कुत्ता", "आँगन"]),
    "english": ("The dogs are in the garden", ["dog", "gardens"]),
}


def test_words_of_every_language_are_found_from_the_put_on(rig: Rig, derive: Callable[[], None]) -> None:
    """By words alone: when just put, when delivered, when covered, and in a session without blocks."""
    asked = [(language, query) for language, (_said, queries) in FORMS.items() for query in queries]
    memory, plain = rig.memory("s", memory_blocks=["vectors"]), rig.memory("plain", memory_blocks=[])

    def missed(searched: Memory) -> list[tuple[str, str]]:
        seqs = {language: at for at, language in enumerate(FORMS, start=1)}
        best = {
            one: max(by_words(rig.database, searched, one[1]), key=lambda hit: hit[1], default=(0, 0.0))[0]
            for one in asked
        }
        return [one for one in asked if best[one] != seqs[one[0]]]

    for each in (memory, plain):
        converse(each, [said for said, _queries in FORMS.values()])
        assert missed(each) == [], "just put"
        each.flush(all=True)
        assert missed(each) == [], "flushed"
    derive()
    assert missed(memory) == [], "covered by vectors"


@pytest.mark.parametrize("wrong", [None, 1, "yes"])
def test_an_include_window_that_is_not_a_bool_is_refused(make_memory: MakeMemory, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="include_window"):
        make_memory("s").search("x", include_window=wrong)
