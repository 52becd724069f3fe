"""Strandline's store under LangGraph: docs/architecture/adapter-tests.md has a table of differences."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("langgraph", reason="needs the extra langgraph")

from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from strandline import ConfigurationError, InvalidMessageError
from strandline.adapters.langgraph import StrandlineStore
from strandline.pipelines.models.contract import EmbeddingAnswer
from strandline.schemas.errors import PermanentModelError
from strandline.schemas.postgres.database import Database
from strandline.workers.sweep import Sweep
from tests.conftest import lock_is_awaited, rows_of, wait_until
from tests.support.agents.letter_vectors import DIMENSIONS, LetterEmbeddings, letter_vector, letter_vectors
from tests.support.stored import stored_facts
from tests.support.stored_form import JSON_VALUES, NAMES

Namespace = tuple[str, ...]


class AsyncHalf(BaseStore):
    """The async half of a store, called as the sync one, on one event loop."""

    def __init__(self, store: StrandlineStore, runner: asyncio.Runner) -> None:
        self.store = store
        self.ttl_config = store.ttl_config
        self._runner = runner

    supports_ttl = True

    def batch(self, ops: Any) -> list[Result]:
        return self._runner.run(self.store.abatch(ops))

    async def abatch(self, ops: Any) -> list[Result]:
        return await self.store.abatch(ops)


MakeStore = Callable[..., BaseStore]


@pytest.fixture(params=["sync", "async"])
def make_store(request: pytest.FixtureRequest, database_url: str) -> Iterator[MakeStore]:
    """Makes stores on the test's database; each test runs with the sync half, and with the async one."""
    made: list[StrandlineStore] = []
    with asyncio.Runner() as runner:

        def make(**options: Any) -> BaseStore:
            made.append(StrandlineStore(database_url=database_url, **options))
            return made[-1] if request.param == "sync" else AsyncHalf(made[-1], runner)

        yield make
        for store in made:
            runner.run(store.aclose())


@pytest.fixture
def store(make_store: MakeStore) -> BaseStore:
    return make_store()


@pytest.fixture
def indexed(make_store: MakeStore) -> BaseStore:
    return make_store(index={"embed": LetterEmbeddings(), "dims": DIMENSIONS})


def keys(items: Sequence[Item]) -> list[str]:
    return [item.key for item in items]


def namespaces(items: Sequence[Item]) -> set[Namespace]:
    return {item.namespace for item in items}


# Operations, alone and in batches.


def test_an_item_is_put_read_updated_and_deleted(store: BaseStore) -> None:
    place = ("boats", "horta")
    store.put(place, "petrel", {"name": "Petrel", "crew": ["Ana", "Rui"]})
    first = store.get(place, "petrel")
    assert first is not None
    assert (first.namespace, first.key) == (place, "petrel")
    assert first.value == {"name": "Petrel", "crew": ["Ana", "Rui"]}
    store.put(place, "petrel", {"name": "Storm Petrel"})
    second = store.get(place, "petrel")
    assert second is not None
    assert second.value == {"name": "Storm Petrel"}
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at
    assert store.get(("boats", "faial"), "petrel") is None
    store.delete(place, "petrel")
    assert store.get(place, "petrel") is None
    store.delete(place, "petrel")


def test_a_batch_answers_in_the_order_of_its_operations(store: BaseStore) -> None:
    store.put(("port", "east"), "one", {"pier": 1})
    store.put(("port", "west"), "two", {"pier": 2})
    results = store.batch(
        [
            GetOp(("port", "east"), "one"),
            PutOp(("port", "west"), "two", {"pier": 3}),
            SearchOp(("port",), filter={"pier": 1}),
            ListNamespacesOp(),
            GetOp(("port",), "three"),
        ]
    )
    assert isinstance(results[0], Item) and results[0].value == {"pier": 1}
    assert results[1] is None
    assert isinstance(results[2], list) and len(results[2]) == 1 and isinstance(results[2][0], SearchItem)
    assert results[3] == [("port", "east"), ("port", "west")]
    assert results[4] is None


def test_the_reads_of_a_batch_see_what_was_before_it(store: BaseStore) -> None:
    store.put(("port",), "one", {"pier": 1})
    results = store.batch(
        [
            SearchOp(("port",), limit=5),
            GetOp(("port",), "two"),
            PutOp(("port",), "two", {"pier": 2}),
            PutOp(("port",), "one", None),
            ListNamespacesOp(),
            GetOp(("port",), "one"),
        ]
    )
    assert isinstance(results[0], list) and len(results[0]) == 1
    assert results[1] is None
    assert isinstance(results[5], Item)
    assert keys(store.search(("port",))) == ["two"]


def test_a_batch_of_gets(store: BaseStore) -> None:
    store.put(("port",), "one", {"pier": 1})
    store.put(("port",), "two", {"pier": 2})
    results = store.batch([GetOp(("port",), name) for name in ("two", "three", "one", "two")])
    assert [item and item.key for item in results] == ["two", None, "one", "two"]  # type: ignore[union-attr]


def test_a_batch_of_puts_and_deletions(store: BaseStore) -> None:
    store.put(("port",), "old", {"pier": 0})
    results = store.batch(
        [
            PutOp(("port",), "one", {"pier": 1}),
            PutOp(("port",), "two", {"pier": 2}),
            PutOp(("port",), "old", None),
            PutOp(("port",), "never", None),
            PutOp(("port",), "one", {"pier": 11}),
        ]
    )
    assert results == [None] * 5
    assert {item.key: item.value for item in store.search(("port",))} == {
        "one": {"pier": 11},
        "two": {"pier": 2},
    }
    assert store.batch([]) == []


