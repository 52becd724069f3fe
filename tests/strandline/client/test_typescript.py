"""The client in TypeScript is that of the OpenAPI document, and works: run without its types."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.strandline.client.test_retrying import DONE, KEY, Answers, answering, problem
from tests.support.servers.service_server import RunningService
from tools.typescript import CLIENT, DOCUMENT, ROUTES, client

SCRIPT = """
import { Strandline, StrandlineError } from "./strandline.mjs";

const [url, key, session, user] = process.argv.slice(2);
const strandline = new Strandline(url + "/", key, user);
const said = { messages: [{ role: "user", content: "I moved to Lisbon." }] };
const once = crypto.randomUUID();
const puts = [];
for (const _ of "ab") puts.push(await strandline.putMessages(session, said, once));
const fact = await strandline.addFact(user, { text: "Lives in Lisbon.", topics: ["home"] });
const context = await strandline.readContext(session, { input: "Where do I live?" });
const log = await strandline.listMessages(session, { limit: 1 });
const listed = await strandline.listFacts(user, { topic: ["home", "work"] });
const refusals = [];
for (const refused of [
  () => strandline.replaceFact(user, fact.fact_id, { text: "Lives in Porto." }, "old"),
  () => strandline.readContext("unknown", {}),
  () => new Strandline(url, "sl_wrong_key").whoami(),
]) {
  try {
    await refused();
  } catch (error) {
    refusals.push([error instanceof StrandlineError, error.problem.type]);
  }
}
const changed = await strandline.replaceFact(user, fact.fact_id, { text: "Lives in Porto." }, fact.version);
const removed = await strandline.deleteFact(user, fact.fact_id);
const last = await strandline.popMessage(session);
const shown = String(strandline) + JSON.stringify(strandline);
const told = { puts, context, log, listed, refusals, changed, removed: removed === undefined, last, shown };
console.log(JSON.stringify(told));
"""


def document() -> dict[str, object]:
    return dict(json.loads(DOCUMENT.read_text(encoding="utf-8")))


def test_the_typescript_client_is_that_of_the_document() -> None:
    expected = client(document())
    assert CLIENT.read_text(encoding="utf-8") == expected, "run `python -m tools.typescript`"
    assert not {"«", "»"} & set(expected + client(document(), typed=False))
    assert expected.count("  return this.#send(") == len(ROUTES)


needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")


def run_script(folder: Path, script: str, *arguments: str) -> Any:
    """What a script, which imports the client without its types, prints as JSON."""
    (folder / "strandline.mjs").write_text(client(document(), typed=False), encoding="utf-8")
    (folder / "script.mjs").write_text(script, encoding="utf-8")
    done = subprocess.run(
        ["node", "script.mjs", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@needs_node
def test_it_puts_reads_and_is_refused(running: RunningService, tmp_path: Path) -> None:
    key = running.make_key().key
    names = f"a/b {uuid4().hex}", f"ünï {uuid4().hex}"
    told = run_script(tmp_path, SCRIPT, running.url, key, *names)
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


REPEATS = """
import { Strandline, toOpenAI } from "./strandline.mjs";

const [url, key] = process.argv.slice(2);
const strandline = new Strandline(url, key, "ana");
const put = await strandline.putMessages("s", { messages: [{ role: "user", content: "Hello" }] });
let refusal = null;
try {
  await strandline.changePolicy("s", {});
} catch (error) {
  refusal = error.problem.status;
}
const places = { id: "m", seq: 1, tokens: 3, name: null };
const message = { role: "assistant", content: null, ...places, extra: { refusal: "No." } };
console.log(JSON.stringify({ put, refusal, sent: toOpenAI(message) }));
"""


@needs_node
def test_it_repeats_what_may_be_repeated_under_one_key(tmp_path: Path) -> None:
    answers = Answers(
        problem("busy", 503, **{"Retry-After": "0"}),
        (502, {}, b"<html>a proxy's</html>"),
        problem("outcome-unknown", 503),
        DONE,
        problem("outcome-unknown", 503),  # of a change without a key
    )
    with answering(answers) as url:
        told = run_script(tmp_path, REPEATS, url, KEY)
    assert (told["put"]["messages"][0]["seq"], told["refusal"]) == (7, 503)
    keys = [headers.get("Idempotency-Key") for headers in answers.headers]
    assert keys == [*([keys[0]] * 4), None] and keys[0] is not None
    assert told["sent"] == {"role": "assistant", "content": None, "refusal": "No."}


LISTENS = """
import { Strandline } from "./strandline.mjs";

const [url, key] = process.argv.slice(2);
const came = [];
for await (const event of new Strandline(url, key).events("s")) {
  came.push([event.id, event.event, event.data.seq]);
  if (came.length === 3) break;
}
console.log(JSON.stringify(came));
"""


@needs_node
def test_a_stream_that_is_cut_goes_on_behind_its_last_event(tmp_path: Path) -> None:
    def stream(*events: tuple[int, str]) -> tuple[int, dict[str, str], bytes]:
        blocks = [f'id: {at}\nevent: {kind}\ndata: {{"seq": {at}}}\n\n' for at, kind in events]
        return 200, {"Content-Type": "text/event-stream"}, "".join([": hello\n\n", *blocks]).encode()

    answers = Answers(
        stream((1, "flushed"), (2, "covered")), problem("stopping", 503), stream((3, "flushed"))
    )
    with answering(answers) as url:
        came = run_script(tmp_path, LISTENS, url, KEY)
    assert came == [["1", "flushed", 1], ["2", "covered", 2], ["3", "flushed", 3]]
    assert [headers.get("Last-Event-ID") for headers in answers.headers] == [None, "2", "2"]
