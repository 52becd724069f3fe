"""What memory and facts promise by each of their faces: the library's and the client's, sync and async."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime
from typing import Any
from uuid import uuid4

import pytest

from strandline import ConflictError, InvalidMessageError, Memory, Retention, VersionError
from strandline.client import AsyncRemoteMemory, RemoteMemory, RemoteService
from strandline.schemas.values.acts.capture import Capture
from tests.support.servers.service_server import RunningService

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
EVERY_FIELD = [
    {"role": "system", "content": "Be brief.", "cache": True},
    {"role": "user", "content": [{"type": "text", "text": "Look: ünï/code."}], "name": "ana", "id": "m1"},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": "no", "id": "m2"},
    {"role": "tool", "content": "done", "tool_call_id": "c1", "metadata": {"a": [1, {"b": None}]}},
    {"role": "user", "content": "Thanks.", "created_at": datetime(2026, 1, 31, 12, tzinfo=UTC)},
]
SAID = datetime(2026, 1, 31, 12, tzinfo=UTC)
Act = Callable[..., Any]


class Face:
    """A session's memory by one face: ``memory`` and ``facts`` carry an operation out by its plain name."""

    def __init__(self, made: Any, *, prefix: str = "", runner: asyncio.Runner | None = None) -> None:
        self.made = made
        self._prefix = prefix
        self._runner = runner

    def memory(self, operation: str, *arguments: Any, **named: Any) -> Any:
        return self._act(self.made, operation, *arguments, **named)

    def facts(self, operation: str, *arguments: Any, **named: Any) -> Any:
        return self._act(self.made.facts, operation, *arguments, **named)

    def texts(self) -> list[str]:
        return [message.text for message in self.memory("get_all")]

    def close(self) -> None:
        self.memory("close")

    def _act(self, owner: Any, operation: str, *arguments: Any, **named: Any) -> Any:
        given = getattr(owner, self._prefix + operation)(*arguments, **named)
        if self._runner is None:
            return list(given) if inspect.isgenerator(given) else given
        return self._runner.run(_whole(given))


async def _whole(given: Any) -> Any:
    return [one async for one in given] if hasattr(given, "__aiter__") else await given


Make = Callable[..., Face]


@pytest.fixture(params=["library", "async library", "client", "async client"])
def make(
    request: pytest.FixtureRequest, running: RunningService, remote: RemoteService, user: str
) -> Iterator[Make]:
    """Makes a face of a session, always the same user's."""
    made: list[Face] = []
    with asyncio.Runner() as runner:

        def make_face(session_id: str | None = None, **options: Any) -> Face:
            options |= {"user_id": user}
            name = session_id or uuid4().hex
            match request.param:
                case "library" | "async library":
                    memory = Memory.from_defaults(name, database_url=running.database_url, **options)
                    is_async = request.param != "library"
                    face = Face(memory, prefix="a", runner=runner) if is_async else Face(memory)
                case "client":
                    face = Face(RemoteMemory.from_defaults(name, service=remote, **options))
                case _:
                    far = AsyncRemoteMemory.from_defaults(name, service=remote, **options)
                    face = Face(far, runner=runner)
            made.append(face)
            return face

        yield make_face
        for face in made:
            face.close()


@pytest.fixture
def face(make: Make) -> Face:
    return make()


Near = Callable[[Face], Memory]


@pytest.fixture
def near(running: RunningService, user: str) -> Iterator[Near]:
    """The same session's memory by the library's sync face, which other tests look at."""
    with ExitStack() as ending:

        def open_near(face: Face) -> Memory:
            memory = Memory.from_defaults(
                face.made.session_id, user_id=user, database_url=running.database_url
            )
            ending.callback(memory.close)
            return memory

        yield open_near


def user_says(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text} for text in texts]


def test_what_is_put_is_read_as_it_was(make: Make, near: Near) -> None:
    face = make("a/session with ünï" + uuid4().hex)
    assert face.memory("put_messages", EVERY_FIELD) == [1, 2, 3, 4, 5]
    assert face.memory("put", {"role": "assistant", "content": "Welcome."}) == 6
    log = face.memory("get_all")
    assert log == near(face).get_all()
    assert [one.seq for one in log] == [1, 2, 3, 4, 5, 6] and log[0].extra == {"cache": True}
    assert face.memory("put_messages", log) == [1, 2, 3, 4, 5, 6], "what was read can be put again"
    with pytest.raises(ConflictError):
        face.memory("put", {"role": "user", "content": "other", "id": "m1"})
    assert face.memory("iterate", page_size=2) == log
    assert face.memory("iterate", after_seq=4, page_size=1) == log[4:]
    assert face.memory("iterate", after_seq=6) == []
    assert face.memory("context_window", 50) == log
    assert list(face.memory("get")) == log


