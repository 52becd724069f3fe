"""Erasures over HTTP: the fence stands at the answer, the rest follows, and the receipt can be verified."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import closing
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.erasure import ErasureReceipt, Erasures, make_receipt_key, verifier_of
from strandline.producers.erasing.erase import BegunErasure, finish_erasing
from strandline.schemas.postgres.operations import Operation, Run
from strandline.schemas.wire.keys import SCOPES
from strandline.service import carried_work, records
from strandline.service.gate import authentication
from tests.conftest import rows_of, wait_until
from tests.support.servers.databases import temporary_database
from tests.support.servers.service_server import RunningService

DONE = {"Prefer": "wait=15"}


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "receipts.pem"
    make_receipt_key(path)
    return path


@pytest.fixture(scope="module")
def running(stack: EmbeddedStack, key_file: Path) -> Iterator[RunningService]:
    """A service that signs receipts."""
    with (
        temporary_database(stack.database_url) as url,
        RunningService(url, receipt_key_file=key_file) as service,
    ):
        yield service


@pytest.fixture(scope="module")
def desk(running: RunningService) -> Iterator[httpx2.Client]:
    """Who carries erasures out: a key of the namespace, of all scopes."""
    with running.client(running.make_key(scopes=SCOPES)) as client:
        yield client


@pytest.fixture
def user(running: RunningService, desk: httpx2.Client) -> str:
    """A user with two sessions and a fact."""
    name = f"u-{uuid4().hex}"
    for session in ("one", "two"):
        assert put(desk, name, session).status_code == 201
    assert desk.post(f"/v1/users/{name}/facts", json={"text": "Likes tea."}).status_code == 201
    return name


def put(desk: httpx2.Client, user: str, session: str, text: str = "My boat is blue.") -> httpx2.Response:
    return desk.post(
        f"/v1/sessions/{user}-{session}/messages",
        json={"messages": [{"role": "user", "content": text}]},
        headers={"Strandline-User": user},
    )


def log_of(desk: httpx2.Client, user: str, session: str) -> httpx2.Response:
    return desk.get(f"/v1/sessions/{user}-{session}/messages", headers={"Strandline-User": user})


def erase(desk: httpx2.Client, user: str, **more: Any) -> httpx2.Response:
    headers = {**DONE, **more.pop("headers", {})}
    return desk.post(f"/v1/users/{user}/erasures", json=more, headers=headers)


def test_the_key_that_erases_its_user_hears_of_the_end(
    running: RunningService, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes with the user, and is looked at anew."""
    monkeypatch.setattr(authentication, "TRUSTED_SECONDS", 0.0)
    with running.client(running.make_key(user_id=user, scopes=["erase"])) as client:
        answer = erase(client, user)
        assert (answer.status_code, answer.json()["state"]) == (200, "done")
        assert client.get("/v1/whoami").status_code == 401


def test_a_user_goes_and_stays_away(running: RunningService, desk: httpx2.Client, user: str) -> None:
    planned = desk.get(f"/v1/users/{user}/erasures/plan").json()
    assert (planned["rows"]["message"], planned["rows"]["session"], planned["erased_by"]) == (2, 2, None)
    answer = erase(desk, user, actor="privacy desk")
    done = answer.json()
    assert (answer.status_code, done["state"], done["is_running"], done["failed"]) == (
        200,
        "done",
        False,
        None,
    )
    assert answer.headers["location"] == f"/v1/erasures/{done['number']}"
    assert desk.get(answer.headers["location"]).json() == done
    assert done["actor"] == "privacy desk"
    assert {check["remaining"] for check in done["receipt"]["checks"]} == {0}
    refused = put(desk, user, "one")
    assert (refused.status_code, refused.json()["type"]) == (410, "urn:strandline:problem:erased")
    assert desk.post(f"/v1/users/{user}/facts", json={"text": "Likes tea."}).status_code == 410
    assert desk.get(f"/v1/users/{user}/facts").json()["total"] == 0
    assert desk.get("/v1/sessions", headers={"Strandline-User": user}).json()["items"] == []
    planned = desk.get(f"/v1/users/{user}/erasures/plan").json()
    assert planned == {"rows": {}, "erased_by": done["number"]}


