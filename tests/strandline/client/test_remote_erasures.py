"""Erasures and exports by the client: a kept line proves an erasure, and a file is whole or not there."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import pytest

from strandline import ConfigurationError, ErasedError, NotFoundError
from strandline.client import (
    AsyncRemoteAdmin,
    RemoteAdmin,
    RemoteMemory,
    RemoteService,
    Retries,
    ServiceUnavailableError,
)
from strandline.client.upkeep import exports
from strandline.client.upkeep.exports import IncompleteError, begin_file
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.erasure import make_receipt_key, read_receipts, verifier_of
from strandline.schemas.wire.keys import SCOPES
from tests.support.proxies.cutting_proxy import CuttingProxy
from tests.support.servers.databases import temporary_database
from tests.support.servers.scripted_server import Answers, answering
from tests.support.servers.service_server import RunningService

QUICK = Retries(attempts=3, base_seconds=0.001, longest_seconds=0.01)


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
def remote(running: RunningService) -> Iterator[RemoteService]:
    with RemoteService(running.url, running.make_key(scopes=SCOPES).key) as service:
        yield service


def chat(service: RemoteService, user: str) -> RemoteMemory:
    memory = RemoteMemory.from_defaults(f"s-{user}", user_id=user, service=service)
    memory.put_messages([{"role": "user", "content": text} for text in ("My boat is blue.", "It sails.")])
    return memory


def test_an_erasure_is_proved_offline(
    remote: RemoteService, user: str, key_file: Path, tmp_path: Path
) -> None:
    memory, admin = chat(remote, user), RemoteAdmin(remote)
    assert admin.plan_user(user).rows["message"] == 2
    done = admin.erase_user(user, actor="desk", wait=10, idempotency_key=user)
    assert (done.state, done.actor) == ("done", "desk")
    with pytest.raises(ErasedError):
        memory.put({"role": "user", "content": "again"})
    assert admin.erasure(done.number) == done
    kept = tmp_path / "receipts.jsonl"
    kept.write_text(admin.receipt(done.number) + "\n", encoding="utf-8")
    (receipt,) = read_receipts(kept)
    verifier = verifier_of(key_file.with_name("receipts.pem.pub"))
    assert receipt.signature is not None
    assert verifier.verify(receipt.signed_bytes(), receipt.signature)
    assert admin.verify_erasure(done.number).signature == "valid"
    assert admin.readmit_user(user).kind == "readmission"
    with pytest.raises(NotFoundError):
        admin.readmit_user(user)
    # The same key is the same erasure, although the user was let in again.
    memory.put({"role": "user", "content": "again"})
    assert admin.erase_user(user, idempotency_key=user).number == done.number
    assert [message.text for message in memory.get_all()] == ["again"]
    assert [one.kind for one in admin.erasures(user_id=user)] == ["readmission", "user"]


def test_a_session_is_erased_by_asyncio_too(remote: RemoteService, user: str) -> None:
    memory = chat(remote, user)

    async def erase() -> str:
        admin = AsyncRemoteAdmin(remote)
        planned = await admin.plan_session(memory.session_id, user_id=user)
        assert planned.rows["message"] == 2
        done = await admin.erase_session(memory.session_id, user_id=user, wait=10)
        numbers = [one.number async for one in admin.erasures(user_id=user)]
        assert numbers == [done.number]
        await remote.aclose()
        return done.state

    assert asyncio.run(erase()) == "done"
    assert RemoteAdmin(remote).readmit_session(memory.session_id, user_id=user).kind == "readmission"


def exported(admin: RemoteAdmin, user: str, path: Path) -> list[str]:
    found = admin.export_user(user, path)
    lines = path.read_text(encoding="utf-8").splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert (found.path, found.size) == (path, path.stat().st_size)
    assert {kind: kinds.count(kind) for kind in kinds if kind != "trailer"} == found.lines
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return kinds


def test_an_export_is_a_whole_file_of_its_users_own(remote: RemoteService, user: str, tmp_path: Path) -> None:
    memory, path = chat(remote, user), tmp_path / "export.jsonl"
    admin = RemoteAdmin(remote)
    kinds = exported(admin, user, path)
    assert (kinds[0], kinds[-1], kinds.count("message")) == ("header", "trailer", 2)
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="exists"):
        admin.export_user(user, path)
    with pytest.raises(ConfigurationError, match="cannot be written"):
        admin.export_user(user, tmp_path / "nowhere" / "export.jsonl")
    with pytest.raises(NotFoundError):
        admin.export_session(uuid4().hex, tmp_path / "none.jsonl", user_id=user)
    assert path.read_bytes() == before

    async def export_session() -> None:
        other = tmp_path / "session.jsonl"
        await AsyncRemoteAdmin(remote).export_session(memory.session_id, other, user_id=user)
        await remote.aclose()

    asyncio.run(export_session())
    assert {one.name for one in tmp_path.iterdir()} == {"export.jsonl", "session.jsonl"}


@pytest.mark.parametrize("whole", [1, None])
def test_one_that_breaks_off_is_begun_again_or_there_is_no_file(
    running: RunningService, remote: RemoteService, user: str, tmp_path: Path, whole: int | None
) -> None:
    chat(remote, user)
    with (
        CuttingProxy(running.url, lambda number: whole is None or number < 3) as proxy,
        RemoteService(proxy.url, running.make_key(scopes=SCOPES).key, retries=QUICK) as service,
    ):
        admin, path = RemoteAdmin(service), tmp_path / "export.jsonl"
        if whole is None:
            with pytest.raises(ServiceUnavailableError, match="there is no file"):
                admin.export_user(user, path)
            assert list(tmp_path.iterdir()) == []
        else:
            assert exported(admin, user, path)[-1] == "trailer"
        assert proxy.cut >= 2


EXPORT = {"Content-Type": "application/jsonl"}
LINES = b'{"kind":"header"}\n{"kind":"message"}\n{"kind":"message"}\n'
TRAILER = b'{"kind":"trailer","lines":{"header":1,"message":2}}\n'


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        LINES,
        LINES[18:] + TRAILER,
        LINES + TRAILER + LINES,
        LINES + TRAILER[:-1],
        LINES + b"what\n" + TRAILER,
        LINES + b"[1]\n" + TRAILER,
        LINES + b'{"kind":["message"]}\n' + TRAILER,
        LINES + b'{"kind":' + b"[" * 10_000 + b"\n" + TRAILER,
        LINES + b'{"kind":"trailer","lines":3}\n',
    ],
)
@pytest.mark.parametrize("size", [1, 1_000])
def test_lines_that_do_not_add_up_are_no_export(tmp_path: Path, stream: bytes, size: int) -> None:
    path = tmp_path / "export.jsonl"
    for content, is_whole in ((stream, False), (LINES + TRAILER, True)):
        with begin_file(path) as file:
            try:
                for start in range(0, len(content), size):
                    file.take(content[start : start + size])
                file.finish()
            except IncompleteError:
                assert not is_whole
        assert [one.name for one in tmp_path.iterdir()] == (["export.jsonl"] if is_whole else [])


def slowly() -> Iterator[bytes]:
    """An export that takes longer than refusals are waited for, and breaks off."""
    yield LINES
    Event().wait(0.6)


def test_the_time_that_an_export_takes_is_not_that_of_refusals(tmp_path: Path) -> None:
    answers = Answers((200, EXPORT, slowly), (200, EXPORT, LINES + TRAILER))
    quick = Retries(total_seconds=0.5, base_seconds=0.001)
    with answering(answers) as url, RemoteService(url, "sl_a_b", retries=quick) as service:
        assert RemoteAdmin(service).export_user("ana", tmp_path / "one.jsonl").lines["message"] == 2
        assert answers.asked == 2
        answers.asked = 0

        async def export() -> exports.ExportedFile:
            try:
                return await AsyncRemoteAdmin(service).export_user("ana", tmp_path / "two.jsonl")
            finally:
                await service.aclose()

        assert asyncio.run(export()).lines["message"] == 2
        assert answers.asked == 2


def test_the_time_that_connections_take_to_make_is_not_that_of_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is that of reading the system's certificates, a third of a second on a small machine."""
    options = RemoteService._options

    def slowly_made(service: RemoteService) -> dict[str, Any]:
        Event().wait(0.6)
        return options(service)

    monkeypatch.setattr(RemoteService, "_options", slowly_made)
    answers = Answers((200, EXPORT, LINES), (200, EXPORT, LINES + TRAILER))
    quick = Retries(total_seconds=0.5, base_seconds=0.001)
    with answering(answers) as url, RemoteService(url, "sl_a_b", retries=quick) as service:
        assert RemoteAdmin(service).export_user("ana", tmp_path / "one.jsonl").lines["message"] == 2
        answers.asked = 0

        async def export() -> exports.ExportedFile:
            try:
                return await AsyncRemoteAdmin(service).export_user("ana", tmp_path / "two.jsonl")
            finally:
                await service.aclose()

        assert asyncio.run(export()).lines["message"] == 2


