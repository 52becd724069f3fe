"""What an operator asks is answered whole under one heading, two clicks from the first page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


class Answer(NamedTuple):
    """A question's page and heading, and what its answer cannot do without."""

    question: str
    page: str
    heading: str
    needs: tuple[str, ...]


ANSWERS = [
    Answer(
        "workers for 1,000 messages a second",
        "operations",
        "Scaling",
        ("1,000 messages a second", "3 workers"),
    ),
    Answer("alerts", "operations", "Alerts", ("deploy/prometheus", "runbook", "StrandlineWorkIsOld")),
    Answer("lag", "operations", "Lag", ("strandline status", "lag_seconds")),
    Answer("upgrade", "operations", "Upgrades", ("migrate --plan", "any order", "killed migration")),
    Answer(
        "backup", "operations", "Backup and restore", ("pg_dump", "pg_basebackup", "back after", "erasures")
    ),
    Answer("keys of models", "models", "Changing a model, an address or a key", ("key", "start again")),
    Answer("another embedder", "replay", "Changing the embedding model", ("replay --new", "verify")),
    Answer(
        "a lost broker",
        "operations",
        "The broker",
        ("emptied or replaced at any time", "sweep"),
    ),
    Answer(
        "a day without a model", "models", "A model is away", ("for a day", "backlog", "strandline status")
    ),
    Answer(
        "erase a user",
        "operations",
        "Erasing a user",
        ("erasures erase --user", "--receipt", "After a restore"),
    ),
    Answer("export", "export", "Export", ("strandline export --user",)),
    Answer("limits", "operations", "Limits and budgets", ("limits set", "--usd-per-day", "--bytes")),
    Answer(
        "cost per 1,000 messages",
        "models",
        "Costs",
        ("1,000 messages", r"\$0\.16", "STRANDLINE_MODEL_PRICES"),
    ),
    Answer("Azure and Ollama", "models", "Servers", ("Azure OpenAI", "Ollama", "11434")),
    Answer("two servers", "models", "Roles", ("two servers", r"\[embedding\]", "base_url")),
    Answer(
        "own prompt and schema",
        "models",
        "Your own prompts",
        ("PROMPTS_DIR", "JSON Schema", "DATABASE_SCHEMA"),
    ),
    Answer("containers", "operations", "Containers", ("docker build", "docker compose", "kubernetes")),
    Answer(
        "pooler", "operations", "Behind PgBouncer", ("DATABASE_POOLER=transaction", "ALTER ROLE", "pooler")
    ),
    Answer("versions of Postgres", "operations", "Supported versions", ("14 or newer", "0\\.7\\.0 or newer")),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.question)
def test_a_question_has_its_answer(answer: Answer) -> None:
    page = DOCS / f"{answer.page}.md"
    links = re.findall(r"\]\(docs/([\w-]+)\.md", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert answer.page in links, "two clicks: its page is not linked from the first one"
    text = page.read_text(encoding="utf-8")
    (found,) = re.finditer(rf"^(#+) {re.escape(answer.heading)}\n", text, re.MULTILINE)
    section = re.split(rf"^#{{1,{len(found[1])}}} ", text[found.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    words = " ".join(section.split())
    assert [need for need in answer.needs if not re.search(need, words)] == []