def test_the_receipt_is_the_bytes_that_were_signed(
    running: RunningService, desk: httpx2.Client, user: str, key_file: Path
) -> None:
    number = erase(desk, user).json()["number"]
    text = desk.get(f"/v1/erasures/{number}/receipt").text
    ((stored,),) = rows_of(
        running.database_url, "SELECT receipt FROM strandline.erasure WHERE number = %s", number
    )
    assert text == stored
    receipt = ErasureReceipt.from_json(text)
    assert receipt.signature is not None
    assert verifier_of(key_file.with_name("receipts.pem.pub")).verify(
        receipt.signed_bytes(), receipt.signature
    )
    verdict = {"number": number, "signature": "valid", "fence": number, "rows": {}}
    assert desk.get(f"/v1/erasures/{number}/verification").json() == verdict
    desk.post(f"/v1/users/{user}/readmission", json={})
    assert put(desk, user, "one").status_code == 201
    back = desk.get(f"/v1/erasures/{number}/verification").json()
    assert back == {**verdict, "fence": None}


class HeldBack:
    """Erasures that have set their fence, and have no place for the rest."""

    def __init__(self, running: RunningService) -> None:
        self._erasures = running.service.erasures
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> HeldBack:
        self._places = self._erasures._places
        self._held = asyncio.Semaphore(0)
        places: Any = SimpleNamespace(turn=lambda _asker: self._held)
        self._erasures._places = places
        return self

    def __exit__(self, *_: object) -> None:
        self._erasures._places = self._places

    def go_on(self) -> None:
        tasks = [task for tasks in self._erasures._running.values() for task in tasks]
        for task in tasks:
            task.get_loop().call_soon_threadsafe(self._held.release)


def test_the_fence_stands_before_the_rest_is_done(
    running: RunningService, desk: httpx2.Client, user: str
) -> None:
    with HeldBack(running) as held:
        begun = erase(desk, user, headers={"Prefer": "wait=0"})
        place = begun.headers["location"]
        assert (begun.status_code, begun.json()["state"], begun.json()["is_running"]) == (
            202,
            "running",
            True,
        )
        assert put(desk, user, "one").status_code == 410
        assert desk.get(f"{place}/receipt").status_code == 404
        assert desk.post(f"/v1/users/{user}/readmission", json={}).status_code == 409
        again = erase(desk, user, headers={"Prefer": "wait=0"})
        assert (again.status_code, again.json()["number"]) == (202, begun.json()["number"])
        held.go_on()
        wait_until(lambda: desk.get(place).json()["state"] == "done", timeout=20, what="its end")
    assert erase(desk, user).status_code == 200


