"""schemathesis against the service: all that its description allows, and what it does not allow.

Random names find nothing, and a route that finds nothing shows its refusals alone.  So sessions, facts and
the rest are made first, and most values of paths are theirs; what destroys has others than what reads.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from strandline.schemas.wire.keys import SCOPES, NewKey
from tests.support.servers.service_server import RunningService

# What it would have to know of stored sessions and facts is shown by the tests that know it.
LEFT_OUT = "negative_data_rejection,positive_data_acceptance"
# Streams, which do not end; and what would end the run's own key.
NEVER = ("namespace_events", "session_events", "delete_key", "post_rotation")
USER = "fuzzed"
# Beyond the deadline of any request.
MOST_SECONDS = 120
# These operations remove what they are given: each has sessions, or a user, of its own.
DESTROYING_SESSIONS = (
    "delete_session",
    "erase_session",
    "pop_message",
    "readmit_session",
    "reset_session",
    "rewind_session",
)
DESTROYING_USERS = ("erase_user", "readmit_user", "clear_facts", "instruct_facts", "optimize_facts")
DESTROYING = (*DESTROYING_SESSIONS, *DESTROYING_USERS, "delete_fact")
Known = dict[str, list[str] | list[int]]


@dataclass(frozen=True)
class Fuzzing:
    """How many cases were tried, what was reported, and how each operation answered."""

    cases: int
    failures: int
    output: str
    answers: Mapping[str, Counter[int]]

    @property
    def done(self) -> int:
        """How many requests did what they were for."""
        return sum(
            count for found in self.answers.values() for status, count in found.items() if status < 300
        )

    @property
    def only_refused(self) -> list[str]:
        """The operations that never did what they are for."""
        return sorted(name for name, found in self.answers.items() if not any(s < 300 for s in found))


def make_known(running: RunningService, key: NewKey, *, sessions: int = 3) -> Known:
    """Store what paths are to name, for the user of the run; gives the values by the names of parameters.

    Args:
        sessions: how many are kept, and how many each of the destroying operations has.
    """
    kept, *doomed = ([f"{kind}-{n}" for n in range(sessions)] for kind in ("kept", *DESTROYING_SESSIONS))
    with running.client(key, user=USER) as client:

        def ask(method: str, path: str, body: Any) -> Any:
            answer = client.request(method, path, json=body, headers={"Prefer": "wait=10"})
            assert answer.is_success, (path, answer.text)
            return answer.json()

        for name in [*kept, *chain.from_iterable(doomed)]:
            said = [{"role": "user", "content": f"I like number {n}.", "id": f"{name}-{n}"} for n in range(3)]
            ask("POST", f"/v1/sessions/{name}/messages", {"messages": said})
            ask("PUT", f"/v1/sessions/{name}/runs/run-1", {"messages": said[:1], "status": "completed"})
        ask("POST", "/v1/sessions/kept-0/flush", {"all": True})
        facts = [
            ask("POST", f"/v1/users/{USER}/facts", {"text": f"Likes number {n}."})["fact_id"]
            for n in range(8)
        ]
        for operation in DESTROYING_USERS:
            ask("POST", f"/v1/users/{_own(operation)}/facts", {"text": "Was here."})
        source = ask("POST", f"/v1/users/{USER}/facts/from-messages", {"messages": said})["source_id"]
        ask("POST", "/v1/sessions/erased/messages", {"messages": said[:1]})
        erasure = ask("POST", "/v1/sessions/erased/erasures", {})["number"]
        acts = [] if key.namespace is None else [one["entry_id"] for one in ask_acts(client)]
    return {
        "session_id": kept,
        **{_own(operation): names for operation, names in zip(DESTROYING_SESSIONS, doomed, strict=True)},
        "user": [USER],
        **{_own(operation): [_own(operation)] for operation in DESTROYING_USERS},
        "fact_id": facts[:4],
        "doomed_fact_id": facts[4:],
        "message_id": [f"{name}-0" for name in kept],
        "run_id": ["run-1"],
        "seq": [1, 2],
        "source": [source],
        "number": [erasure],
        "entry_id": acts,
        "namespace": [str(key.namespace or "fuzzed")],
        "pipeline": ["facts", "summary", "vectors"],
        "generation": [1, 2, 3],
    }


def _own(operation: str) -> str:
    """The name of what an operation may destroy."""
    return f"doomed_{operation}"


def ask_acts(client: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get("/v1/admin/audit", params={"limit": 3}).json().get("items", [])
    return items


def configuration(known: Known, probability: float) -> str:
    """The configuration of schemathesis: which values parameters of paths have most of the time."""
    lines: list[str] = []
    for name, values in known.items():
        if values:
            lines += [f"[dictionaries.{name}]", f"values = {json.dumps(values)}", ""]
    lines += ["[parameters]"]
    for name, values in known.items():
        if values and not name.startswith("doomed_"):
            lines.append(_binding(name, name, probability))
    others = [
        *((operation, "session_id", _own(operation)) for operation in DESTROYING_SESSIONS),
        *((operation, "user", _own(operation)) for operation in DESTROYING_USERS),
        ("delete_fact", "fact_id", "doomed_fact_id"),
    ]
    for operation, name, dictionary in others:
        lines += [
            "",
            "[[operations]]",
            f'include-operation-id = "{operation}"',
            "[operations.parameters]",
            _binding(name, dictionary, probability),
        ]
    return "\n".join(lines) + "\n"


def _binding(name: str, dictionary: str, probability: float) -> str:
    return f'"path.{name}" = {{ dictionary = "{dictionary}", probability = {probability} }}'


def fuzz(
    running: RunningService,
    key: NewKey,
    known: Known,
    folder: Path,
    *,
    examples: int,
    seed: int,
    phases: str,
    only: str = ".",
    within: Sequence[str] = (),
    without: Sequence[str] = NEVER,
    probability: float = 0.8,
) -> Fuzzing:
    """Try the service's description.

    Args:
        only: a pattern of the paths that are tried, unless ``within`` names the operations.
        probability: how often a path names what is known.
    """
    folder.mkdir(exist_ok=True)
    (folder / "schemathesis.toml").write_text(configuration(known, probability))
    command = [
        str(Path(sys.executable).parent / "st"),
        "run",
        f"{running.url}/openapi.json",
        f"--header=Authorization: Bearer {key.key}",
        f"--header=Strandline-User: {USER}",
        f"--seed={seed}",
        f"--max-examples={examples}",
        f"--phases={phases}",
        "--checks=all",
        f"--exclude-checks={LEFT_OUT}",
        f"--exclude-operation-id-regex=^({'|'.join(without)})$",
        # Of two such options each would add to what the other includes.
        f"--include-operation-id-regex=^({'|'.join(within)})$" if within else f"--include-path-regex={only}",
        "--report=har",
        "--report-har-path=answers.har",
        "--continue-on-failure",
        # A read may wait for memory; requests have deadlines of their own.
        f"--max-response-time={MOST_SECONDS}",
        "--suppress-health-check=all",
        "--no-color",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=3600, check=False)
    output = done.stdout + done.stderr
    generated = re.search(r"([\d,]+) generated(?:, ([\d,]+) found)?", output)
    if generated is None:
        raise AssertionError(output[-4_000:])
    return Fuzzing(
        int(generated[1].replace(",", "")),
        int((generated[2] or "0").replace(",", "")),
        output,
        _answers(running.app.openapi(), json.loads((folder / "answers.har").read_text())),
    )


def _answers(document: dict[str, Any], report: dict[str, Any]) -> dict[str, Counter[int]]:
    routes = list(_routes(document))
    answers: dict[str, Counter[int]] = {}
    for entry in report["log"]["entries"]:
        method, path = entry["request"]["method"], urlsplit(entry["request"]["url"]).path
        for of_route, pattern, name in routes:
            if of_route == method and pattern.fullmatch(path):
                answers.setdefault(name, Counter())[entry["response"]["status"]] += 1
                break
    return answers


def _routes(document: dict[str, Any]) -> Iterator[tuple[str, re.Pattern[str], str]]:
    for path, methods in document["paths"].items():
        pattern = re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)))
        for method, operation in methods.items():
            yield method.upper(), pattern, operation["operationId"]


def make_fuzzing_key(running: RunningService) -> NewKey:
    """A key that may do everything in a namespace of its own."""
    return running.make_key(USER, scopes=SCOPES)