def test_a_batch_of_searches(store: BaseStore) -> None:
    store.put(("sea", "a"), "one", {"tag": "calm"})
    store.put(("sea", "b"), "two", {"tag": "calm"})
    store.put(("sea", "c"), "three", {"tag": "rough"})
    calm, two, one = store.batch(
        [SearchOp(("sea",), {"tag": "calm"}), SearchOp(("sea",), limit=2), SearchOp(("sea", "a"))]
    )
    assert isinstance(calm, list) and isinstance(two, list) and isinstance(one, list)
    assert (len(calm), len(two), len(one)) == (2, 2, 1)


def test_what_a_batch_cannot_do_whole_it_does_not_do(store: BaseStore) -> None:
    with pytest.raises(InvalidMessageError, match="value"):
        store.batch([PutOp(("port",), "one", {"pier": 1}), PutOp(("port",), "two", {"pier": float("nan")})])
    assert store.search(()) == []


def test_a_batch_over_its_bound_is_refused(store: BaseStore) -> None:
    with pytest.raises(ConfigurationError, match="over the limit of 10,000"):
        store.batch([GetOp(("port",), "one")] * 10_001)
    with pytest.raises(ConfigurationError, match="not an operation"):
        store.batch([("get", "one")])  # type: ignore[list-item]


# Values.

VALUES = st.dictionaries(NAMES, JSON_VALUES | st.floats(allow_nan=False, allow_infinity=False), max_size=4)


def test_any_json_comes_back_as_it_was(make_store: MakeStore) -> None:
    store = make_store()

    @given(VALUES)
    def check(value: dict[str, Any]) -> None:
        store.put(("any",), "value", value)
        item = store.get(("any",), "value")
        assert item is not None
        assert json.dumps(item.value) == json.dumps(value)

    check()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"at": datetime(2026, 1, 1)}, "cannot be written as JSON"),  # noqa: DTZ001
        ({"a": float("inf")}, "cannot be written as JSON"),
        ({"a": "\x00"}, "NUL"),
        ({"a": "\ud800"}, "surrogate"),
        ({"a": "x" * 1_000_001}, "over the limit of 1,000,000"),
        (["a"], "must be a dict"),
    ],
)
def test_what_cannot_be_stored_is_refused(store: BaseStore, value: Any, problem: str) -> None:
    with pytest.raises(InvalidMessageError, match=problem):
        store.put(("port",), "one", value)
    deep: dict[str, Any] = {}
    for _level in range(70):
        deep = {"in": deep}
    with pytest.raises(InvalidMessageError, match="nested more than"):
        store.put(("port",), "one", deep)
    assert store.search(()) == []


# Namespaces, of LangGraph.


def test_namespaces_are_listed_cut_off_and_paged(store: BaseStore) -> None:
    places = [(top, kind, who) for top in ("prod", "test") for kind in ("docs", "images") for who in "ab"]
    for place in places:
        store.put(place, "k", {})
    assert store.list_namespaces() == sorted(places)
    assert store.list_namespaces(prefix=("test",)) == sorted(places)[4:]
    assert store.list_namespaces(suffix=("b",)) == [place for place in sorted(places) if place[-1] == "b"]
    assert store.list_namespaces(prefix=("test",), suffix=("b",), max_depth=2) == [
        ("test", "docs"),
        ("test", "images"),
    ]
    assert store.list_namespaces(max_depth=1) == [("prod",), ("test",)]
    assert store.list_namespaces(limit=3, offset=2) == sorted(places)[2:5]
    with pytest.raises(ConfigurationError, match="max_depth"):
        store.list_namespaces(max_depth=0)


def test_a_batch_lists_namespaces_by_conditions(store: BaseStore) -> None:
    for place in (("test", "docs", "public"), ("test", "docs", "private"), ("prod", "docs", "public")):
        store.put(place, "k", {})
    whole, cut, public = store.batch(
        [
            ListNamespacesOp(),
            ListNamespacesOp(max_depth=2),
            ListNamespacesOp(match_conditions=(MatchCondition("suffix", ("public",)),)),
        ]
    )
    assert whole == [("prod", "docs", "public"), ("test", "docs", "private"), ("test", "docs", "public")]
    assert cut == [("prod", "docs"), ("test", "docs")]
    assert public == [("prod", "docs", "public"), ("test", "docs", "public")]


def test_a_wildcard_is_one_label(store: BaseStore) -> None:
    for place in (("u", "ana"), ("u", "x", "ana"), ("u", "x", "ana", "more"), ("u", "x", "mariana")):
        store.put(place, "k", {})
    assert store.list_namespaces(prefix=("u", "*", "ana")) == [("u", "x", "ana"), ("u", "x", "ana", "more")]
    assert store.list_namespaces(suffix=("x", "*")) == [("u", "x", "ana"), ("u", "x", "mariana")]
    assert store.list_namespaces(suffix=("ana",)) == [("u", "ana"), ("u", "x", "ana")]
    assert store.list_namespaces(prefix=("*",)) == store.list_namespaces()


def test_a_prefix_ends_where_a_label_ends(store: BaseStore) -> None:
    for place in (("1",), ("1", "a"), ("1", "a", "b"), ("12",), ("12", "a"), ("1-",), ("1!", "a")):
        store.put(place, "k", {})
    assert namespaces(store.search(("1",))) == {("1",), ("1", "a"), ("1", "a", "b")}
    assert namespaces(store.search(("12",))) == {("12",), ("12", "a")}
    assert namespaces(store.search(("1", "a"))) == {("1", "a"), ("1", "a", "b")}
    assert store.search(("2",)) == []
    assert len(store.search((), limit=20)) == 7
    assert store.list_namespaces(prefix=("1",)) == [("1",), ("1", "a"), ("1", "a", "b")]


