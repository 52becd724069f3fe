"""A real HTTP server that speaks OpenAI's protocol, for tests and for running without a model.

Answers are derived from the request, always the same way: one fact per user line, duplicates by equal
text, a summary that joins, and vectors of hashed words.  How it misbehaves is set at run time, from the
same process with ``behave`` or from any other with ``POST /control`` (the fields of ``Behaviour`` as
JSON; ``{}`` means well).  ``GET /control`` gives the number of requests so far, and of those being answered.

    python -m tests.support.servers.model_server --port 0 --latency 2
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import select
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

MAX_RECORDED = 10_000
DEFAULT_DIMENSIONS = 256


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request as it arrived; ``at`` is monotonic time in seconds."""

    path: str
    authorization: str
    body: dict[str, Any]
    at: float
    accept_encoding: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Raw:
    """A responder's return value that decides the whole HTTP response.

    With another ``Content-Length`` than the body's, the connection ends in the middle.
    """

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


Responder = Callable[[RecordedRequest], "str | dict[str, Any] | Raw | None"]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How the server answers ``POST /v1/…``; the defaults are those of a good server.

    Attributes:
        latency: seconds to wait before anything else.
        status: answer with this error instead; ``message``, ``code`` and ``param`` go into its body, and
            ``retry_after`` into its header, as given.
        times: after this many requests the server is good again; None: until told otherwise.
        path: only requests whose path ends in this are concerned.
        hang: never answer; the connection stays open until the client or the server closes.
        drip: send the body one byte per this many seconds.
        pad: send so many blanks before the body, which is as good JSON as without.
        truncate: the model's text ends in the middle; ``cut_body`` does that to the HTTP body.
        wrong_schema: the model's text is JSON of another form.
        refuse_formats: response formats (``json_schema``, ``json_object``) answered with 400.
        refuse_temperature: answer 400 to requests with a temperature.
        finish_reason, refusal: as in a chat completion.
        responder: makes the model's text (str), the body (dict) or everything (``Raw``); None: as usual.
    """

    latency: float = 0.0
    status: int | None = None
    message: str = "told to fail"
    code: str | None = None
    param: str | None = None
    retry_after: str | None = None
    times: int | None = None
    path: str = ""
    hang: bool = False
    drip: float = 0.0
    pad: int = 0
    truncate: bool = False
    cut_body: bool = False
    wrong_schema: bool = False
    refuse_formats: Sequence[str] = ()
    refuse_temperature: bool = False
    finish_reason: str = "stop"
    refusal: str | None = None
    responder: Responder | None = None


class ModelServer:
    """The server as a context manager; listens on loopback, on a free port unless one is given.

    ``keep`` is how many of the last requests are kept for ``requests``.
    """

    def __init__(self, *, port: int = 0, latency: float = 0.0, keep: int = MAX_RECORDED) -> None:
        self._lock = threading.Lock()
        self._behaviour = Behaviour(latency=latency)
        self._left: int | None = None
        self._recorded: deque[RecordedRequest] = deque(maxlen=keep)
        self.received = 0
        self.answered = 0
        self.closing = threading.Event()
        self._http = _Server(("127.0.0.1", port), _Handler)
        self._http.model_server = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def base_url(self) -> str:
        """What ``OPENAI_BASE_URL`` is to be."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def requests(self) -> list[RecordedRequest]:
        """The last POST requests, oldest first; ``received`` counts all of them."""
        with self._lock:
            return list(self._recorded)

    def behave(self, **changes: Any) -> None:
        """Behave as ``changes`` (fields of ``Behaviour``) say from the next request on, else well.

        Raises:
            TypeError: there is no such field.
        """
        behaviour = Behaviour(**changes)
        with self._lock:
            self._behaviour, self._left = behaviour, behaviour.times

    def start(self) -> ModelServer:
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop listening and end what hangs."""
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> ModelServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def count_answered(self) -> None:
        with self._lock:
            self.answered += 1

    def record(self, request: RecordedRequest) -> Behaviour:
        """Note a request and say how to answer it."""
        with self._lock:
            self._recorded.append(request)
            self.received += 1
            if not request.path.endswith(self._behaviour.path) or self._left == 0:
                return Behaviour()
            if self._left is not None:
                self._left -= 1
            return self._behaviour


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    model_server: ModelServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up early are part of the tests, and no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._send(200, {"object": "list", "data": [{"id": "stand-in", "object": "model"}]})
        elif self.path == "/control":
            server = self.server.model_server
            self._send(200, {"requests": server.received, "open": server.received - server.answered})
        else:
            self._send(404, _error("no such path"))

    def do_POST(self) -> None:
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        except ValueError:
            self._send(400, _error("the body is not JSON"))
            return
        if self.path == "/control":
            self._control(body)
            return
        sent = self.headers
        request = RecordedRequest(
            self.path,
            sent.get("Authorization", ""),
            body,
            time.monotonic(),
            sent.get("Accept-Encoding", ""),
            {name.lower(): value for name, value in sent.items()},
        )
        behaviour = self.server.model_server.record(request)
        try:
            self._answer(request, behaviour)
        finally:
            self.server.model_server.count_answered()

    def _control(self, body: dict[str, Any]) -> None:
        try:
            self.server.model_server.behave(**body)
        except TypeError as error:
            self._send(400, _error(str(error)))
        else:
            self._send(200, {"ok": True})

    def _answer(self, request: RecordedRequest, behaviour: Behaviour) -> None:
        closing = self.server.model_server.closing
        if behaviour.hang:
            while not closing.wait(0.1) and not _is_gone(self.connection):
                pass
            self.close_connection = True
            return
        if behaviour.latency:
            closing.wait(behaviour.latency)
        response = _response(request, behaviour)
        body = response.body[: len(response.body) // 2] if behaviour.cut_body else response.body
        self._send_bytes(response.status, b" " * behaviour.pad + body, response.headers, behaviour.drip)

    def _send(self, status: int, body: Mapping[str, Any]) -> None:
        self._send_bytes(status, json.dumps(body).encode())

    def _send_bytes(
        self, status: int, body: bytes, headers: Sequence[tuple[str, str]] = (), drip: float = 0.0
    ) -> None:
        self.send_response(status)
        usual = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        sent = {**usual, **dict(headers)}
        for name, value in sent.items():
            self.send_header(name, value)
        self.close_connection = self.close_connection or sent["Content-Length"] != usual["Content-Length"]
        if not drip:
            self._headers_buffer.append(b"\r\n" + body)  # type: ignore[attr-defined]
            self.flush_headers()
            return
        self.end_headers()
        for byte in body:
            self.wfile.write(bytes((byte,)))
            if self.server.model_server.closing.wait(drip):
                return


def _response(request: RecordedRequest, behaviour: Behaviour) -> Raw:
    if behaviour.status is not None:
        return _failure(behaviour)
    if (refused := _refused(request.body, behaviour)) is not None:
        return _json(400, _error(f"{refused} is not supported by this model", param=refused))
    made = behaviour.responder(request) if behaviour.responder else None
    if isinstance(made, Raw):
        return made
    if isinstance(made, dict):
        return _json(200, made)
    path = request.path.partition("?")[0]
    if path == "/v1/embeddings":
        return _json(200, _embeddings(request.body))
    if path == "/v1/chat/completions":
        completion = _completion(request.body, behaviour, made)
        return streamed(completion) if request.body.get("stream") else _json(200, completion)
    return _json(404, _error("no such path"))


def streamed(completion: Mapping[str, Any]) -> Raw:
    """A completion as a stream of chunks: its text in pieces, why it ended, and what it took."""
    (choice,) = completion["choices"]
    text = choice["message"]["content"] or ""
    middle = len(text) // 2
    deltas = [{"role": "assistant", "content": text[:middle]}, {"content": text[middle:]}]
    if choice["message"]["refusal"]:
        deltas = [{"role": "assistant", "refusal": choice["message"]["refusal"]}]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks += [
        {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
        {"choices": [], "usage": completion["usage"]},
    ]
    events = [f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks]
    body = "".join([*events, "data: [DONE]\n\n"]).encode()
    return Raw(200, body, (("Content-Type", "text/event-stream"),))


def _failure(behaviour: Behaviour) -> Raw:
    headers = () if behaviour.retry_after is None else (("Retry-After", behaviour.retry_after),)
    body = _error(behaviour.message, code=behaviour.code, param=behaviour.param)
    return Raw(behaviour.status or 500, json.dumps(body).encode(), headers)


def _is_gone(connection: socket.socket) -> bool:
    """Whether the client has hung up; it sends nothing while it waits."""
    ready, _, _ = select.select([connection], [], [], 0)
    try:
        return bool(ready) and not connection.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def _refused(body: Mapping[str, Any], behaviour: Behaviour) -> str | None:
    if body.get("response_format", {}).get("type") in behaviour.refuse_formats:
        return "response_format"
    if behaviour.refuse_temperature and "temperature" in body:
        return "temperature"
    return None


def _json(status: int, body: Mapping[str, Any]) -> Raw:
    return Raw(status, json.dumps(body).encode())


def _error(message: str, *, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": code, "param": param}}


def _completion(body: Mapping[str, Any], behaviour: Behaviour, made: str | None) -> dict[str, Any]:
    prompt = "\n".join(str(message["content"]) for message in body["messages"])
    text = json.dumps(answer_to(prompt), ensure_ascii=False) if made is None else made
    if behaviour.wrong_schema:
        text = '{"unexpected": [1, 2, 3]}'
    if behaviour.truncate:
        text = text[: len(text) // 2]
    message = {
        "role": "assistant",
        "content": None if behaviour.refusal else text,
        "refusal": behaviour.refusal,
    }
    return {
        "id": "chatcmpl-stand-in",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [{"index": 0, "finish_reason": behaviour.finish_reason, "message": message}],
        "usage": _usage(len(prompt) // 4, len(text) // 4),
    }


def answer_to(prompt: str) -> dict[str, Any]:
    """The answer to a rendered prompt: which task it is shows in its sections."""
    if candidates := _section(prompt, "candidates"):
        return _merge(_section(prompt, "known"), candidates)
    if so_far := _section(prompt, "summary_so_far"):
        joined = " ".join(row["text"] for row in _section(prompt, "transcript"))
        return {"summary": f"{so_far[0]} {joined}".strip()[-2000:] or "nothing yet", "topics": ["talk"]}
    if question := _section(prompt, "question"):
        sought, rows = _words(question[0]), _section(prompt, "facts")
        return {"facts": [row["n"] for row in rows if sought & _words(row["text"])]}
    if instruction := _section(prompt, "instruction"):
        return {"operations": _instructed(instruction[0], _section(prompt, "facts"))}
    if facts := _section(prompt, "facts"):
        return {"facts": [], "kept": [row["n"] for row in facts]}
    return {"facts": [_fact(row) for row in _section(prompt, "transcript") if "user" in row["by"]]}


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def _fact(row: Mapping[str, Any]) -> dict[str, Any]:
    topics = row["text"].casefold().split()[:1]
    return {
        "text": row["text"],
        "messages": [row["n"]],
        "topics": topics,
        "said_by": row["by"],
        "about_date": None,
    }


def _instructed(instruction: str, facts: Sequence[Any]) -> list[dict[str, Any]]:
    """ "forget X": every fact with X in it goes; else what is asked for is a fact."""
    verb, _, what = instruction.partition(" ")
    if verb != "forget":
        return [{"op": "add", "fact": None, "text": instruction}]
    return [{"op": "delete", "fact": row["n"], "text": None} for row in facts if what in row["text"]]


def _merge(known: Sequence[Any], candidates: Sequence[Any]) -> dict[str, Any]:
    by_text: dict[str, int | None] = {row["text"]: row["n"] for row in known}
    operations = []
    for row in candidates:
        repeated = row["text"] in by_text
        fact = by_text.get(row["text"])
        op = "duplicate" if repeated else "add"
        operations.append({"op": op, "candidate": row["n"], "fact": fact, "text": None})
        by_text.setdefault(row["text"], None)
    return {"operations": operations}


def _section(prompt: str, tag: str) -> list[Any]:
    """The JSON rows of the last section of that name whose tags are on separate lines."""
    found = re.findall(rf"^<{tag}>\n(.*?)^</{tag}>$", prompt, re.DOTALL | re.MULTILINE)
    return [json.loads(row) for row in found[-1].splitlines()] if found else []


def _embeddings(body: Mapping[str, Any]) -> dict[str, Any]:
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    size = body.get("dimensions") or DEFAULT_DIMENSIONS
    data = [
        {"object": "embedding", "index": index, "embedding": hashed_vector(text, size)}
        for index, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": sum(map(len, texts)) // 4, "total_tokens": sum(map(len, texts)) // 4}
    return {"object": "list", "model": body["model"], "data": data, "usage": usage}


def hashed_vector(text: str, dimensions: int) -> list[float]:
    """A bag of words: each word adds one at a place given by its hash; normalised."""
    vector = [0.0] * dimensions
    for word in re.findall(r"\w+", text.casefold()) or [""]:
        place = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big") % dimensions
        vector[place] += 1.0
    length = math.hypot(*vector)
    return [component / length for component in vector]


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def main() -> None:
    """Run until SIGTERM or SIGINT; prints the base URL on one line once it listens."""
    parser = argparse.ArgumentParser(description="A stand-in for a model server, on loopback.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--keep", type=int, default=MAX_RECORDED, help="requests to keep")
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with ModelServer(port=options.port, latency=options.latency, keep=options.keep) as server:
        print(server.base_url, flush=True)
        stop.wait()


if __name__ == "__main__":
    main()
