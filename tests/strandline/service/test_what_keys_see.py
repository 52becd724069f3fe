"""What a key may see: every route with every kind of key gives no content but that its ``Access`` declares.

Two namespaces and two users of one have a word of their own for each kind of content.  Each answer to each
kind of key is searched for all of them, and the trail for the act of each that had any.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx2
import pytest

from strandline.producers.items.operations import answer_requests
from strandline.producers.items.requests import ItemPut
from strandline.schemas.values.identity import item_store_key
from strandline.schemas.wire.keys import SCOPES, NewKey
from strandline.service.access import CONTENTS, WORDS, Access
from strandline.service.route import ServiceRoute
from strandline.service.routes import ROUTES
from tests.conftest import rows_of
from tests.strandline.service.test_operators import bury
from tests.strandline.service.test_service_isolation import example
from tests.support.opened_rows import clear_only
from tests.support.servers.service_server import RunningService
from tests.support.workers.draining import drain_everything

pytestmark = clear_only("gives a summary, a dead letter and a trail words of their own by SQL")

OPEN = {"live", "ready", "capabilities", "openapi"}  # which tell of nobody


@dataclass
class Person:
    """A user with a session, and a word for each kind of content; one without a user is an operator's."""

    namespace: str
    user: str
    session: str
    words: dict[str, str]
    key: NewKey
    fact: str = ""
    source: str = ""
    erasure: int = 1
    spare_key: str = ""
    message: str = field(default_factory=lambda: f"m-{uuid4().hex}")
    event: str = ""

    @property
    def canaries(self) -> Iterator[tuple[str, str]]:
        """Kind and text of all that tells of this person."""
        yield from self.words.items()
        yield "names", self.session
        yield "names", self.user


def test_each_route_declares_what_it_tells() -> None:
    undeclared = [route.name for route in ROUTES if route.access is None and route.name not in OPEN]
    assert undeclared == []
    for route in ROUTES:
        if rule := route.access:
            assert set(rule.tells) <= set(CONTENTS), route.name


def test_a_rule_without_content_or_with_words_for_the_installation_cannot_be_written() -> None:
    with pytest.raises(TypeError):
        Access("read", "reads")  # type: ignore[call-arg]
    for scope in ("operate", None):
        with pytest.raises(ValueError, match="no words of people"):
            Access(scope, "others", ("facts",))


def put_together(running: RunningService, namespace: str, user: str) -> Person:
    words: dict[str, str] = {kind: f"{kind[:4]}{uuid4().hex}" for kind in CONTENTS if kind != "names"}
    key = running.make_key(namespace, scopes=SCOPES, label=words["operators"])
    person = Person(namespace, user, f"s-{uuid4().hex}", words, key)
    with running.client(key, user=user) as client:
        client.put("/v1/admin/audit/level", json={"level": "all"}).raise_for_status()
        said = {"role": "user", "content": f"The {words['messages']} is in the garage.", "id": person.message}
        path = f"/v1/sessions/{person.session}"
        put(client, f"{path}/messages", {"messages": [said], "policy": {"blocks": ["summary", "vectors"]}})
        put(client, f"{path}/flush", {"all": True})
        fact = put(client, f"/v1/users/{user}/facts", {"text": f"Keeps the {words['facts']} in the garage."})
        person.fact = fact["fact_id"]
        task = {"messages": [{"role": "user", "content": "I like my garage."}]}
        person.source = put(client, f"/v1/users/{user}/facts/from-messages", task)["source_id"]
        put(client, f"{path}-gone/messages", {"messages": [said | {"content": "Nothing."}]})
        person.erasure = put(client, f"{path}-gone/erasures", {"actor": words["operators"]})["number"]
        capture = {"instructions": words["operators"]}
        client.put(f"/v1/users/{user}/capture", json=capture).raise_for_status()
        person.spare_key = put(client, "/v1/admin/keys", {"scopes": ["read"], "user_id": user})["key_id"]
    item = ItemPut("notes", "one", json.dumps({"text": words["items"]}))
    running.database.run(answer_requests(item_store_key(namespace), [item]))
    return person


def put(client: httpx2.Client, path: str, body: Any) -> Any:
    wait = "10" if path.endswith("erasures") else "0"
    answer = client.post(path, json=body, headers={"Prefer": f"wait={wait}"})
    assert answer.is_success, (path, answer.text)
    return answer.json()