def test_no_character_of_a_label_is_a_pattern(store: BaseStore) -> None:
    odd = [
        "user_1",
        "userX1",
        "a%b",
        "axxb",
        r"a\b",
        "a.b".replace(".", "+"),
        "a*",
        "[ab]",
        "ana\n",
        "ana",
        "é",
        "^$",
    ]
    for label in odd:
        store.put((label, "in"), "k", {"of": label})
    for label in odd:
        assert [item.value["of"] for item in store.search((label,))] == [label]
        assert store.list_namespaces(prefix=(label,)) == [(label, "in")]
        assert store.list_namespaces(suffix=(label, "in")) == [(label, "in")]


LABELS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00."), min_size=1, max_size=3
) | st.sampled_from(["a", "b", "*", "a-"])
PLACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)


def test_namespaces_are_found_as_in_langgraphs_own_store(make_store: MakeStore) -> None:
    store = make_store()

    @given(st.sets(PLACES, max_size=6), PLACES, PLACES, st.none() | st.integers(1, 3))
    def check(places: set[Namespace], prefix: Namespace, suffix: Namespace, depth: int | None) -> None:
        model = InMemoryStore()
        for place in store.list_namespaces(limit=1_000):
            store.delete(place, "k")
        for place in places:
            store.put(place, "k", {})
            model.put(place, "k", {})
        for wanted in (
            {},
            {"prefix": prefix},
            {"suffix": suffix},
            {"prefix": prefix[:1], "suffix": suffix[:1]},
        ):
            found = store.list_namespaces(**wanted, max_depth=depth, limit=100)  # type: ignore[arg-type]
            assert found == model.list_namespaces(**wanted, max_depth=depth, limit=100)  # type: ignore[arg-type]
        assert namespaces(store.search(prefix)) == namespaces(model.search(prefix))

    check()


@pytest.mark.parametrize("namespace", [("a.b",), ("",), ("a", 1), ("\x00",), "text"])
def test_a_label_that_cannot_be_used_is_refused(store: BaseStore, namespace: Any) -> None:
    for op in (
        GetOp(namespace, "k"),
        PutOp(namespace, "k", {}),
        SearchOp(namespace),
        ListNamespacesOp(match_conditions=(MatchCondition("prefix", namespace),)),
    ):
        with pytest.raises(InvalidNamespaceError):
            store.batch([op])


def test_names_have_bounds(store: BaseStore) -> None:
    longest = ("ü" * 511 + "u",)
    store.put(longest, "k" * 1_024, {"a": 1})
    assert keys(store.search(longest)) == ["k" * 1_024]
    assert store.search(()) == store.search(longest)
    for op in (PutOp(("u" * 1_024,), "k", {}), PutOp(("u",), "k" * 1_025, {}), SearchOp(("u" * 1_024,))):
        with pytest.raises(ConfigurationError, match="1,024 bytes"):
            store.batch([op])
    with pytest.raises(InvalidNamespaceError, match="empty"):
        store.batch([PutOp((), "k", {})])


# Searches without vectors.


def test_a_search_goes_below_a_prefix_and_is_paged(store: BaseStore) -> None:
    for number in range(5):
        store.put(
            ("docs", str(number % 2)), f"doc{number}", {"n": number, "author": "Ana" if number else "Rui"}
        )
    assert keys(store.search(("docs",))) == [f"doc{number}" for number in (4, 3, 2, 1, 0)]
    assert keys(store.search(("docs", "1"))) == ["doc3", "doc1"]
    assert len(store.search(("docs",), filter={"author": "Ana"})) == 4
    assert keys(store.search(("docs",), limit=2, offset=1)) == ["doc3", "doc2"]
    assert store.search(("docs",), limit=0) == []
    assert keys(store.search((), query="nothing is indexed", limit=1)) == ["doc4"]
    for limit, offset in ((-1, 0), (1, -1), (10**12, 0), (True, 0)):
        with pytest.raises(ConfigurationError, match="whole number"):
            store.search((), limit=limit, offset=offset)


def found_by(store: BaseStore, condition: dict[str, Any]) -> list[str]:
    return sorted(keys(store.search((), filter=condition, limit=100)))


def test_numbers_are_compared_as_numbers(store: BaseStore) -> None:
    for key, score in (("a", 2), ("b", 9), ("c", 10), ("d", 11), ("e", 9.5), ("f", "10"), ("g", None)):
        store.put(("scores",), key, {"score": score})
    assert found_by(store, {"score": {"$gte": 10}}) == ["c", "d"]
    assert found_by(store, {"score": {"$gt": 9}}) == ["c", "d", "e"]
    assert found_by(store, {"score": {"$lt": 10}}) == ["a", "b", "e"]
    assert found_by(store, {"score": {"$lte": 9}}) == ["a", "b"]
    assert found_by(store, {"score": {"$gt": 2, "$lt": 9.6}}) == ["b", "e"]
    assert found_by(store, {"score": {"$eq": 10.0}}) == ["c"]
    assert found_by(store, {"score": {"$ne": 10}}) == ["a", "b", "d", "e", "f", "g"]


