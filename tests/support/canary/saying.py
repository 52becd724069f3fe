"""A mark in each field that holds content, in what is derived from it, and in what is done with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from strandline import Facts, Memory, Retention
from strandline.adapters.langgraph import StrandlineStore
from strandline.erasure import Erasures
from strandline.pipelines.engine.dead_letters import list_dead_letters
from strandline.pipelines.upkeep.passes import Which, run_once
from strandline.pipelines.upkeep.removal import Remover
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.wiring.archives import open_archive
from tests.conftest import rows_of
from tests.support.aging import DAY, age_messages
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest
from tests.support.servers.service_server import RunningService
from tests.support.workers.draining import drain_everything

# How many facts a test's settings allow before they are condensed.
MAX_FACTS = 4


@dataclass(frozen=True, slots=True)
class Speaker:
    """Uses the mark on one database.

    Attributes:
        opened: a database with a keyring, by which workers derive.
        archive: the URL of the archive that messages are put into.
    """

    mark: str
    database_url: str
    broker_url: str
    opened: Database
    settings: Settings
    model: ModelServer
    archive: str

    def memory(self, session_id: str, **more: Any) -> Memory:
        """A memory of the user, which rings workers by the broker."""
        return Memory.from_defaults(
            session_id, user_id="u", database_url=self.database_url, broker_url=self.broker_url, **more
        )

    def facts(self) -> Facts:
        return Facts.for_owner(user_id="u", database_url=self.database_url)

    def say_everything(self) -> None:
        """Every kind of content, by every way by which it is stored or copied."""
        self.model.behave(responder=self._respond)
        self._converse()
        self._correct()
        self._edit_facts()
        self._condense()
        self._let_die()
        self._archive()
        self._keep_items()
        self._serve()
        self._export()

    def derive(self) -> None:
        drain_everything(self.opened, self.database_url, self.settings)

    def _respond(self, request: RecordedRequest) -> str | Raw | None:
        """A model that condenses what it is shown, and that quotes what it refuses."""
        prompt = request.body["messages"][-1]["content"] if "messages" in request.body else ""
        if f"{self.mark}poison" in prompt:
            error = {"message": f"not allowed: {self.mark}poison", "code": None}
            return Raw(400, json.dumps({"error": error}).encode())
        if not prompt.rstrip().endswith("</facts>"):
            return None
        section = prompt.rpartition("<facts>\n")[2].partition("</facts>")[0]
        rows = [json.loads(line) for line in section.splitlines()]
        parts = [row for row in rows if "tea" in row["text"] or "cocoa" in row["text"]]
        merged = {
            "text": f"I like {self.mark}tea and {self.mark}cocoa",
            "merged": [row["n"] for row in parts],
        }
        return json.dumps({"facts": [merged], "kept": [row["n"] for row in rows if row not in parts]})

    def _converse(self) -> None:
        mark = self.mark
        memory = self.memory("s", shared_scope="team")
        arguments = {"name": "find", "arguments": f'"{mark}arg"'}
        call = {"id": f"call{mark}", "type": "function", "function": arguments}
        memory.put_messages(
            [
                {
                    "role": "user",
                    "content": f"My favourite harbour is {mark}haven. I live in {mark}town.",
                    "name": f"{mark}name",
                },
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [call],
                    "metadata": {f"{mark}key": f"{mark}value"},
                },
                {"role": "tool", "content": f"{mark}result", "tool_call_id": f"call{mark}"},
                {"role": "assistant", "content": f"Then I remember {mark}haven for you."},
                {"role": "user", "content": f"I work at the {mark}works since May 2024."},
            ]
        )
        memory.flush(all=True)
        self.derive()
        memory.close()

    def _correct(self) -> None:
        mark, memory = self.mark, self.memory("s", shared_scope="team")
        memory.put({"role": "user", "content": f"Taken back: {mark}back", "id": "back"})
        memory.replace(memory.history()[-1].seq or 0, f"Replaced: {mark}other", idempotency_key="once")
        memory.add_run("run", [{"role": "user", "content": f"In a run: {mark}run"}])
        memory.fork("fork")
        memory.close()
        other = self.memory("s2", shared_scope="team")
        other.put({"role": "user", "content": f"I dislike {mark}weather."})
        other.flush(all=True)
        self.derive()
        other.reset(derived=True)
        other.close()

    def _edit_facts(self) -> None:
        mark, facts = self.mark, self.facts()
        kept = facts.add(f"I own a {mark}boat", topics=[f"{mark}topic"], input=f"{mark}input")
        facts.feedback(kept.fact_id, f"{mark}praise")
        gone = facts.add(f"I sail to {mark}island")
        facts.replace(gone.fact_id, f"I never sail to {mark}island")
        facts.delete(gone.fact_id)
        facts.close()

    def _condense(self) -> None:
        """More facts than are kept: a model condenses two of them."""
        memory = self.memory("s3")
        things = (f"I like {self.mark}tea", f"I like {self.mark}cocoa", f"I own a {self.mark}kettle")
        for thing in (*things, f"I wear a {self.mark}cap"):
            memory.put({"role": "user", "content": thing})
            memory.flush(all=True)
            self.derive()
        memory.close()
        rows = rows_of(self.database_url, "SELECT outcome FROM strandline.condensation")
        assert ("applied",) in rows, "nothing was condensed"

    def _let_die(self) -> None:
        """Dead letters of a session whose words the model refuses, one of them tried again."""
        memory = self.memory("dead")
        memory.put({"role": "user", "content": f"Here is {self.mark}poison"})
        memory.flush(all=True)
        self.derive()
        letters = list_dead_letters(self.opened)
        assert {"extract", "summary"} <= {letter.stage for letter in letters}, letters
        memory.close()

    def _archive(self) -> None:
        """Old messages leave the log, into an archive."""
        memory = self.memory("old")
        for number in range(3):
            memory.put({"role": "user", "content": f"Long ago: {self.mark}past {number}"})
        memory.flush(all=True)
        self.derive()
        assert age_messages(self.database_url, "old", 40 * DAY) == 3
        memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=self.archive))
        remover = Remover(self.opened, open_archive, busy_seconds=0.0, rest=0.0)
        done = run_once(self.opened, remover, Which(namespace=None, session_key=None))
        assert done.archived == done.removed == 3
        memory.close()

    def _keep_items(self) -> None:
        store = StrandlineStore(database_url=self.database_url)
        store.put(("boats",), "one", {"name": f"{self.mark}item"})
        assert store.search(("boats",), filter={"name": f"{self.mark}item"})
        store.close()

    def _serve(self) -> None:
        """The service stores what it answered, and writes a log."""
        mark, message = self.mark, {"role": "user", "content": f"Over HTTP: {self.mark}wire"}
        with (
            RunningService(self.database_url) as service,
            service.client(service.make_key(), user="u") as client,
        ):
            at = "/v1/sessions/http/messages"
            assert client.post(at, json={"messages": [message]}).status_code == 201
            last = client.delete(f"{at}/last", headers={"Idempotency-Key": "k"})
            assert last.json()["message"]["content"] == message["content"]
            assert client.post(at, json={"messages": [message, {"role": f"{mark}role"}]}).status_code == 422
            assert client.post(at, content=f'{{"{mark}broken'.encode()).status_code >= 400
            assert client.post("/v1/sessions/http/search", json={"query": f"{mark}wire"}).status_code == 200

    def _export(self) -> None:
        """What is kept of the user passes through this process, in clear, and is kept nowhere."""
        erasures = Erasures.of_namespace(database_url=self.database_url)
        assert any(f"{self.mark}haven" in line for line in erasures.export_user("u"))
        erasures.close()