def test_one_that_breaks_off_each_time_is_given_up(tmp_path: Path) -> None:
    answers = Answers((200, EXPORT, LINES))
    with (
        answering(answers) as url,
        RemoteService(url, "sl_a_b", retries=Retries(base_seconds=0.001)) as service,
        pytest.raises(ServiceUnavailableError, match=r"broke off \(5 times\), so there is no file"),
    ):
        RemoteAdmin(service).export_user("ana", tmp_path / "export.jsonl")
    assert (answers.asked, list(tmp_path.iterdir())) == (5, [])


def test_a_file_that_is_made_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"

    def meanwhile() -> Iterator[bytes]:
        yield LINES
        path.write_text("another's")
        yield TRAILER

    with (
        answering(Answers((200, EXPORT, meanwhile))) as url,
        RemoteService(url, "sl_a_b") as service,
        pytest.raises(ConfigurationError, match="made meanwhile"),
    ):
        RemoteAdmin(service).export_user("ana", path)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("export.jsonl", "another's")]


def test_a_line_without_an_end_is_no_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "MAX_LINE_BYTES", 100_000)
    answers = Answers((200, EXPORT, lambda: repeat(b"x" * 65_536)))
    with (
        answering(answers) as url,
        RemoteService(url, "sl_a_b", retries=Retries(attempts=1)) as service,
        pytest.raises(ServiceUnavailableError, match="broke off"),
    ):
        RemoteAdmin(service).export_user("ana", tmp_path / "export.jsonl")
    assert list(tmp_path.iterdir()) == []