@pytest.mark.parametrize(
    ("given", "seqs"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"limit": 2}, [4, 5]),
        ({"limit": 0}, []),
        ({"limit": 2, "offset": 1}, [3, 4]),
        ({"roles": ["user"]}, [2, 5]),
        ({"roles": []}, []),
        ({"since": datetime(2026, 2, 1, tzinfo=UTC)}, [1, 2, 3, 4]),
        ({"until": datetime(2026, 2, 1, tzinfo=UTC)}, [5]),
    ],
    ids=str,
)
def test_a_history_is_filtered(face: Face, given: dict[str, Any], seqs: list[int]) -> None:
    face.memory("put_messages", EVERY_FIELD)
    assert [one.seq for one in face.memory("history", **given)] == seqs


def test_a_log_is_corrected_forked_and_reset(make: Make) -> None:
    face = make()
    face.memory("put_messages", user_says("one", "two", "three", "four"))
    assert face.memory("pop").text == "four"
    correction = face.memory("replace", 2, "TWO", actor="ana", idempotency_key="schlüssel")
    assert face.memory("replace", 2, "TWO", actor="ana", idempotency_key="schlüssel") == correction
    assert (correction.kind, correction.seqs) == ("replace", (2,))
    assert face.memory("rewind", 3).seqs == (3,)
    assert face.texts() == ["one", "TWO"]
    fork = face.memory("fork", through_seq=1)
    assert make(fork.session_id).texts() == ["one"]
    face.memory("reset")
    assert face.texts() == [] and face.memory("pop") is None


def test_runs_deliveries_and_imports(face: Face) -> None:
    said = [*user_says("go"), {"role": "assistant", "content": "done"}]
    run = face.memory("add_run", "r1", said)
    assert face.memory("add_run", "r1", said) == run
    other = face.memory("add_run", "r1", [*said[:1], {"role": "assistant", "content": "over"}])
    assert [one.kind for one in other.corrections] == ["rewind"]
    assert [one.text for one in face.memory("run_history")] == ["go", "over"]
    assert len(face.memory("deliver")) == 1
    assert face.memory("flush", all=True) == []
    assert face.memory("summarize") is None
    assert len(face.memory("put_messages", user_says("more"))) == len(face.memory("flush", all=True)) == 1


def test_limits_of_the_first_put_are_stored_and_changed(make: Make, near: Near) -> None:
    face = make(token_limit=5_000, memory_blocks=["summary"], idle_seconds=None)
    face.memory("put", user_says("Hello.")[0])
    assert face.memory("get").token_limit == 5_000
    policy = face.memory("set_policy", token_limit=6_000, actor="ana")
    assert (policy.token_limit, policy.pipelines, policy.idle_seconds) == (6_000, ("summary",), None)
    assert face.memory("set_policy") == policy
    assert face.memory("get").token_limit == face.made.token_limit == 6_000
    changed = face.memory("set_policy", idle_seconds=60, memory_blocks=["facts"])
    assert (changed.idle_seconds, changed.pipelines) == (60, ("facts",))
    assert near(face).set_policy() == changed


def test_retention_is_set(face: Face) -> None:
    face.memory("put", user_says("Hello.")[0])
    assert face.memory("set_retention", Retention(max_messages=10), actor="ana") == 1
    assert face.memory("get_retention") == Retention(max_messages=10)


def test_a_read_and_a_search_show_messages_and_facts(face: Face, near: Near) -> None:
    face.memory("put_messages", user_says("The bees are well.", "They sleep."))
    waiting = face.memory("get").waiting
    assert waiting.messages == 2 and waiting == near(face).get().waiting
    assert face.facts("list").waiting.messages == 2
    face.facts("add", "Keeps bees in Lisbon.", topics=["home"])
    assert face.facts("list").waiting is None
    context = face.memory("get", "Where are the bees?")
    assert [fact.text for fact in context.facts] == ["Keeps bees in Lisbon."]
    assert "Keeps bees in Lisbon." in str(context) and context.caught_up
    assert face.memory("get", initial_token_count=29_990).token_limit == 10
    found = face.memory("search", "bees", limit=1)
    assert [hit.text for hit in found] == ["The bees are well."]
    assert found == near(face).search("bees", limit=1)
    sleepers = {"roles": ["user"], "metadata": {"n": 1}, "since": SAID, "until": SAID}
    assert face.memory("search", "bees", **sleepers) == []
    said = {"role": "user", "content": "Bees hum.", "metadata": {"n": 1}, "created_at": SAID}
    face.memory("put", said)
    assert [hit.text for hit in face.memory("search", "bees", **sleepers)] == ["Bees hum."]
    both = face.memory("search", "bees", kinds=["message", "fact"], scope="owner")
    assert {one.kind for one in both} == {"message", "fact"}