@pytest.fixture(scope="module")
def people(running: RunningService) -> tuple[Person, ...]:
    """Two users of one namespace, and one of another."""
    users = [("alpha", f"u1-{uuid4().hex}"), ("alpha", f"u2-{uuid4().hex}"), ("beta", f"u3-{uuid4().hex}")]
    people = tuple(put_together(running, namespace, user) for namespace, user in users)
    drain_everything(running.database, running.database_url, running.settings)
    for person in people:
        summary = json.dumps({"text": f"There is a {person.words['summaries']}.", "topics": []})
        rows_of(
            running.database_url,
            "UPDATE strandline.block_state b SET state = %s::jsonb FROM strandline.session s"
            " WHERE s.session_id = %s AND b.scope_key = s.session_key RETURNING 1",
            summary,
            person.session,
        )
        person.event = bury(running, person.namespace, f"b-{person.user}")
    return people


@dataclass(frozen=True)
class Asker:
    """A kind of key: what its requests carry, and whose content it may be told at all."""

    kind: str
    key: NewKey
    header: str | None
    of: tuple[Person, ...]


@pytest.fixture(scope="module")
def askers(running: RunningService, people: tuple[Person, ...]) -> tuple[Asker, ...]:
    one, two, other = people
    own = running.make_key("alpha", user_id=one.user, scopes=SCOPES)
    shared = running.make_key("alpha", user_id=one.user, scopes=SCOPES, shared_scopes=["team"])
    return (
        Asker("installation", running.make_key(None, scopes=["operate"]), None, people),
        Asker("another namespace", running.make_key("beta", scopes=SCOPES), one.user, (other,)),
        Asker("namespace", running.make_key("alpha", scopes=SCOPES), one.user, (one, two)),
        Asker("one user", own, None, (one,)),
        Asker("shared scopes", shared, None, (one,)),
    )


# What a request takes beside its required fields, so that its answer holds what it can.
BODIES: dict[str, Any] = {
    "search": {"query": "garage", "kinds": ["message", "fact"], "scope": "owner", "include_window": True},
    "search_facts": {"query": "garage"},
    "choose_facts": {"question": "What is in the garage?"},
    "judge_fact": {"feedback": "good"},
    "history": {},
    "metrics": None,
    "run_history": {},
    "read_context": {"input": "garage", "form": "stored"},
    "post_key": {"scopes": ["read"]},
    "post_replay": {"pipeline": "summary", "new": True, "force": True, "hold": True},
    "replace_fact": {"text": "Keeps something else."},
    "replace_content": {"content": "Something else."},
    "import_facts": {"facts": [{"id": "old", "text": "Old."}]},
}
# These take away what others look for; so they come last.
TAKING = (
    "replace",
    "delete",
    "clear",
    "pop",
    "rewind",
    "reset",
    "forget",
    "erase",
    "prune",
    "readmit",
    "put_level",
)


def asked_in_order() -> list[ServiceRoute]:
    keyed = [route for route in ROUTES if route.access is not None and route.name != "call_tools"]
    return sorted(keyed, key=lambda route: (route.name.startswith(TAKING), route.name == "post_replay"))


def path_of(route: ServiceRoute, person: Person, generation: int) -> str:
    values = {
        "session_id": person.session, "user": person.user, "fact_id": person.fact,
        "message_id": person.message,
        "key_id": person.spare_key, "namespace": person.namespace, "source": person.source,
        "event_id": person.event, "entry_id": str(uuid4()), "number": str(person.erasure), "seq": "1",
        "run_id": "run", "scope": "drafts", "operation_id": "1",
        "generation": str(generation), "pipeline": "facts",
    }  # fmt: skip
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda match: quote(values[match[1]], safe=""), route.path)


def answer_to(client: httpx2.Client, route: ServiceRoute, path: str, body: Any) -> str:
    """The text of an answer; of a stream its beginning, behind which nothing has happened yet."""
    method = route.method
    with client.stream(method, path, json=body, headers={"Prefer": "wait=0"}) as answer:
        if "text/event-stream" not in answer.headers.get("content-type", ""):
            return answer.read().decode()
        lines = answer.iter_lines()
        return "\n".join(next(lines) for _ in range(4))


def acts(running: RunningService, key: NewKey) -> Counter[str]:
    """How many acts of a key the trail of each namespace has."""
    with running.database.transaction() as tx:
        connection: Any = tx._connection
        counted = "SELECT namespace, count(*) FROM strandline.audit_entry WHERE actor = %s GROUP BY 1"
        return Counter(dict(connection.execute(counted, [f"key:{key.key_id}"]).fetchall()))