def test_text_is_compared_by_its_characters(store: BaseStore) -> None:
    for name in ("apple", "Banana", "banana", "éclair", "zebra"):
        store.put(("names",), name, {"name": name})
    assert found_by(store, {"name": {"$gt": "banana"}}) == ["zebra", "éclair"]
    assert found_by(store, {"name": {"$lte": "apple"}}) == ["Banana", "apple"]


def test_filters_go_into_objects_and_lists(store: BaseStore) -> None:
    store.put(("n",), "a", {"meta": {"kind": "log", "size": 3}, "tags": ["x", {"y": 1, "z": 2}]})
    store.put(("n",), "b", {"meta": {"kind": "log", "size": 9}, "tags": ["x"]})
    store.put(("n",), "c", {"meta": "log"})
    store.put(("n",), "d", {"meta": [{"kind": "log"}], "$odd": 1})
    assert found_by(store, {"meta": {"kind": "log"}}) == ["a", "b"]
    assert found_by(store, {"meta": {"kind": "log", "size": {"$gt": 3}}}) == ["b"]
    assert found_by(store, {"meta": {"$eq": {"kind": "log", "size": 3}}}) == ["a"]
    assert found_by(store, {"meta": {}}) == ["a", "b"]
    assert found_by(store, {"meta": {"0": {"kind": "log"}}}) == []
    assert found_by(store, {"tags": ["x", {"y": 1}]}) == ["a"]
    assert found_by(store, {"tags": ["x"]}) == ["b"]
    assert found_by(store, {"tags": None}) == ["c", "d"]
    assert found_by(store, {"$odd": 1}) == ["d"]
    assert found_by(store, {"meta": "log", "tags": {"$ne": ["x"]}}) == ["c"]
    assert found_by(store, {}) == ["a", "b", "c", "d"]


SMALL = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=3,
)
CONDITIONS = SMALL | st.dictionaries(st.sampled_from(["$eq", "$ne"]), SMALL, min_size=1, max_size=2)
FILTERS = st.dictionaries(st.sampled_from("ab"), CONDITIONS, max_size=2)


def untold(value: object) -> bool:
    """Whether Python takes a part of it for another one: True for 1, as JSON does not."""
    if isinstance(value, dict):
        return any(map(untold, value.values()))
    return any(map(untold, value)) if isinstance(value, list) else isinstance(value, bool)


def test_filters_mean_what_they_mean_in_langgraphs_own_store(make_store: MakeStore) -> None:
    store = make_store()

    @given(
        st.dictionaries(st.sampled_from("ab"), SMALL, max_size=2).filter(lambda value: not untold(value)),
        FILTERS,
    )
    def check(value: dict[str, Any], condition: dict[str, Any]) -> None:
        if untold(condition):
            return
        model = InMemoryStore()
        for one in (store, model):
            one.put(("any",), "value", value)
        assert found_by(store, condition) == found_by(model, condition)

    check()


@pytest.mark.parametrize(
    "condition",
    [
        {"a": {"$regex": "x"}},
        {"a": {"$gt": None}},
        {"a": {"$lt": True}},
        {"a": {"$gt": 1, "b": 2}},
        {"a": [{"$in": []}]},
        {"a": "x" * 20_000},
        {"a": float("nan")},
        ["a"],
    ],
)
def test_a_filter_that_cannot_be_used_is_refused(store: BaseStore, condition: Any) -> None:
    with pytest.raises((ConfigurationError, InvalidMessageError)):
        store.search((), filter=condition)


# Searches by vectors.


def test_a_store_tells_its_index(make_store: MakeStore) -> None:
    embeddings = LetterEmbeddings()
    indexed = make_store(index={"embed": embeddings, "dims": DIMENSIONS})
    own = indexed.store if isinstance(indexed, AsyncHalf) else indexed
    assert own.index_config == {"embed": embeddings, "dims": DIMENSIONS}  # type: ignore[attr-defined]
    assert make_store().search((), query="x") == []


def test_texts_are_embedded_when_they_are_put(indexed: BaseStore) -> None:
    for key, value in {
        "a": {"text": "short text"},
        "b": {"text": "longer text document"},
        "c": {"description": "text in a field of another name"},
    }.items():
        indexed.put(("docs",), key, value)
    found = indexed.search(("docs",), query='{"text": "longer text document"}')
    assert found[0].key == "b"
    assert found[0].score == pytest.approx(1, abs=1e-3)
    assert all(before.score > after.score for before, after in pairwise(found))  # type: ignore[operator]
    assert len(found) == 3


def test_a_new_value_has_new_vectors(indexed: BaseStore) -> None:
    indexed.put(("docs",), "one", {"text": "zany zebra Xerxes"})
    indexed.put(("docs",), "two", {"text": "about dogs"})
    indexed.put(("docs",), "three", {"text": "about birds"})
    first, *_others = indexed.search(("docs",), query="Zany Xerxes")
    assert first.key == "one"
    indexed.put(("docs",), "one", {"text": "new text about dogs"})
    (after,) = [item for item in indexed.search(("docs",), query="Zany Xerxes") if item.key == "one"]
    assert after.score is not None and first.score is not None and after.score < first.score
    indexed.put(("docs",), "four", {"text": "new text about dogs"}, index=False)
    assert "four" not in keys(indexed.search(("docs",), query="new text about dogs"))
    assert "four" in keys(indexed.search(("docs",)))
    indexed.put(("docs",), "one", {"text": "new text about dogs"}, index=False)
    assert "one" not in keys(indexed.search(("docs",), query="new text about dogs"))


