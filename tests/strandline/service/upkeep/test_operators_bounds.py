"""What an operator bounds, no key without ``operate`` loosens: retention, what is important, policies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.upkeep.policies import RetentionLevel, read_retention, record_retention
from strandline.schemas.errors import ActRefusedError
from strandline.schemas.values.acts.retention import BOUNDS, Retention
from strandline.schemas.values.identity import identify_session
from tests.support.servers.service_server import RunningService

HOUR = 3_600
ONLY = {"token_limit": 4_000, "blocks": ["summary"]}


class Space:
    """A namespace with an operator, a backend, and a user whose session has messages of each hour."""

    def __init__(self, running: RunningService, *, through_hours: int = 6) -> None:
        self.running = running
        self.namespace, self.user, self.session = (f"{kind}-{uuid4().hex}" for kind in "nus")
        make = running.make_key
        self.own = make(self.namespace, user_id=self.user, scopes=["read", "write"])
        self.backend = make(self.namespace, scopes=["read", "write"])
        self.operator = make(self.namespace, scopes=["read", "write", "operate"])
        for hours in reversed(range(through_hours)):
            self.put(self.backend, f"hour {hours}", hours=hours).raise_for_status()

    def put(
        self, key: Any, text: str, *, hours: float = 0, how: str = "messages", session: str = "", **more: Any
    ) -> httpx2.Response:
        said = datetime.now(UTC) - timedelta(hours=hours, minutes=1)
        message = {"role": "user", "content": text, "id": text, "created_at": said.isoformat()} | more
        path = f"{session or self.session}/{how}"
        method = "PUT" if how.startswith("runs") else "POST"
        body: dict[str, Any] = {"messages": [message]}
        return self.ask(key, method, path, body | ({"policy": ONLY} if how == "messages" else {}))

    def ask(self, key: Any, method: str, path: str, body: Any = None) -> httpx2.Response:
        with self.running.client(key, user=self.user) as client:
            return client.request(method, f"/v1/sessions/{path}", json=body)

    def keep(self, key: Any, **bounds: Any) -> int:
        """The status of setting the session's retention."""
        return self.ask(key, "PUT", f"{self.session}/retention", bounds).status_code

    def bound(self, **fields: Any) -> None:
        """Set the namespace's."""
        level = RetentionLevel(self.namespace)
        self.running.database.run(record_retention(level, Retention(**fields), Act.here("retention")))

    def history(self, session: str = "") -> list[str]:
        items = self.ask(self.own, "GET", f"{session or self.session}/messages").json()["items"]
        return [item["content"] for item in items]


def hours(through: int) -> list[str]:
    return [f"hour {one}" for one in reversed(range(through))]


@pytest.fixture
def space(running: RunningService) -> Space:
    return Space(running)


LOOSER = (
    {"max_age_seconds": 0}, {"max_age_seconds": 5 * HOUR}, {"ttl_seconds": 0}, {"ttl_seconds": 9 * HOUR},
    {"max_messages": 0}, {"max_messages": 101}, {"forget_facts": False},
    {"max_age_seconds": HOUR, "max_messages": 0},
)  # fmt: skip


@pytest.mark.parametrize("kind", ["own", "backend"])
def test_a_key_that_does_not_operate_only_tightens_retention(space: Space, kind: str) -> None:
    key = getattr(space, kind)
    space.bound(max_age_seconds=4 * HOUR, ttl_seconds=8 * HOUR, max_messages=100, forget_facts=True)
    assert space.history() == hours(4)
    for looser in LOOSER:
        assert space.keep(key, **looser) == 403, looser
        assert space.history() == hours(4), looser
    assert space.keep(key) == 200 and space.history() == hours(4)
    assert space.keep(key, max_age_seconds=2 * HOUR) == 200 and space.history() == hours(2)
    for looser in ({"max_age_seconds": 3 * HOUR}, {"max_age_seconds": 0}):
        assert space.keep(key, **looser) == 403
    assert space.keep(key, max_messages=50) == 200
    assert space.history() == hours(2), "what a choice leaves open stays as it is"
    space.bound(max_age_seconds=HOUR)
    assert space.history() == hours(1), "the namespace's bound holds beside the tighter one"
    space.bound()
    assert space.history() == hours(2), "and so does the tighter one, without the namespace's"
    answer = space.ask(key, "GET", f"{space.session}/retention").json()
    assert (answer["max_age_seconds"], answer["max_messages"]) == (2 * HOUR, 50)


def test_an_operators_choice_for_a_session_stands(space: Space) -> None:
    space.bound(max_age_seconds=2 * HOUR)
    assert space.keep(space.operator, max_age_seconds=5 * HOUR) == 200 and space.history() == hours(5)
    assert space.keep(space.own, max_age_seconds=0) == 403
    assert space.keep(space.own, max_age_seconds=4 * HOUR) == 200
    assert space.history() == hours(4), (
        "tighter than the operator's choice, which the namespace's does not bound"
    )
    space.bound(max_age_seconds=HOUR, ttl_seconds=9 * HOUR)
    assert space.history() == hours(4)