def test_a_fact_is_added_corrected_and_deleted(face: Face, near: Near) -> None:
    about = datetime(2026, 5, 1, 23, tzinfo=UTC)
    fact = face.facts("add", "Lives in Lisbon.", topics=["home"], about_date=about, actor="ana")
    got, stored = face.facts("get", fact.fact_id), near(face).facts.get(fact.fact_id)
    assert stored is not None
    for name in stored.__dataclass_fields__:
        assert getattr(got, name) == getattr(stored, name), name
    assert (got.is_live, got.about_date) == (True, date(2026, 5, 1))
    again = face.facts("add", "Lives in Lisbon.")
    assert again.fact_id == fact.fact_id
    changed = face.facts("replace", fact.fact_id, "Lives in Porto.", if_version=again.version)
    assert changed.text == "Lives in Porto."
    for operation, arguments in (("replace", ["Lives in Faro."]), ("delete", [])):
        with pytest.raises(VersionError):
            face.facts(operation, fact.fact_id, *arguments, if_version=fact.version)
    assert face.facts("feedback", changed.fact_id, "wrong").feedback == "wrong"
    assert [face.facts("delete", changed.fact_id) for _ in "ab"] == [True, False]
    assert [face.facts("get", unknown) for unknown in (uuid4(), "no id")] == [None, None]
    assert face.facts("feedback", uuid4(), "x") is face.facts("replace", uuid4(), "x") is None
    assert face.facts("list").total == 0
    kept = face.facts("add", "Lives in Evora.")
    assert [face.facts("delete", kept.fact_id, with_messages=True) for _ in "ab"] == [True, False]


@pytest.mark.parametrize(
    ("keep", "live"),
    [
        ("both", ["Lives in Lisbon.", "Lives in Porto."]),
        ("new", ["Lives in Lisbon."]),
        ("old", ["Lives in Porto."]),
    ],
)
def test_a_doubtful_fact_is_listed_and_settled(keep: str, live: list[str], face: Face, near: Near) -> None:
    old, new = (face.facts("add", f"Lives in {city}.") for city in ("Porto", "Lisbon"))
    assert not old.is_doubtful and new.is_doubtful and new.id == new.fact_id
    assert not face.facts("add", "Lives in Bern.", as_is=True).is_doubtful
    face.facts("delete", face.facts("search", "Bern")[0].fact.fact_id)
    (doubtful,) = face.facts("list", doubtful=True)
    assert doubtful.fact_id == new.fact_id and doubtful.is_doubtful
    assert doubtful.doubt == near(face).facts.list(doubtful=True)[0].doubt
    assert doubtful.doubt.fact_id == old.fact_id and doubtful.doubt.operation == "invalidate"
    for wrong, problem in ((keep + "s", InvalidMessageError), (keep, VersionError)):
        with pytest.raises(problem):
            face.facts("settle", new.fact_id, wrong, if_version="1-0")
    kept = face.facts("settle", new.fact_id, keep, actor="ana", if_version=doubtful.version)
    assert kept.text in live and not kept.is_doubtful
    assert sorted(fact.text for fact in face.facts("list")) == live
    with pytest.raises(ConflictError, match="not doubtful"):
        face.facts("settle", kept.fact_id, keep)
    assert face.facts("settle", uuid4(), keep) is face.facts("settle", "no id", keep) is None


PAGES: list[tuple[dict[str, Any], str, int]] = [
    ({}, "6543210", 7),
    ({"limit": 0}, "", 7),
    ({"limit": 2}, "65", 7),
    ({"limit": 3, "offset": 2}, "432", 7),
    ({"offset": 6}, "0", 7),
    ({"offset": 9}, "", 7),
    ({"sort": "oldest"}, "0123456", 7),
    ({"topics": ["odd"]}, "531", 3),
    ({"contains": "number 3"}, "3", 1),
    ({"first_n": 2}, "01", 7),
    ({"last_n": 3}, "456", 7),
    ({"last_n": 0}, "", 7),
]