def test_a_store_without_an_index_leaves_no_old_vectors(make_store: MakeStore) -> None:
    indexed = make_store(index={"embed": letter_vectors})
    indexed.put(("docs",), "one", {"text": "old"})
    make_store().put(("docs",), "one", {"text": "new"})
    assert indexed.search(("docs",), query="old") == []


@pytest.mark.parametrize("refresh_ttl", [True, False])
def test_vectors_and_filters_go_together(indexed: BaseStore, refresh_ttl: bool) -> None:
    for key, text, color, score in (
        ("a", "red apple", "red", 4.5),
        ("b", "red car", "red", 3.0),
        ("c", "green apple", "green", 4.0),
        ("d", "blue car", "blue", 3.5),
    ):
        indexed.put(("docs",), key, {"text": text, "color": color, "score": score})

    def search(query: str, condition: dict[str, Any]) -> list[str]:
        return keys(indexed.search(("docs",), query=query, filter=condition, refresh_ttl=refresh_ttl))

    assert search("apple", {"color": "red"}) == ["a", "b"]
    assert search("car", {"color": "red"}) == ["b", "a"]
    assert search("bbbbluuu", {"score": {"$gt": 3.2}})[0] == "d"
    assert search("apple", {"score": {"$gte": 4.0}, "color": "green"}) == ["c"]


def test_a_search_by_vector_is_paged(indexed: BaseStore) -> None:
    for number in range(5):
        indexed.put(("docs",), f"doc{number}", {"text": f"test document number {number}"})
    whole = keys(indexed.search(("docs",), query="test"))
    assert len(whole) == 5
    pages = [keys(indexed.search(("docs",), query="test", limit=2, offset=offset)) for offset in (0, 2, 4)]
    assert [key for page in pages for key in page] == whole


def test_odd_queries(indexed: BaseStore) -> None:
    indexed.put(("docs",), "one", {"text": "test document"})
    for query in ("", None):
        (item,) = indexed.search(("docs",), query=query)
        assert item.score is None
    for query in ("foo " * 100, "test!@#$%^&*()", "\u200b"):
        (item,) = indexed.search(("docs",), query=query)
        assert item.score is not None and item.score < 0.99


@pytest.mark.parametrize("vector_type", ["vector", "halfvec"])
@pytest.mark.parametrize("distance", ["cosine", "inner_product", "l2"])
def test_the_fields_of_a_store_are_searched_and_no_others(
    make_store: MakeStore, distance: str, vector_type: str
) -> None:
    store = make_store(
        index={
            "embed": LetterEmbeddings(),
            "dims": DIMENSIONS,
            "fields": ["key0", "key1", "key3"],
            "distance_type": distance,
            "ann_index_config": {"vector_type": vector_type},
        }
    )
    store.put(("t",), "doc1", {"key1": "xxx", "key2": "yyy", "key3": "zzz"})
    store.put(("t",), "doc2", {"key0": "uuu", "key1": "vvv", "key2": "www", "key3": "xxx"})
    both = store.search(("t",), query="xxx")
    assert both[0].score == pytest.approx(both[1].score, abs=1e-3)
    best = both[0].score
    assert best is not None
    for query, key in (("uuu", "doc2"), ("zzz", "doc1")):
        first, second = store.search(("t",), query=query)
        assert first.key == key
        assert first.score == pytest.approx(best, abs=1e-3)
        assert second.score is not None and second.score < best - 0.1
    assert all(item.score < best - 0.1 for item in store.search(("t",), query="www"))  # type: ignore[operator]


@pytest.mark.parametrize("distance", ["cosine", "inner_product", "l2"])
def test_a_put_may_name_its_own_fields(make_store: MakeStore, distance: str) -> None:
    store = make_store(
        index={"embed": LetterEmbeddings(), "dims": DIMENSIONS, "fields": ["none"], "distance_type": distance}
    )
    store.put(("t",), "doc3", {"key0": "aaa", "key1": "bbb", "key2": "ccc"}, index=["key0", "key1"])
    store.put(("t",), "doc4", {"key1": "bbb", "key3": "ggg"}, index=["key1", "key3"])
    store.put(("t",), "doc5", {"key0": "hhh"}, index=False)
    assert keys(store.search(("t",), query="aaa")) == ["doc3", "doc4"]
    assert keys(store.search(("t",), query="ggg")) == ["doc4", "doc3"]
    one, two = store.search(("t",), query="bbb")
    assert one.score == pytest.approx(two.score, abs=1e-3)
    assert one.score != pytest.approx(store.search(("t",), query="ccc")[0].score, abs=0.1)
    assert {item.key: item.score for item in store.search(("t",))} == {
        "doc3": None,
        "doc4": None,
        "doc5": None,
    }


def test_paths_go_into_lists_and_objects(make_store: MakeStore) -> None:
    embeddings = LetterEmbeddings()
    store = make_store(
        index={"embed": embeddings, "fields": ["meta.title", "parts[*].text", "tags[-1]", "$"]}
    )
    value = {"meta": {"title": "T"}, "parts": [{"text": "p1"}, {"text": "p2"}, {}], "tags": ["a", "b"]}
    store.put(("t",), "doc", value)
    assert embeddings.texts == ["T", "p1", "p2", "b", json.dumps(value, sort_keys=True)]
    with pytest.raises(ConfigurationError, match="over the limit of 1,000"):
        store.put(("t",), "doc", {"parts": [{"text": str(number)} for number in range(1_001)]})


