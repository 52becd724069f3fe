"""The client in TypeScript is that of the OpenAPI document, and works: run without its types."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.proxies.cutting_proxy import CuttingProxy
from tests.support.servers.scripted_server import Answers, answering, event, position, problem
from tests.support.servers.service_server import RunningService
from tools.typescript import CLIENT, DOCUMENT, ROUTES, client

SCRIPT = """
import { Strandline, StrandlineError } from "./strandline.mjs";

const [url, key, session, user] = process.argv.slice(2);
const strandline = new Strandline(url + "/", key, user);
const said = { messages: [{ role: "user", content: "I moved to Lisbon." }] };
const once = crypto.randomUUID();
const puts = [];
for (const _ of "ab") puts.push(await strandline.putMessages(session, said, { idempotencyKey: once }));
const fact = await strandline.addFact(user, { text: "Lives in Lisbon.", topics: ["home"] });
const context = await strandline.readContext(session, { input: "Where do I live?" });
const log = await strandline.listMessages(session, { limit: 1 });
const listed = await strandline.listFacts(user, { topic: ["home", "work"] });
const refusals = [];
for (const refused of [
  () => strandline.replaceFact(user, fact.fact_id, { text: "Lives in Porto." }, { version: "old" }),
  () => strandline.readContext("unknown", {}),
  () => new Strandline(url, "sl_wrong_key").whoami(),
]) {
  try {
    await refused();
  } catch (error) {
    refusals.push([error instanceof StrandlineError, error.problem.type]);
  }
}
const version = fact.version;
const changed = await strandline.replaceFact(user, fact.fact_id, { text: "Lives in Porto." }, { version });
const removed = await strandline.deleteFact(user, fact.fact_id);
const last = await strandline.popMessage(session);
const shown = String(strandline) + JSON.stringify(strandline);
const told = { puts, context, log, listed, refusals, changed, removed: removed === undefined, last, shown };
console.log(JSON.stringify(told));
"""

# Through a proxy that cuts answers: what the four rules of docs/recipes.md promise.
LOSING = """
import { Strandline } from "./strandline.mjs";

const [url, key, session, user] = process.argv.slice(2);
const strandline = new Strandline(url, key, user, { baseMs: 1, longestMs: 5 });
const policy = { deliver: "turn" };
for (let n = 1; n <= 9; n++) {
  const message = { role: "user", content: `n${n}`, refusal: "no" };
  await strandline.putMessages(session, { messages: [message], policy });
}
const log = await strandline.listMessages(session);
const context = await strandline.readContext(session, { form: "openai" });
const found = await strandline.getSession(session);
console.log(JSON.stringify({ log: log.items, context: context.messages, policy: found.session.policy }));
"""

# What happens, what is kept, and what goes.
STREAMS = """
import { Strandline } from "./strandline.mjs";

const [url, key, session, user] = process.argv.slice(2);
const strandline = new Strandline(url, key, user);
const first = async (lastEventId) => {
  for await (const event of strandline.sessionEvents(session, { lastEventId })) {
    if (event.kind === "flushed") return event;
  }
};
const flushed = async (text) => {
  await strandline.putMessages(session, { messages: [{ role: "user", content: text }] });
  return (await strandline.flushSession(session, { all: true })).events[0];
};
const ids = [await flushed("one")];
const one = await first("0");
ids.push(await flushed("two"));
const seen = [];
for await (const event of strandline.sessionEvents(session, { lastEventId: one.id })) {
  seen.push(event.event_id);
  if (event.event_id === ids[1]) break;
}
const lines = [];
for await (const line of strandline.exportUser(user)) lines.push(line.kind);
let erasure = await strandline.eraseUser(user, { actor: "desk" }, { waitSeconds: 20 });
const receipt = await strandline.getReceipt(erasure.number);
const late = { messages: [{ role: "user", content: "three" }] };
const gone = await strandline.putMessages(session, late).catch((error) => error.problem.status);
console.log(JSON.stringify({ ids, one, seen, lines, state: erasure.state, receipt, gone }));
"""

# Against a server whose answers are written beforehand.
WAITING = """
import { NoAnswerError, Strandline, StrandlineError } from "./strandline.mjs";

