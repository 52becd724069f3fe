"""A model that answers wrongly by dice: the kinds of lies, each with what code knows it by."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from strandline.pipelines.models.answers import parse_merge
from strandline.schemas.values.normal_form import fingerprint
from tests.chaos.liar.people import statement_of
from tests.pipelines.facts.test_facts_merge import rows_in
from tests.support.servers.model_server import RecordedRequest, answer_to

Row = dict[str, Any]
Answer = dict[str, Any]


class Asked(NamedTuple):
    """A candidate and the known facts of the call: those of its own aspect, and the others."""

    candidate: Row
    own: Sequence[Row]
    others: Sequence[Row]


class Lie(NamedTuple):
    """A kind of wrong decision: on which facts it is told, how, and by which of its marks code knows it."""

    victims: Callable[[Asked], Sequence[Row]]
    op: str
    text: Callable[[Asked, Row], str | None]
    known_by: str


def _others(asked: Asked) -> Sequence[Row]:
    return asked.others


def _own_unlike(asked: Asked) -> Sequence[Row]:
    return [row for row in asked.own if row["text"] != asked.candidate["text"]]


def _denied(asked: Asked) -> Sequence[Row]:
    return [row for row in asked.others if "не " in row["text"] or "不" in row["text"]]


def _numbered(asked: Asked) -> Sequence[Row]:
    return [row for row in asked.others if any(map(str.isdigit, row["text"]))]


LIES: dict[str, Lie] = {
    "ends another fact": Lie(_others, "invalidate", lambda _a, _v: None, "nothing in common"),
    "ends another fact by other words": Lie(
        _others, "invalidate", lambda _a, _v: "Everything is different.", "nothing in common"
    ),
    "repeats another fact": Lie(_others, "duplicate", lambda _a, _v: None, "nothing in common"),
    "rewords by another statement": Lie(
        _others, "update", lambda a, _v: a.candidate["text"], "words are lost"
    ),
    "rewords to the sky": Lie(_others, "update", lambda _a, _v: "The sky is blue.", "other words"),
    "rewords its own to the sky": Lie(_own_unlike, "update", lambda _a, _v: "天是蓝的。", "other words"),
    "rewords to nothing": Lie(_others, "update", lambda _a, _v: "…", "a placeholder"),
    "rewords to none": Lie(_others, "update", lambda _a, _v: "N/A", "a placeholder"),
    "drops a denial": Lie(
        _denied, "update", lambda _a, v: v["text"].replace("не ", "").replace("不", ""), "a denial is lost"
    ),
    "changes a number": Lie(
        _numbered,
        "update",
        lambda _a, v: "".join("7" if c.isdigit() else c for c in v["text"]),
        "a number is lost",
    ),
    "blends two facts": Lie(
        _others, "update", lambda a, v: f"{v['text']} {a.candidate['text']}", "nothing in common"
    ),
    "translates": Lie(_others, "update", lambda _a, _v: "The user said something once.", "words are lost"),
    "names no fact": Lie(
        lambda _a: [{"n": 999, "text": ""}], "invalidate", lambda _a, _v: None, "an unknown number"
    ),
}
# What code cannot know, and which ends no true fact: a model that adds beside an old fact what ends it.
NOT_ASKED = "deletes what an instruction does not ask for"
UNKNOWABLE = "adds what ends an older fact"
INVENTED = ("…", "None", "keine Angaben", "无", "Zebulon Quark was born in Ulan Bator in 1971.")


class Liar:
    """Answers as the truth is, or with a share of lies; counts what it told."""

    def __init__(self, seed: int, lying: float, failing: float) -> None:
        self._chance = random.Random(f"{seed}/liar")  # noqa: S311
        self._lying, self._failing = lying, failing
        # A repair works: an event whose answers all fail is a dead letter, which is no lie's doing.
        self._has_failed = False
        self.told: Counter[str] = Counter()
        self.right: Counter[str] = Counter()
        # Of each step of a merge the known facts and the candidates.
        self.asked: dict[str, tuple[Sequence[Row], Sequence[Row]]] = {}

    def __call__(self, request: RecordedRequest) -> str | None:
        # A repair repeats the conversation behind it.
        prompt = request.body["messages"][1]["content"]
        self._has_failed = not self._has_failed and self._chance.random() < self._failing
        if self._has_failed:
            return "This is no answer: {"
        if "<instruction>\n" in prompt:
            return json.dumps({"operations": self._obey(prompt)})
        if "<candidates>" not in prompt:
            return json.dumps(self._extracted(answer_to(prompt)))
        known = rows_in(prompt, "known") if "<known>" in prompt else []
        candidates = rows_in(prompt, "candidates")
        self.asked[step_of(known, candidates)] = known, candidates
        operations: list[Row] = []
        for candidate in candidates:
            operations += self._decide(candidate, known)
        if self._chance.random() < self._lying:
            operations.reverse()
        return json.dumps({"operations": operations}, ensure_ascii=False)

    def refusals_of(self, step: str, body: str) -> int:
        """How many decisions of a stored answer are on facts of other aspects, so that code refuses them."""
        if step.startswith("instruct-"):
            return max(0, len(json.loads(body)["operations"]) - 1)
        if step not in self.asked:
            return 0
        known, candidates = self.asked[step]
        aspects = [[statement_of(row["text"]).aspect for row in rows] for rows in (known, candidates)]
        return sum(
            aspects[0][op.fact - 1] != aspects[1][op.candidate - 1]
            for op in parse_merge(body, len(known), len(candidates))
            if op.fact is not None
        )

    def _obey(self, prompt: str) -> list[Row]:
        """Delete the fact named in an instruction, and by chance another one after it."""
        facts = rows_in(prompt, "facts")
        meant = [row for row in facts if row["text"] in prompt.partition("<facts>")[0]]
        # Of the same aspect another may be meant as well.
        aspects = {statement_of(row["text"]).aspect for row in meant}
        others = [row for row in facts if statement_of(row["text"]).aspect not in aspects]
        operations = [{"op": "delete", "fact": row["n"], "text": None} for row in meant[:1]]
        if meant and others and self._chance.random() < self._lying:
            self.told[NOT_ASKED] += 1
            operations.append({"op": "delete", "fact": self._chance.choice(others)["n"], "text": None})
        return operations

    def _extracted(self, answer: Answer) -> Answer:
        if answer.get("facts") and self._chance.random() < self._lying:
            self.told["invents a fact"] += 1
            cited = answer["facts"][0]["messages"]
            answer["facts"].append(
                {"text": self._chance.choice(INVENTED), "messages": cited, "topics": ["…"]}
            )
        return answer

    def _decide(self, candidate: Row, known: Sequence[Row]) -> list[Row]:
        aspect = statement_of(candidate["text"]).aspect
        own = [row for row in known if statement_of(row["text"]).aspect == aspect]
        asked = Asked(candidate, own, [row for row in known if row not in own])
        if self._chance.random() < self._lying and (lie := self._lie(asked)) is not None:
            return [lie]
        return self._truth(asked)

    def _truth(self, asked: Asked) -> list[Row]:
        number, text = asked.candidate["n"], asked.candidate["text"]
        same = [row for row in asked.own if row["text"] == text]
        if same:
            self.right["duplicate"] += 1
            return [operation("duplicate", number, same[0]["n"])]
        if asked.own and self._chance.random() >= self._lying / 10:
            self.right["invalidate"] += len(asked.own)
            return [operation("invalidate", number, row["n"]) for row in asked.own]
        self.told[UNKNOWABLE] += bool(asked.own)
        return [operation("add", number, None)]

    def _lie(self, asked: Asked) -> Row | None:
        kind = self._chance.choice(sorted(LIES))
        lie = LIES[kind]
        victims = lie.victims(asked)
        if not victims:
            return None
        victim = self._chance.choice(list(victims))
        self.told[kind] += 1
        return operation(lie.op, asked.candidate["n"], victim["n"], lie.text(asked, victim))


def step_of(known: Sequence[Row], candidates: Sequence[Row]) -> str:
    """The name of the model call that shows these facts, as merge gives it."""
    shown = blake2b(digest_size=8)
    for row in (*known, *candidates):
        shown.update(fingerprint(row["text"]))
    return f"merge-{shown.hexdigest()}"


def operation(op: str, candidate: int, fact: int | None, text: str | None = None) -> Row:
    return {"op": op, "candidate": candidate, "fact": fact, "text": text}