@pytest.mark.parametrize("distance", ["cosine", "inner_product", "l2"])
def test_a_score_is_the_similarity(make_store: MakeStore, distance: str) -> None:
    store = make_store(
        index={"embed": letter_vectors, "dims": DIMENSIONS, "fields": ["key0"], "distance_type": distance}
    )
    store.put(("t",), "doc", {"key0": "aaa"}, index=["key0", "key1"])
    for query in ("aaa", "bbb", "ccc", "abcd", "poisson"):
        pairs = list(zip(letter_vector(query), letter_vector("aaa"), strict=True))
        similarity = sum(a * b for a, b in pairs)
        if distance == "l2":
            similarity = -(sum((a - b) ** 2 for a, b in pairs) ** 0.5)
        (item,) = store.search((), query=query)
        assert item.score == pytest.approx(similarity, abs=1e-3)


def test_the_nearest_of_many_is_first(make_store: MakeStore) -> None:
    store = make_store(index={"embed": letter_vectors, "dims": DIMENSIONS, "fields": ["key1"]})
    store.put(("t", "M"), "M", {"key1": "mmm"})
    for place in "AZ":
        store.batch([PutOp(("t", place), f"{place}{number}", {"key1": "no"}) for number in range(100)])
    found = store.search(("t",), query="mmm")
    assert len(set(keys(found))) == 10
    assert found[0].key == "M"
    assert found[0].score > found[1].score  # type: ignore[operator]


def test_many_languages(indexed: BaseStore) -> None:
    texts = ["这是中文", "これは日本語です", "이건 한국어야", "Это русский", "यह हिन्दी है"]
    for number, text in enumerate(texts):
        indexed.put(("u", "memories"), str(number), {"text": text})
    for number, text in enumerate(texts):
        found = indexed.search(("u", "memories"), query=text)
        assert found[0].key == str(number)
        assert found[0].value == {"text": text}


def test_vectors_of_another_length_are_left_alone(make_store: MakeStore) -> None:
    """Another embedder has made them: they cannot be compared, and must not end the search."""
    old = make_store(index={"embed": lambda texts: [[1.0, 0.0] for _text in texts]})
    old.put(("t",), "old", {"text": "a"})
    new = make_store(index={"embed": letter_vectors})
    new.put(("t",), "new", {"text": "a"})
    assert keys(new.search(("t",), query="a")) == ["new"]
    assert keys(old.search(("t",), query="a")) == ["old"]


def test_a_vector_of_zeros_is_like_nothing(make_store: MakeStore) -> None:
    store = make_store(
        index={"embed": lambda texts: [[float("a" in text), 0.0] for text in texts], "fields": ["x"]}
    )
    store.put(("t",), "zero", {"x": "b"})
    store.put(("t",), "one", {"x": "a"})
    assert [(item.key, item.score) for item in store.search(("t",), query="a")] == [
        ("one", 1.0),
        ("zero", 0.0),
    ]


@pytest.mark.parametrize(
    ("index", "problem"),
    [
        ({}, "embed"),
        ({"embed": 3}, "embed"),
        ({"embed": letter_vectors, "distance_type": "hamming"}, "distance_type"),
        ({"embed": letter_vectors, "dims": 0}, "dims"),
        ({"embed": letter_vectors, "fields": "text"}, "fields"),
    ],
)
def test_an_index_that_cannot_be_used_is_refused(index: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        StrandlineStore(index=index)


@pytest.mark.parametrize(
    ("embed", "problem"),
    [
        (lambda texts: [[0.1] * 3 for _text in texts], "3 dimensions, and index"),
        (lambda _texts: [], "0 vectors for 1 texts"),
        (lambda texts: [[float("nan")] * DIMENSIONS for _text in texts], "without a number"),
        (lambda texts: [[1e9] * DIMENSIONS for _text in texts], "65,504 or more"),
    ],
)
def test_vectors_that_cannot_be_stored_are_refused(make_store: MakeStore, embed: Any, problem: str) -> None:
    store = make_store(index={"embed": embed, "dims": DIMENSIONS})
    with pytest.raises(ConfigurationError, match=problem):
        store.put(("t",), "doc", {"text": "a"})
    assert store.search(()) == []


class Choosy:
    """An embedder of our contract that has no vector for one text."""

    model, dimensions = "choosy", DIMENSIONS

    def wait_seconds(self) -> float:
        return 0.0

    def embed(self, texts: Sequence[str], *, timeout_seconds: float | None = None) -> EmbeddingAnswer:
        vectors = (() if "refused" in text else tuple(letter_vectors([text])[0]) for text in texts)
        return EmbeddingAnswer(tuple(vectors), self.model, 0)


@pytest.mark.parametrize("dims", [{}, {"dims": DIMENSIONS}])
def test_a_text_that_the_embedder_refuses_is_stored_without_its_vector(
    make_store: MakeStore, dims: dict[str, int]
) -> None:
    store = make_store(index={"embed": Choosy(), "fields": ["a", "b"], **dims})
    store.put(("t",), "doc", {"a": "refused", "b": "bee"})
    store.put(("t",), "other", {"a": "refused"})
    assert [item.key for item in store.search(("t",), query="bee") if item.score] == ["doc"]
    assert store.get(("t",), "other") is not None
    with pytest.raises(PermanentModelError, match="refuses this query"):
        store.search(("t",), query="refused")


async def test_an_async_embedder_serves_the_async_half(database_url: str) -> None:
    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return letter_vectors(texts)

    store = StrandlineStore(database_url=database_url, index={"embed": embed})
    await store.aput(("t",), "doc", {"text": "a"})
    assert [item.key for item in await store.asearch(("t",), query="a")] == ["doc"]
    await store.aclose()


def test_the_embedder_of_the_settings(make_store: MakeStore) -> None:
    pytest.importorskip("tokenizers", reason="needs the extra embedded")
    store = make_store(index={"embed": "strandline", "fields": ["text"]})
    store.put(("t",), "boat", {"text": "The sailing boat lies in the harbour."})
    store.put(("t",), "cake", {"text": "Bake the cake with butter and sugar."})
    assert keys(store.search(("t",), query="a ship at the quay")) == ["boat", "cake"]


# Time to live.


def move_expiry(url: str, key: str, minutes: float) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "UPDATE strandline.store_item SET expires_at = expires_at + %s * interval '1 minute'"
            " WHERE key = %s",
            (minutes, key),
        )


