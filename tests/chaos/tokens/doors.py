"""The ways in: the library in this process, sync and async, the service, and a process that may be killed.

An order is a dict that says ``what``, in which ``namespace``, of which ``user`` and ``session``; what it
gives can be written as JSON, so each way in gives the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from strandline import Facts, Memory
from strandline.client import RemoteAdmin, RemoteMemory, RemoteService
from strandline.client.retrying import Retries
from strandline.erasure import Erasures
from strandline.schemas import errors
from tests.support.processes import forking

ROOT = Path(__file__).resolve().parent.parent.parent.parent
LIMITS: dict[str, Any] = {"token_limit": 500, "chat_history_token_ratio": 0.3, "token_flush_size": 40}
HTTP_ERASURE_SECONDS = 60.0

Order = Mapping[str, Any]
Call = Callable[..., Any]


class ProcessKilledError(Exception):
    """The process that carried the order out was killed, so nobody knows the outcome."""


class Door(Protocol):
    name: str

    def ask(self, order: Order) -> Any: ...


def carry_out(memory: Call, facts: Call, order: Order) -> Any:
    """``memory`` and ``facts`` call a method by its name."""
    match order["what"]:
        case "put":
            return memory("put_messages", order["messages"])
        case "import":
            memory("import_messages", order["messages"])
            return [None for _message in order["messages"]]
        case "flush":
            return len(memory("flush", all=True))
        case "rewind":
            return list(memory("rewind", order["seq"], idempotency_key=order["key"]).seqs)
        case "replace":
            given = memory("replace", order["seq"], order["content"], idempotency_key=order["key"])
            return list(given.seqs)
        case "pop":
            message = memory("pop")
            return [] if message is None else [message.seq]
        case "reset":
            return memory("reset", derived=order["derived"])
        case "fork":
            memory("fork", order["copy"], through_seq=order["through"])
            return None
        case "history":
            return [(one.seq, one.text) for one in memory("get_all")]
        case "context":
            context = memory("get", order["question"])
            return {
                "all": "\n".join(one.text for one in context),
                "facts": [one.text for one in context.facts],
                "log": [(one.seq, one.text) for one in (*context.tail, *context.window[:-1])],
            }
        case "search":
            hits = memory("search", order["question"], limit=30, scope="owner", kinds=("message",))
            return [str(one) for one in hits]
        case "facts":
            return [(str(one.fact_id), one.text) for one in facts("list", limit=1_000)]
        case "find":
            return [one.text for one in facts("search", order["question"], limit=50)]
        case "add":
            return str(facts("add", order["content"]).fact_id)
        case "reword":
            return facts("replace", order["fact"], order["content"]) is not None
        case "delete":
            return facts("delete", order["fact"])
        case "clear":
            return facts("clear")
    raise AssertionError(order)


class Library:
    """The library in this process; ``is_async``: by its twins that are awaited, on a loop of its own."""

    def __init__(self, url: str, *, is_async: bool = False) -> None:
        self.name = "async" if is_async else "sync"
        self._url = url
        self._loop = asyncio.new_event_loop() if is_async else None
        if self._loop:
            self._thread = threading.Thread(target=self._loop.run_forever, name="loop", daemon=True)
            self._thread.start()

    def ask(self, order: Order) -> Any:
        owner = {"user_id": order["user"], "namespace": order["namespace"], "database_url": self._url}
        memory = Memory.from_defaults(order.get("session") or "none", **owner, **LIMITS)
        return carry_out(self._caller(memory), self._caller(Facts.for_owner(**owner)), order)

    def stop(self) -> None:
        """Close what this process shares; with the loop, if it has one, which ends."""
        memory = Memory.from_defaults("none", database_url=self._url)
        if self._loop is None:
            memory.close()
        else:
            asyncio.run_coroutine_threadsafe(memory.aclose(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _caller(self, face: Any) -> Call:
        def call(name: str, *parts: Any, **more: Any) -> Any:
            if self._loop is None or name == "import_messages":  # which has no such twin
                return getattr(face, name)(*parts, **more)
            awaited = getattr(face, f"a{name}")(*parts, **more)
            return asyncio.run_coroutine_threadsafe(awaited, self._loop).result()

        return call


class Remote:
    """The service, at the URL that is given for each call; ``keys``: by namespace."""

    name = "http"

    def __init__(self, url: str, keys: Mapping[str, str]) -> None:
        retries = Retries(total_seconds=20)
        self._services = {name: RemoteService(url, key, retries=retries) for name, key in keys.items()}

    def ask(self, order: Order) -> Any:
        service = self._services[order["namespace"]]
        session = order.get("session") or "none"
        memory = RemoteMemory.from_defaults(session, user_id=order["user"], service=service, **LIMITS)
        return carry_out(
            lambda name, *parts, **more: getattr(memory, name)(*parts, **more),
            lambda name, *parts, **more: getattr(memory.facts, name)(*parts, **more),
            order,
        )

    def stop(self) -> None:
        for service in self._services.values():
            service.close()

    def erase(self, order: Order) -> dict[str, Any]:
        """Erase as an operator does: ask, and look until it is done."""
        admin = RemoteAdmin(self._services[order["namespace"]])
        ends = time.monotonic() + HTTP_ERASURE_SECONDS
        if order["what"] == "erase session":
            erasure = admin.erase_session(order["session"], user_id=order["user"], wait=10)
        else:
            erasure = admin.erase_user(order["user"], wait=10, even_if_unknown=True)
        while erasure.state == "running":
            if time.monotonic() > ends:
                raise errors.OutcomeUnknownError(f"Erasure {erasure.number} is not done: {erasure}.")
            time.sleep(0.3)
            erasure = admin.erasure(erasure.number)
        assert erasure.receipt is not None
        return as_dict(admin.receipt(erasure.number))


class KilledProcess:
    """A producer's process; ``dies_after`` in an order says after how many seconds it is killed, if it is.

    Of an erasure ``dies_at_step`` says at which of its transactions the process ends itself at once.
    """

    name = "process"

    def __init__(self, url: str, environment: Mapping[str, str]) -> None:
        self._environment = {**os.environ, **environment, "STRANDLINE_DATABASE_URL": url}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self.kills = 0

    def ask(self, order: Order) -> Any:
        with self._lock:
            process = self._alive()
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(dict(order)) + "\n")
            process.stdin.flush()
            if "dies_after" in order:
                time.sleep(order["dies_after"])
                process.kill()
            line = process.stdout.readline()
            if not line or "dies_after" in order:
                self._end()
            if not line:
                self.kills += 1
                raise ProcessKilledError
        answer = json.loads(line)
        if "error" in answer:
            raise TellsError(answer["error"], answer["text"])
        return answer["value"]

    def stop(self) -> None:
        with self._lock:
            self._end()

    def _alive(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = forking.Popen(
                [sys.executable, "-m", "tests.chaos.tokens.doors"],
                env=self._environment,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process = None


class TellsError(Exception):
    """An error that a process told of; ``kinds``: the names of its class and of those above."""

    def __init__(self, kinds: list[str], text: str) -> None:
        super().__init__(text)
        self.kinds = kinds


def as_dict(text: str) -> dict[str, Any]:
    given: dict[str, Any] = json.loads(text)
    return given


def kinds_of(error: BaseException) -> list[str]:
    return error.kinds if isinstance(error, TellsError) else [one.__name__ for one in type(error).__mro__]


def erase(order: Order, url: str | None = None) -> dict[str, Any]:
    """Erase, or readmit, by the library; the receipt."""
    erasures = Erasures.of_namespace(order["namespace"], database_url=url)
    left = order.get("dies_at_step", 1_000_000)

    def end(_step: str, _table: str, _rows: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    match order["what"]:
        case "erase user":
            receipt = erasures.erase_user(order["user"], on_progress=end)
        case "erase session":
            receipt = erasures.erase_session(order["session"], on_progress=end)
        case "readmit user":
            receipt = erasures.readmit_user(order["user"])
        case _:
            receipt = erasures.readmit_session(order["session"])
    return as_dict(receipt.to_json())


def main() -> None:
    door = Library(os.environ["STRANDLINE_DATABASE_URL"])
    for line in sys.stdin:
        order = json.loads(line)
        try:
            value = erase(order) if order["what"].startswith(("erase", "readmit")) else door.ask(order)
            answer = {"value": value}
        except Exception as error:  # noqa: BLE001 - the outermost edge of this process: it is told
            answer = {"error": kinds_of(error), "text": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