def test_facts_are_listed_searched_counted_and_cleared(face: Face) -> None:
    for number in range(7):
        face.facts("add", f"Fact number {number}.", topics=["odd" if number % 2 else "even"])
    for given, numbers, total in PAGES:
        found = face.facts("list", **given)
        assert "".join(fact.text[-2] for fact in found) == numbers, given
        assert found.total == total, given
    newest = face.facts("list", limit=1)[0]
    times = {"since": newest.said_at, "until": newest.said_at}
    assert [fact.text for fact in face.facts("list", **times, contains="number")] == ["Fact number 6."]
    assert face.facts("list", until=SAID).total == 0
    assert face.facts("search", "number 3", limit=3)[0].fact.text == "Fact number 3."
    assert {one.topic: one.facts for one in face.facts("topics")} == {"even": 4, "odd": 3}
    assert face.facts("figures").facts == 7
    assert face.facts("clear") == 7


def test_sources_of_facts_are_kept_once_and_forgotten(face: Face) -> None:
    changes = face.facts("create_from", user_says("I keep bees."), key="once")
    assert face.facts("create_from", user_says("I keep bees."), key="once") == changes
    for _ in "ab":
        face.facts("forget_source", changes.source_id)
    with pytest.raises(InvalidMessageError):
        face.facts("forget_source", "no source")
    assert face.facts("get_capture") == Capture()


def test_messages_that_cannot_be_stored_are_refused(face: Face) -> None:
    for message in (
        *({"role": "robot", "content": "x"}, {"content": "x"}, {"role": "user", "content": 5}, 7),
        {"role": "user", "content": "x" * 2_000_000},
        {"role": "user", "content": "x", "metadata": {"n": float("nan")}},
    ):
        with pytest.raises(InvalidMessageError):
            face.memory("put", message)
    with pytest.raises(InvalidMessageError) as raised:
        face.memory("put_messages", [*user_says("fine"), {"role": "robot", "content": "x"}])
    assert raised.value.field == "messages[1].role"
    for text in ("a\0b", "cut \ud83d"):
        with pytest.raises(InvalidMessageError) as raised:
            face.memory("put_messages", [*user_says("fine"), *user_says(text)])
        assert raised.value.field == "messages[1].content"
    assert face.texts() == []


REFUSED: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("search", ["x"], {"limit": 5_000}),
    ("search", ["x"], {"kinds": []}),
    ("search", ["x"], {"scope": "everything"}),
    ("history", [], {"limit": -1}),
    ("history", [], {"since": "yesterday"}),
    ("iterate", [], {"after_seq": -1}),
    ("context_window", [-1], {}),
    ("get", [], {"initial_token_count": -1}),
    ("get", [], {"block_arguments": {"a": 1}}),
    ("set_policy", [], {"token_limit": -5}),
    ("run_history", [-1], {}),
    ("rewind", [99], {}),
    ("add_run", ["r", user_says("x")], {"status": "odd"}),
    ("put_messages", ["abc"], {}),
    ("facts.add", [""], {}),
    ("facts.add", ["x"], {"about_date": "yesterday"}),
    ("facts.search", ["x"], {"limit": -1}),
    ("facts.feedback", [uuid4(), 5], {}),
]


def test_arguments_are_refused_with_the_same_error(face: Face, near: Near) -> None:
    face.memory("put", user_says("Hello.")[0])
    library = Face(near(face))
    for operation, arguments, named in REFUSED:
        raised: list[type[BaseException]] = []
        for one in (library, face):
            act = one.facts if operation.startswith("facts.") else one.memory
            with pytest.raises(ValueError) as error:  # noqa: PT011  # which kinds is compared below
                act(operation.removeprefix("facts."), *arguments, **named)
            raised.append(type(error.value))
        assert raised[0] is raised[1], (operation, named)


def test_a_session_that_has_not_begun(make: Make) -> None:
    face = make(token_limit=5_000, insert_method="user")
    face.facts("add", "Lives in Lisbon.")
    make().memory("put", user_says("I keep bees in Lisbon.")[0])
    context = face.memory("get", "Where do I live?")
    assert [message.role for message in context] == ["system"], (
        "there is no message that memory could go into"
    )
    assert "Lives in Lisbon." in str(context) and context.token_limit == 5_000
    assert [hit.text for hit in face.memory("search", "bees", scope="owner")] == ["I keep bees in Lisbon."]
    for operation in ("history", "run_history", "context_window", "iterate"):
        assert face.memory(operation) == [], operation
