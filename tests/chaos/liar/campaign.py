"""The liar: users say what is true, a model decides wrongly by dice, and no true fact may be lost by it.

Between: unreadable answers, repeated messages, deletions, older messages that come late, new derivations.

    python -m tests.chaos.liar --seed 1 --events 5000 --users 200
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from strandline import Facts, Memory
from strandline.pipelines.inspect.verify import verify
from strandline.producers.facts.listing import Fact
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.identity import identify_user
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE
from tests.chaos.command import servers
from tests.chaos.liar.lies import INVENTED, Liar
from tests.chaos.liar.people import Person
from tests.conftest import rows_of
from tests.pipelines.facts.test_facts_tombstones import derive_again, switch_to
from tests.support.servers.model_server import ModelServer
from tests.support.workers.draining import drain_everything

STAGES = (EXTRACT_STAGE, MERGE_STAGE)
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
EARLIER = timedelta(days=400)


@dataclass(frozen=True, slots=True)
class Options:
    """How large a campaign is; ``lying`` and ``failing`` are shares of decisions and of answers."""

    seed: int = 1
    events: int = 5_000
    users: int = 200
    lying: float = 0.3
    failing: float = 0.02


@dataclass
class Findings:
    """What came out: ``wrong`` are sentences, of which there should be none."""

    seed: int
    events: int = 0
    told: dict[str, int] = field(default_factory=dict)
    right: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    doubts: int = 0
    refused: int = 0
    true_facts: int = 0
    right_refused: int = 0
    wrong: list[str] = field(default_factory=list)


def said(prefix: str, at: datetime, text: str) -> dict[str, object]:
    return {"id": f"{prefix}{at:%Y%m%d%H%M}", "role": "user", "content": text, "created_at": at}


class Campaign:
    def __init__(self, options: Options, url: str, server: ModelServer, settings: Settings) -> None:
        self._options, self._url, self._server, self._settings = options, url, server, settings
        self._database = Database.connect(
            ConnectionOptions.from_settings(url, settings), sealed_content(settings)
        )
        self._chance = random.Random(options.seed)  # noqa: S311
        self._people = [
            Person(f"u{number}", random.Random(f"{options.seed}/{number}"))  # noqa: S311
            for number in range(options.users)
        ]
        self._liar = Liar(options.seed, options.lying, options.failing)
        self._now = BEGINNING
        self._done: Counter[str] = Counter()
        self.found = Findings(options.seed)

    def run(self) -> Findings:
        self._server.behave(responder=self._liar)
        for number in range(-(-self._options.events // self._options.users)):
            for person in self._people:
                self._step(person, is_first=number == 0)
            self._drain()
            # Derived at once, a truthful model has nothing to decide on: its candidates are in one batch.
            if self._options.lying and number % 10 == 5:
                self._derive_again()
        self._judge()
        self._database.close()
        return self.found

    def _step(self, person: Person, *, is_first: bool) -> None:
        """One event of a person."""
        self._now += timedelta(minutes=1)
        dice = self._chance.random()
        if not is_first and dice < 0.06 and self._delete(person):
            return
        if not is_first and dice < 0.08 and self._instruct(person):
            return
        if not is_first and dice < 0.16 and self._import_late(person):
            return
        text = person.say()
        with closing(self._memory(person)) as memory:
            for _ in range(2 if dice > 0.9 else 1):
                memory.put(
                    {
                        "id": f"m{self._now:%Y%m%d%H%M}",
                        "role": "user",
                        "content": text,
                        "created_at": self._now,
                    }
                )
            memory.flush(all=True)
        person.hear(text)
        self._done["said"] += 1

    def _delete(self, person: Person) -> bool:
        live = [fact for fact in self._facts(person).list() if fact.text in person.now.values()]
        if not live:
            return False
        fact = self._chance.choice(live)
        self._facts(person).delete(fact.fact_id)
        person.delete(fact.text)
        self._done["deleted"] += 1
        return True

    def _instruct(self, person: Person) -> bool:
        """Have a fact forgotten by an instruction, on which the model may delete more than it asks for."""
        live = [fact for fact in self._facts(person).list() if fact.text in person.now.values()]
        if not live:
            return False
        text = self._chance.choice(live).text
        self._facts(person).instruct(f"Forget: {text}", key=f"{self._now:%Y%m%d%H%M}")
        person.delete(text)
        self._done["instructed"] += 1
        return True

    def _import_late(self, person: Person) -> bool:
        text = person.remember()
        if text is None:
            return False
        with closing(self._memory(person, "old")) as memory:
            at = self._now - EARLIER
            memory.import_messages([said("o", at, text)])
            memory.flush(all=True)
        self._done["imported late"] += 1
        return True

    def _drain(self) -> None:
        drain_everything(self._database, self._url, self._settings, STAGES)

    def _derive_again(self) -> None:
        owners = [identify_user("default", person.name).shard_key for person in self._people]
        generation_id = derive_again(self._database, self._url, *owners)
        self._drain()
        switch_to(self._url, generation_id)
        self._done["derived again"] += 1

    def _memory(self, person: Person, session: str = "s") -> Memory:
        return Memory.from_defaults(
            f"{person.name}/{session}",
            user_id=person.name,
            database_url=self._url,
            memory_blocks=["facts"],
        )

    def _facts(self, person: Person) -> Facts:
        return Facts.for_owner(user_id=person.name, database_url=self._url)

    def _judge(self) -> None:
        for person in self._people:
            facts = self._facts(person).list()
            self.found.doubts += sum(fact.is_doubtful for fact in facts)
            self.found.wrong += [f"{person.name}: {sentence}" for sentence in self._faults(person, facts)]
        self.found.wrong += self._hidden_refusals()
        self.found.wrong += [str(violation) for violation in verify(self._database, deep=True).violations]
        self.found.events = sum(self._done.values())
        self.found.told, self.found.right = dict(self._liar.told), dict(self._liar.right)
        self.found.done = dict(self._done)

    def _hidden_refusals(self) -> Iterator[str]:
        """Refused decisions of the answers applied, less those in the trail."""
        answers = rows_of(
            self._url,
            "SELECT a.shard_key, a.step, convert_from(a.body, 'utf8') FROM strandline.answer a"
            " JOIN strandline.batch b USING (shard_key, batch_id) WHERE b.state = 'applied'",
        )
        trail = rows_of(
            self._url,
            "SELECT s.shard_key, sum(e.count)::bigint FROM strandline.audit_entry e"
            " JOIN strandline.audit_subject s USING (subject) WHERE e.act = 'facts.doubt' GROUP BY 1",
        )
        hidden: Counter[object] = Counter()
        for shard_key, step, body in answers:
            hidden[shard_key] += self._liar.refusals_of(step, body)
        self.found.refused = hidden.total()
        hidden.subtract(dict(trail))
        for shard_key, count in (+hidden).items():
            yield f"{count} refusals of {shard_key} are in no trail"

    def _faults(self, person: Person, facts: list[Fact]) -> Iterator[str]:
        texts = [fact.text for fact in facts]
        for text in person.now.values():
            self.found.true_facts += 1
            if not any(text.rstrip(".。") in held for held in texts):
                yield f"a true fact is gone: {text}"
        for text in person.deleted:
            if any(text.rstrip(".。") in held for held in texts):
                yield f"a deleted fact lives: {text}"
        for text in INVENTED:
            if text in texts:
                yield f"an invented fact lives: {text}"
        if not self._options.lying:
            self.found.right_refused += sum(text in texts for text in person.ended)


def campaign(options: Options) -> Findings:
    """Run one on a separate server, and take the server down."""
    with servers() as (url, _broker_url, _folder), ModelServer() as server:
        settings = load_settings(database_url=url, openai_base_url=server.base_url)
        return Campaign(options, url, server, settings).run()