def expiry(url: str, key: str) -> datetime:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT expires_at FROM strandline.store_item WHERE key = %s", (key,)
        ).fetchone()
    assert row is not None
    moment: datetime = row[0]
    return moment


def test_an_item_lives_on_with_each_use(store: BaseStore, database_url: str) -> None:
    place = ("foo",)
    store.put(place, "one", {"foo": "bar"}, ttl=10)
    for use in (
        lambda: store.get(place, "one", refresh_ttl=True),
        lambda: store.search(place, query="foo", refresh_ttl=True),
        lambda: store.put(place, "one", {"foo": "bar"}, ttl=10),
    ):
        move_expiry(database_url, "one", -9)
        before = expiry(database_url, "one")
        use()
        assert (expiry(database_url, "one") - before).total_seconds() > 500
    move_expiry(database_url, "one", -9)
    before = expiry(database_url, "one")
    assert store.get(place, "one", refresh_ttl=False) is not None
    assert len(store.search(place, refresh_ttl=False)) == 1
    assert expiry(database_url, "one") == before
    move_expiry(database_url, "one", -9)
    assert store.search(place, query="bar", refresh_ttl=False) == []


def test_nothing_shows_an_item_whose_time_is_over(store: BaseStore, database_url: str) -> None:
    store.put(("omit", "expired"), "gone", {"a": 1}, ttl=10)
    store.put(("omit", "control"), "stays", {"a": 1}, ttl=None)
    move_expiry(database_url, "gone", -11)
    before = expiry(database_url, "gone")
    assert store.get(("omit", "expired"), "gone", refresh_ttl=True) is None
    assert store.get(("omit", "control"), "stays") is not None
    assert keys(store.search(("omit",), refresh_ttl=True)) == ["stays"]
    assert store.list_namespaces(prefix=("omit",)) == [("omit", "control")]
    assert expiry(database_url, "gone") == before, "a read does not bring it back"
    store.put(("omit", "expired"), "gone", {"a": 2})
    assert keys(store.search(("omit",))) == ["gone", "stays"]


def test_vectors_do_not_show_it_either(indexed: BaseStore, database_url: str) -> None:
    indexed.put(("t",), "gone", {"text": "a"}, ttl=10)
    indexed.put(("t",), "stays", {"text": "b"}, ttl=10)
    move_expiry(database_url, "gone", -11)
    before = expiry(database_url, "stays")
    assert keys(indexed.search(("t",), query="a", refresh_ttl=True)) == ["stays"]
    assert expiry(database_url, "stays") > before


def test_pages_are_full_without_it(store: BaseStore, database_url: str) -> None:
    for key in ("c", "b", "expired", "a"):
        store.put(("page",), key, {}, ttl=10)
    move_expiry(database_url, "expired", -11)
    assert keys(store.search(("page",), limit=2)) == ["a", "b"]
    assert keys(store.search(("page",), limit=2, offset=2)) == ["c"]


def test_defaults_of_the_store(make_store: MakeStore, database_url: str) -> None:
    store = make_store(ttl={"default_ttl": 10, "refresh_on_read": False, "sweep_interval_minutes": 1})
    store.put(("t",), "default", {})
    store.put(("t",), "never", {}, ttl=None)
    store.put(("t",), "own", {}, ttl=0.5)
    minutes = {key: expiry(database_url, key) for key in ("default", "own")}
    assert 500 < (minutes["default"] - minutes["own"]).total_seconds() < 600
    assert expiry(database_url, "never") is None
    assert store.get(("t",), "default") is not None
    assert expiry(database_url, "default") == minutes["default"]
    assert store.get(("t",), "default", refresh_ttl=True) is not None
    assert expiry(database_url, "default") > minutes["default"]


def test_the_sweep_of_a_worker_deletes_it(store: BaseStore, database: Database, database_url: str) -> None:
    for number in range(5):
        store.put(("t",), f"gone{number}", {}, ttl=10)
        move_expiry(database_url, f"gone{number}", -11)
    store.put(("t",), "later", {}, ttl=10)
    store.put(("t",), "never", {})
    sweep = Sweep(
        database,
        ring=lambda _lanes: None,
        take_over=lambda _lanes: None,
        stages=[],
        batch_size=3,
        dead_after_seconds=30,
    )
    sweep.tick()
    assert rows_of(database_url, "SELECT count(*) FROM strandline.store_item") == [(4,)]
    sweep.tick()
    assert rows_of(database_url, "SELECT key FROM strandline.store_item ORDER BY key") == [
        ("later",),
        ("never",),
    ]


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), True, "5", 10**12])
def test_a_time_that_cannot_be_used_is_refused(store: BaseStore, ttl: Any) -> None:
    with pytest.raises(ConfigurationError, match="number of minutes"):
        store.batch([PutOp(("t",), "k", {}, ttl=ttl)])
    with pytest.raises(ConfigurationError, match="number of minutes"):
        StrandlineStore(ttl={"default_ttl": ttl})