def test_one_that_broke_off_goes_on_when_it_is_asked_for_again(
    running: RunningService,
    desk: httpx2.Client,
    user: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def lost(**_how: object) -> None:
        raise OSError("the archive is not mounted")

    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr("strandline.service.carried_work.Beside", lost)
        broken = erase(desk, user)
    assert (broken.status_code, broken.json()["failed"]) == (202, "OSError")
    assert [record.message for record in caplog.records] == ["an erasure failed"]
    assert "mounted" not in caplog.text
    assert put(desk, user, "one").status_code == 410
    for method, path in (("POST", f"/v1/sessions/{user}-one/erasures"), ("GET", f"/v1/users/{user}/export")):
        refused = desk.request(method, path, headers={"Strandline-User": user} if "sessions" in path else {})
        assert (refused.status_code, "not finished" in refused.json()["detail"]) == (409, True), refused.text
    done = erase(desk, user)
    assert (done.status_code, done.json()["failed"]) == (200, None)
    assert done.json()["number"] == broken.json()["number"]


def test_a_repeated_request_does_not_erase_who_came_back(desk: httpx2.Client, user: str) -> None:
    first = erase(desk, user, headers={"Idempotency-Key": "request-1"}).json()
    readmitted = desk.post(f"/v1/users/{user}/readmission", json={"actor": "desk"})
    assert (readmitted.status_code, readmitted.json()["kind"]) == (201, "readmission")
    assert put(desk, user, "one").status_code == 201
    again = erase(desk, user, headers={"Idempotency-Key": "request-1"})
    assert (again.status_code, again.json()) == (200, first)
    assert len(log_of(desk, user, "one").json()["items"]) == 1
    other = erase(desk, user, headers={"Idempotency-Key": "request-2"}).json()
    assert other["number"] > first["number"]
    assert log_of(desk, user, "one").status_code == 404
    listed = desk.get(f"/v1/users/{user}/erasures").json()["items"]
    assert [one["kind"] for one in listed] == ["user", "readmission", "user"]
    page = desk.get(f"/v1/users/{user}/erasures", params={"limit": 2}).json()
    rest = desk.get(f"/v1/users/{user}/erasures", params={"cursor": page["next_cursor"]}).json()
    assert page["items"] + rest["items"] == listed
    assert rest["next_cursor"] is None


def test_one_session_goes_and_the_others_stay(desk: httpx2.Client, user: str) -> None:
    headers = {"Strandline-User": user}
    path = f"/v1/sessions/{user}-one/erasures"
    assert desk.get(f"{path}/plan", headers=headers).json()["rows"]["message"] == 1
    done = desk.post(path, json={}, headers={**headers, **DONE})
    assert (done.status_code, done.json()["kind"]) == (200, "session")
    assert log_of(desk, user, "one").status_code == 404
    assert put(desk, user, "one").status_code == 410
    assert len(log_of(desk, user, "two").json()["items"]) == 1
    assert desk.post(path, json={}, headers={**headers, **DONE}).json()["number"] == done.json()["number"]
    never = f"/v1/sessions/{user}-never/erasures"
    assert desk.post(never, json={}, headers=headers).status_code == 404
    assert desk.post(path, json={}).status_code == 422  # it says for whom
    assert desk.post(path, json={}, headers={"Strandline-User": "-"}).status_code == 404  # nobody's
    refused = desk.post(path, json={"items_below": [["a"]]}, headers=headers)
    assert refused.json()["errors"][0]["pointer"] == "/body/items_below"
    readmission = f"/v1/sessions/{user}-one/readmission"
    assert desk.post(readmission, json={}, headers=headers).status_code == 201
    assert desk.post(readmission, json={}, headers=headers).status_code == 404
    assert put(desk, user, "one").status_code == 201


@pytest.mark.parametrize("step", ["check", "receipt"])
def test_a_pop_keeps_no_response_for_a_session_behind_its_fence(
    running: RunningService,
    desk: httpx2.Client,
    user: str,
    key_file: Path,
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a process that erases elsewhere the service hears nothing, and knows the session still."""
    monkeypatch.setattr(records, "TRUSTED_SECONDS", inf)
    assert log_of(desk, user, "one").status_code == 200
    refused: list[tuple[int, str]] = []

    def pop(at: str, _table: str, _rows: int) -> None:
        if at == step:
            headers = {"Strandline-User": user, "Idempotency-Key": uuid4().hex}
            answer = desk.delete(f"/v1/sessions/{user}-one/messages/last", headers=headers)
            refused.append((answer.status_code, answer.json().get("type")))

    with closing(Erasures.of_namespace(database_url=running.database_url, key_file=key_file)) as erasures:
        receipt = erasures.erase_session(f"{user}-one", on_progress=pop)
        assert refused == [(410, "urn:strandline:problem:erased")]
        assert erasures.verify(receipt, verifier_of(key_file)).is_good
        assert erasures.readmit_session(f"{user}-one").kind == "readmission"


def test_a_users_own_key_reaches_that_user_alone(
    running: RunningService, desk: httpx2.Client, user: str
) -> None:
    others = f"u-{uuid4().hex}"
    put(desk, others, "one")
    foreign = erase(desk, others).json()["number"]
    with running.client(running.make_key(user_id=user, scopes=SCOPES)) as own:
        assert erase(own, user, items_below=[["store"]]).status_code == 403
        assert own.post(f"/v1/users/{user}/readmission", json={}).status_code == 403
        assert own.get("/v1/erasures").status_code == 403
        for path in ("", "/receipt", "/verification"):
            assert own.get(f"/v1/erasures/{foreign}{path}").status_code == 404
        assert own.get(f"/v1/users/{others}/erasures").status_code == 404
        number = erase(own, user).json()["number"]
        assert own.get(f"/v1/erasures/{number}").json()["kind"] == "user"
        listed = own.get(f"/v1/users/{user}/erasures").json()["items"]
        assert [one["number"] for one in listed] == [number]
    with running.client(running.make_key("elsewhere", scopes=SCOPES)) as stranger:
        assert stranger.get(f"/v1/erasures/{number}").status_code == 404
        assert stranger.get("/v1/erasures").json()["items"] == []
    numbers = [one["number"] for one in desk.get("/v1/erasures", params={"limit": 1_000}).json()["items"]]
    assert {number, foreign} <= set(numbers)


def test_the_act_names_the_key(running: RunningService, desk: httpx2.Client, user: str) -> None:
    key = running.make_key(scopes=["erase"])
    with running.client(key) as client:
        erase(client, user)
        assert client.get(f"/v1/users/{user}/facts").status_code == 403
    acts = desk.get("/v1/admin/audit", params={"kind": "erasure", "limit": 1}).json()["items"]
    # Where a request came from may be the user's own address: it goes with the user.
    assert [(act["actor"], act["origin"]) for act in acts] == [(f"key:{key.key_id}", None)]


def test_a_process_that_ends_leaves_an_erasure_to_the_next(
    running: RunningService, desk: httpx2.Client, user: str
) -> None:
    with (
        RunningService(running.database_url) as ending,
        ending.client(ending.make_key()) as client,
        HeldBack(ending),
    ):
        begun = erase(client, user, headers={"Prefer": "wait=0"})
        assert begun.status_code == 202
    left = desk.get(begun.headers["location"]).json()
    assert (left["state"], left["is_running"]) == ("running", False)
    done = erase(desk, user)
    assert (done.status_code, done.json()["number"]) == (200, left["number"])
    assert done.json()["receipt"]["signature"] is not None


def test_a_misspelt_user_is_not_erased(running: RunningService, desk: httpx2.Client, user: str) -> None:
    """A fence for a name that nobody has would be taken for the erasure of the one who was meant."""
    user = f"{user}x"
    answer = erase(desk, user)
    assert (answer.status_code, "even_if_unknown" in answer.json()["detail"]) == (404, True)
    assert desk.get(f"/v1/users/{user}/erasures").json()["items"] == []
    anyway = erase(desk, user, even_if_unknown=True)
    assert anyway.status_code == 200, anyway.text
    again = erase(desk, user)  # its fence stands, so the name is known
    assert again.json()["number"] == anyway.json()["number"]
    with running.client(running.make_key(user_id=f"{user}-own", scopes=["erase"])) as own:
        assert erase(own, f"{user}-own").status_code == 200  # nobody misspells their own


def test_many_erasures_of_one_tenant_delay_anothers_by_their_turns(
    running: RunningService, desk: httpx2.Client, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd, is_let = f"n-{uuid4().hex}", threading.Event()
    ended: list[str] = []

    def finish(begun: BegunErasure, *rest: Any) -> Operation[ErasureReceipt]:
        yield Run(lambda: is_let.wait(60))
        receipt = yield from finish_erasing(begun, *rest)
        ended.append(begun.order.target.namespace)
        return receipt

    monkeypatch.setattr(carried_work, "finish_erasing", finish)
    with running.client(running.make_key(crowd, scopes=SCOPES)) as many:
        for number in range(12):
            body = {"even_if_unknown": True}
            assert many.post(f"/v1/users/u{number}/erasures", json=body).status_code == 202
        assert desk.post(f"/v1/users/{user}/erasures").status_code == 202
        is_let.set()
        wait_until(lambda: len(ended) == 13, timeout=60, what="all erasures")
    assert ended.index("default") <= 4, "those under way, and one or two turns"
