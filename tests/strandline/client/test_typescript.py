"""The client in TypeScript is that of the OpenAPI document, and works: run without its types."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

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
    assert expected.count("): Promise<") == len(ROUTES) + 2


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_it_puts_reads_and_is_refused(running: RunningService, tmp_path: Path) -> None:
    (tmp_path / "strandline.mjs").write_text(client(document(), typed=False), encoding="utf-8")
    (tmp_path / "script.mjs").write_text(SCRIPT, encoding="utf-8")
    key = running.make_key().key
    done = subprocess.run(
        ["node", "script.mjs", running.url, key, f"a/b {uuid4().hex}", f"ünï {uuid4().hex}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
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