@pytest.mark.parametrize(
    ("ttl", "problem"), [({"omit_expired": False}, "never shown"), ({"ttl": 1}, "no key")]
)
def test_a_configuration_of_expiry_that_cannot_be_used_is_refused(ttl: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        StrandlineStore(ttl=ttl)


# Tenants, threads and loops.


def test_tenants_do_not_reach_each_other(make_store: MakeStore) -> None:
    ours, theirs = (
        make_store(namespace="ours"),
        make_store(namespace="theirs", index={"embed": letter_vectors}),
    )
    ours.put(("users", "ana"), "boat", {"name": "Petrel"})
    theirs.put(("users", "ana"), "boat", {"name": "Tern"})
    for store, name in ((ours, "Petrel"), (theirs, "Tern")):
        item = store.get(("users", "ana"), "boat")
        assert item is not None and item.value == {"name": name}
        assert [one.value for one in store.search(())] == [{"name": name}]
    theirs.delete(("users", "ana"), "boat")
    assert theirs.list_namespaces() == []
    assert theirs.search((), query="Petrel") == []
    assert ours.list_namespaces() == [("users", "ana")]


@pytest.mark.parametrize("namespace", ["", "x" * 600, 3])
def test_a_tenant_has_a_name(namespace: Any) -> None:
    with pytest.raises(InvalidMessageError, match="namespace"):
        StrandlineStore(namespace=namespace)


def test_items_are_of_nobody_elses_memory(make_store: MakeStore, database_url: str) -> None:
    make_store().put(("facts",), "one", {"text": "Ana likes knots."})
    rows = rows_of(database_url, "SELECT shard_key FROM strandline.store_item")
    assert stored_facts(database_url) == 0
    assert isinstance(rows[0][0], UUID)


def six_operations(number: int) -> list[Op]:
    place = ("test", "foo", str(number % 2))
    return [
        PutOp(place, f"key{number}", {"n": number}),
        GetOp(place, f"key{number}"),
        ListNamespacesOp(max_depth=2),
        SearchOp(("test",)),
        PutOp(place, f"key{number}", {"n": -number}),
        PutOp(place, f"key{number % 7}", None),
    ]


def test_many_threads(database_url: str) -> None:
    store = StrandlineStore(database_url=database_url)
    with ThreadPoolExecutor(8) as executor:
        done = [
            executor.submit(store.batch, ops)
            for number in range(60)
            for ops in (six_operations(number), *([op] for op in six_operations(number)))
        ]
        assert sum(len(one.result()) for one in done) == 60 * 12
    store.close()


@pytest.mark.parametrize("deleted", [("b",), ("a", "b"), ()], ids=["one", "both", "none"])
def test_a_batch_holds_nothing_while_it_waits_for_what_comes_first(
    database_url: str, deleted: tuple[str, ...]
) -> None:
    """So two batches that delete and store the same items in any order do not wait for each other."""
    store = StrandlineStore(database_url=database_url)
    for key in ("a", "b"):
        store.put(("t",), key, {"v": 1})
    row = "SELECT FROM strandline.store_item WHERE key = %s FOR UPDATE"
    with psycopg.connect(database_url) as holder, ThreadPoolExecutor(1) as threads:
        holder.execute(row, ["a"])
        ops = [PutOp(("t",), key, None if key in deleted else {"v": 2}) for key in ("b", "a")]
        batch = threads.submit(store.batch, ops)
        wait_until(lambda: lock_is_awaited(database_url), timeout=30, what="the batch to wait")
        holder.execute(row + " NOWAIT", ["b"])
        holder.rollback()
        batch.result()
    assert sorted(keys(store.search(("t",)))) == [key for key in ("a", "b") if key not in deleted]
    store.close()


async def test_more_calls_at_once_than_connections(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for a turn, and not for a connection against its time limit."""
    monkeypatch.setenv("STRANDLINE_POOL_MAX_SIZE", "2")
    monkeypatch.setenv("STRANDLINE_POOL_TIMEOUT_SECONDS", "0.5")

    store = StrandlineStore(database_url=database_url)
    done = await asyncio.gather(
        *(store.abatch([op]) for number in range(500) for op in six_operations(number))
    )
    assert len(done) == 3_000
    await store.aclose()


async def test_a_batch_takes_one_connection(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_POOL_MAX_SIZE", "1")

    store = StrandlineStore(database_url=database_url)
    await store.aput(("t",), "one", {}, ttl=10)
    assert len(await store.abatch(six_operations(1))) == 6
    assert len(store.batch(six_operations(2))) == 6
    await store.aclose()


async def test_the_sync_half_works_where_a_loop_runs(database_url: str) -> None:
    """LangGraph's async store refuses that; here both halves are one store."""

    store = StrandlineStore(database_url=database_url)
    store.put(("foo",), "baz", {"val": "baz"})
    item = await store.aget(("foo",), "baz")
    assert item is not None and item.value == {"val": "baz"}
    assert await asyncio.to_thread(store.list_namespaces, prefix=("foo",)) == [("foo",)]
    await store.aclose()


def test_one_store_serves_several_loops(database_url: str) -> None:
    store = StrandlineStore(database_url=database_url)
    for number in range(2):
        asyncio.run(store.aput(("t",), str(number), {}))
    assert len(store.search(("t",))) == 2
    store.close()