def broken_rules(
    running: RunningService, asker: Asker, rule: Access, told: list[tuple[str, Person]], before: Counter[str]
) -> Iterator[str]:
    """What of an answer its row, or the kind of the key, does not allow; and what the trail does not know."""
    for kind, whose in told:
        if kind not in rule.tells:
            yield f"tells {kind}"
        # Under another namespace's name for a user it has written itself.
        if whose not in asker.of and (kind, asker.kind) != ("names", "another namespace"):
            yield f"tells {kind} of another's"
        if asker.kind == "installation" and kind in WORDS:
            yield f"tells {kind} to the installation"
        is_own = asker.kind in ("one user", "shared scopes")
        is_recorded = acts(running, asker.key)[whose.namespace] > before[whose.namespace]
        if not is_own and (kind in WORDS or asker.kind == "installation") and not is_recorded:
            yield f"tells {kind} without an act"


def test_no_answer_holds_what_its_row_does_not_allow(
    running: RunningService, people: tuple[Person, ...], askers: tuple[Asker, ...]
) -> None:
    document = running.app.openapi()["paths"]
    seen: dict[str, set[str]] = {route.name: set() for route in ROUTES}
    broken: set[tuple[str, str, str]] = set()
    generation = 1
    for route in asked_in_order():
        rule = route.access
        assert rule is not None
        method = route.method
        if route.name in BODIES:
            body = BODIES[route.name]
        else:
            body = example(running, document[route.path_format][method.lower()])
        for asker in askers:
            is_bound = asker.kind == "one user" and not route.name.startswith(TAKING)
            for person in people[:2] if is_bound else people[:1]:
                path = path_of(route, person, generation)
                header = person.user if asker.header is not None else None
                before = acts(running, asker.key)
                with running.client(asker.key, user=header) as client:
                    text = answer_to(client, route, path, body)
                if route.name == "post_replay" and '"generation"' in text:
                    generation = json.loads(text)["generation"]
                request = f"{path} {json.dumps(body)} {header}"
                told = [
                    (kind, whose)
                    for whose in people
                    for kind, word in whose.canaries
                    if word in text and word not in request
                ]
                seen[route.name].update(kind for kind, _ in told)
                broken.update(
                    (asker.kind, route.name, rule_broken)
                    for rule_broken in broken_rules(running, asker, rule, told, before)
                )
    assert not broken, "\n".join(map(str, sorted(broken)))
    # The test sees what there is.
    unseen = {name: {*kinds.split()} - seen[name] for name, kinds in SEEN.items()}
    assert not any(unseen.values()), unseen


def test_operators_of_the_namespace_alone_choose_a_generation(
    running: RunningService, askers: tuple[Asker, ...]
) -> None:
    """Whether it exists or not: another key learns no number."""
    user = f"u-{uuid4().hex}"
    reader = Asker("reader", running.make_key("alpha", scopes=["read"]), user, ())
    numbers = rows_of(
        running.database_url,
        "SELECT generation_id FROM strandline.generation WHERE pipeline = 'summary' AND state = 'serving'",
    )
    path = f"/v1/sessions/s-{uuid4().hex}"
    with running.client(running.make_key("alpha"), user=user) as client:
        put(client, f"{path}/messages", {"messages": [{"role": "user", "content": "Hello."}]})
    own = Asker("one user", running.make_key("alpha", user_id=user, scopes=SCOPES), None, ())
    # Of others' one-user keys another test may have erased the user.
    lasting = [one for one in askers if one.kind in ("installation", "namespace", "another namespace")]
    for asker in (reader, own, *lasting):
        with running.client(asker.key, user=user if asker.header else None) as client:
            bodies = [
                {"generation": numbers[0][0]},
                {"generation": 99_999},
                {"generation": 1, "wait_for": 1_000},
            ]
            answers = [client.post(f"{path}/context", json=body) for body in bodies]
        codes = [answer.status_code for answer in answers]
        expected = {"namespace": [200, 404, 422], "another namespace": [404] * 3}
        assert codes == expected.get(asker.kind, [403, 403, 403]), asker.kind
        if codes[0] == 403:
            assert answers[0].json() == answers[1].json() and "forbidden" in answers[0].json()["type"]


SEEN = {
    "list_messages": "messages",
    "read_context": "messages summaries",
    "search": "messages",
    "list_facts": "facts",
    "search_facts": "facts",
    "judge_fact": "facts",
    "summarize": "summaries",
    "export_user": "messages facts summaries names operators",
    "list_users": "names",
    "get_sessions": "names",
    "get_letters": "names",
    "get_keys": "names operators",
    "get_capture": "operators",
}