def test_a_fork_is_bounded_as_its_source(space: Space) -> None:
    assert space.keep(space.own, max_age_seconds=3 * HOUR) == 200
    fork = space.ask(space.own, "POST", f"{space.session}/fork", {}).json()["session_id"]
    assert space.history(fork) == hours(3)
    space.bound(max_age_seconds=HOUR)
    assert space.history(fork) == hours(1)
    assert space.ask(space.own, "PUT", f"{fork}/retention", {"max_age_seconds": 0}).status_code == 403


@pytest.mark.parametrize("how", ["messages", "import", "runs/r1"])
def test_what_a_users_key_calls_important_is_kept_no_longer(space: Space, how: str) -> None:
    space.bound(max_age_seconds=HOUR)
    important: dict[str, Any] = {"metadata": {"important": True}}
    space.put(space.own, "mine", hours=3, how=how, **important).raise_for_status()
    how = how.replace("r1", "r2")
    space.put(space.backend, "the backend's", hours=3, how=how, **important).raise_for_status()
    assert space.history() == ["hour 0", "the backend's"]
    found = space.ask(space.own, "POST", f"{space.session}/history", {"metadata": {"important": True}}).json()
    assert [item["content"] for item in found["items"]] == ["the backend's"]
    space.bound(max_age_seconds=HOUR, keeps_important=False)
    assert space.history() == ["hour 0"]
    space.bound(keeps_important=False)
    assert {"mine", "the backend's"} <= {*space.history()}


@pytest.mark.parametrize("how", ["messages", "import", "runs/r1"])
def test_nothing_is_said_in_the_future(space: Space, how: str) -> None:
    answer = space.put(space.own, "later", hours=-48, how=how)
    assert answer.status_code == 422 and "/created_at" in answer.json()["errors"][0]["pointer"]
    assert "past" in answer.json()["errors"][0]["detail"]


def test_a_users_key_lowers_limits_of_a_policy_and_raises_none(space: Space) -> None:
    change = f"{space.session}/policy"
    raised = ({"token_limit": 4_001}, {"blocks": ["facts", "summary"]}, {"max_window_messages": 2_500})
    for looser in raised:
        assert space.ask(space.own, "PATCH", change, looser).status_code == 403, looser
    assert space.ask(space.own, "PATCH", change, {"token_limit": 3_000}).status_code == 200
    assert space.ask(space.own, "PATCH", change, {"token_limit": 4_000}).status_code == 403
    for looser in raised:
        assert space.ask(space.backend, "PATCH", change, looser).status_code == 200, looser
    facts: dict[str, Any] = {"blocks": ["facts"]}
    assert space.ask(space.backend, "PATCH", change, facts | {"max_facts": 5}).status_code == 200
    for looser in (facts | {"max_facts": 6}, facts):  # without a number: as many as there are
        assert space.ask(space.own, "PATCH", change, looser).status_code == 403, looser
    assert space.ask(space.own, "PATCH", change, facts | {"max_facts": 4}).status_code == 200


CHOICES = st.builds(
    lambda age, number, forget: Retention(max_age_seconds=age, max_messages=number, forget_facts=forget),
    st.sampled_from([None, 0, *(hour * HOUR for hour in range(1, 7))]),
    st.sampled_from([None, 0, 5, 50]),
    st.sampled_from([None, False, True]),
)
STEPS = st.lists(st.tuples(st.sampled_from(["namespace", "session", "user"]), CHOICES), max_size=8)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_no_order_of_acts_lets_a_user_see_more(running: RunningService, shown: Space, steps: Any) -> None:
    """After each act of a user all that is shown was shown before; and Python says what statements do."""
    identity = identify_session(shown.namespace, shown.session, shown.user)
    level = RetentionLevel(shown.namespace, identity)
    run = running.database.run
    for who, choice in [("namespace", Retention()), ("session", Retention()), *steps]:
        before = run(read_retention(level))
        seen = shown.history()
        whose = RetentionLevel(shown.namespace) if who == "namespace" else level
        try:
            run(record_retention(whose, choice, Act.here("retention"), only_tightens=who == "user"))
        except ActRefusedError:
            assert who == "user"
        after = run(read_retention(level))
        age = after.max_age_seconds
        assert shown.history() == hours(6 if not age else min(6, age // HOUR))
        if who == "user":
            assert {*shown.history()} <= {*seen}
            for name in BOUNDS:
                bound, now = getattr(before, name), getattr(after, name)
                assert not bound or 0 < now <= bound, name
            assert bool(after.forget_facts) >= bool(before.forget_facts)


@pytest.fixture(scope="module")
def shown(running: RunningService) -> Space:
    return Space(running)