const [restarting, streaming, stopped, silent, refusing, cut] = process.argv.slice(2);
const quick = { baseMs: 1, longestMs: 2 };
const at = (url, more) => new Strandline(url, "sl_a_b", "ana", { ...quick, ...more });
const said = { messages: [{ role: "user", content: "hello" }] };
const failed = async (promise) => {
  const error = await promise.then(() => null, (one) => one);
  return [error.constructor.name, error.mayBeDone ?? null];
};
const put = await at(restarting).putMessages("a", said);
const events = [];
for await (const event of at(streaming).sessionEvents("a", { lastEventId: "4" })) {
  if (events.push(event.id) === 3) break;
}
const signal = AbortSignal.abort();
const controller = new AbortController();
const aborted = failed(at(silent).putMessages("a", said, { signal: controller.signal }));
controller.abort();
let broken;
try {
  for await (const line of at(cut).exportUser("ana"));
} catch (error) {
  broken = error.constructor.name;
}
const wrong = [
  await failed((async () => at(refusing).getSession(".."))()),
  await failed((async () => new Strandline(refusing, "sl_a_b", " ana").whoami())()),
];
console.log(JSON.stringify({
  put, events, broken, wrong,
  away: await failed(at(stopped, { retryMs: 50 }).putMessages("a", said)),
  late: await failed(at(silent, { retryMs: 0 }).putMessages("a", said, { timeoutMs: 30 })),
  read: await failed(at(silent, { retryMs: 0 }).listMessages("a", {}, { timeoutMs: 30 })),
  once: await failed(at(silent).replaceFact("ana", "f", { text: "x" }, { timeoutMs: 30 })),
  refused: await failed(at(refusing).putMessages("a", said)),
  aborted: await aborted,
  never: await failed(at(silent).putMessages("a", said, { signal }).catch((error) => Promise.reject(error))),
}));
process.exit(0);
"""


def document() -> dict[str, object]:
    return dict(json.loads(DOCUMENT.read_text(encoding="utf-8")))


def test_the_typescript_client_is_that_of_the_document() -> None:
    expected = client(document())
    assert CLIENT.read_text(encoding="utf-8") == expected, "run `python -m tools.typescript`"
    assert not {"«", "»"} & set(expected + client(document(), typed=False))
    calls = re.findall(r"^  \w+\(.*\): (?:Promise|AsyncGenerator)<", expected, re.MULTILINE)
    assert len(calls) == len(ROUTES)


needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def run(script: str, folder: Path, *arguments: str) -> Any:
    """What a script printed, that uses the client without its types."""
    (folder / "strandline.mjs").write_text(client(document(), typed=False), encoding="utf-8")
    (folder / "script.mjs").write_text(script, encoding="utf-8")
    done = subprocess.run(
        ["node", "script.mjs", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@needs_node
def test_it_puts_reads_and_is_refused(running: RunningService, tmp_path: Path) -> None:
    key = running.make_key().key
    told = run(SCRIPT, tmp_path, running.url, key, f"a/b {uuid4().hex}", f"ünï {uuid4().hex}")
    assert told["puts"][0] == told["puts"][1]
    assert told["context"]["facts"][0]["text"] == "Lives in Lisbon."
    assert told["log"]["items"][0]["content"] == told["last"]["message"]["content"] == "I moved to Lisbon."
    assert [fact["text"] for fact in told["listed"]["items"]] == ["Lives in Lisbon."]
    assert told["refusals"] == [
        [True, "urn:strandline:problem:other-revision"],
        [True, "urn:strandline:problem:not-found"],
        [True, "urn:strandline:problem:unauthenticated"],
    ]
    assert told["changed"]["text"] == "Lives in Porto."
    assert told["removed"] is True
    assert key not in told["shown"]


@needs_node
def test_answers_that_are_cut_are_asked_for_again_and_nothing_is_doubled(
    running: RunningService, tmp_path: Path
) -> None:
    with CuttingProxy(running.url, lambda number: number % 3 == 2) as proxy:
        told = run(LOSING, tmp_path, proxy.url, running.make_key().key, uuid4().hex, uuid4().hex)
        assert proxy.cut >= 5
    said = [f"n{n}" for n in range(1, 10)]
    assert [(one["content"], one["extra"]) for one in told["log"]] == [
        (one, {"refusal": "no"}) for one in said
    ]
    words = [[{"type": "text", "text": text} for text in (one, "no")] for one in said]
    assert told["context"] == [{"role": "user", "content": one} for one in words], "users' have no such field"
    assert told["policy"]["deliver"] == "turn"


@needs_node
def test_events_exports_and_erasures(running: RunningService, tmp_path: Path) -> None:
    told = run(STREAMS, tmp_path, running.url, running.make_key().key, uuid4().hex, uuid4().hex)
    assert (told["one"]["kind"], told["one"]["event_id"]) == ("flushed", told["ids"][0])
    assert told["seen"][-1] == told["ids"][1]
    assert (told["lines"][0], told["lines"][-1]) == ("header", "trailer")
    assert told["lines"].count("message") == 2
    assert told["state"] == "done"
    assert json.loads(told["receipt"])["kind"]
    assert told["gone"] == 410


@needs_node
def test_it_waits_for_a_service_that_restarts_and_says_what_may_be_done(tmp_path: Path) -> None:
    away = [problem("stopping", 503, **{"Retry-After": "0"})] * 12
    done = (201, {"Content-Type": "application/json"}, b'{"messages": [{"id": "m", "seq": 7}]}')
    restarting = Answers(*away, (502, {}, b"<html>a proxy's</html>"), done)
    streaming = Answers(event(5), *away, event(6), position(7), event(10))
    refusing = Answers(problem("invalid", 422))
    cut = Answers((200, {"Content-Type": "application/jsonl"}, b'{"kind": "header"}\n'))
    with (
        answering(restarting) as first,
        answering(streaming) as second,
        answering(refusing) as third,
        answering(cut) as fourth,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        with socket.create_server(("127.0.0.1", 0)) as free:
            stopped = f"http://127.0.0.1:{free.getsockname()[1]}"
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        told = run(WAITING, tmp_path, first, second, stopped, url, third, fourth)
    assert told["put"]["messages"][0]["seq"] == 7
    assert len({headers["Idempotency-Key"] for headers in restarting.headers}) == 1
    assert told["events"] == ["5", "6", "10"]
    assert [headers["Last-Event-ID"] for headers in streaming.headers] == ["4", *["5"] * 13, "6", "9"]
    assert told["broken"] == "NoAnswerError"
    assert told["away"] == ["NoAnswerError", False]
    assert told["late"] == ["NoAnswerError", True]
    assert told["read"] == ["NoAnswerError", False]
    assert told["once"] == ["NoAnswerError", True]
    assert told["refused"] == ["StrandlineError", False]
    assert refusing.asked == 1
    assert told["wrong"] == [["TypeError", None]] * 2
    assert told["aborted"] == ["DOMException", None]
    assert told["never"] == ["DOMException", None]
