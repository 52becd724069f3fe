"""Looking for an erased user: in every row of every table, in a dump, and through readers of all kinds."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg

from strandline import Facts, Memory
from strandline.erasure import ErasureReceipt, Erasures, Verifier

TABLES = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'strandline'"


def rows_with(url: str, words: list[str]) -> list[str]:
    """The tables in which some row holds one of the words, each with the row."""
    found = []
    with psycopg.connect(url, autocommit=True) as connection:
        for (table,) in connection.execute(TABLES).fetchall():
            rows = connection.execute(
                f'SELECT left(t::text, 300) FROM strandline."{table}" t WHERE t::text LIKE ANY (%s)',
                ([f"%{word}%" for word in words],),
            )
            found += [f"{table}: {row}" for (row,) in rows]
            # What is stored as bytes: the answers of models.
            if table == "answer":
                raw = connection.execute("SELECT body FROM strandline.answer").fetchall()
                found += [f"{table}: {bytes(body)[:300]!r}" for (body,) in raw if _holds(bytes(body), words)]
    return found


def dump_with(url: str, words: list[str], program: Path) -> list[str]:
    """The lines of a dump of the database that hold one of the words."""
    dumped = subprocess.run([program, "--dbname", url], capture_output=True, check=True, text=True)
    return [line[:300] for line in dumped.stdout.splitlines() if any(word in line for word in words)]


def readers_with(url: str, user: str, session: str, canary: str) -> list[str]:
    """What readers of other processes would give of the user: each one's answer, if it holds the word."""
    memory = Memory.from_defaults(session, user_id=user, database_url=url, shared_scope="harbour")
    answers = {
        "get": [message.text for message in memory.get()],
        "history": [message.text for message in memory.get_all()],
        "search": [hit.text for hit in memory.search(canary, scope="owner", kinds=["message", "fact"])],
        "shared": [hit.text for hit in memory.search(canary, scope="shared")],
        "facts": [fact.text for fact in Facts.for_owner(user_id=user, database_url=url).list(limit=100)],
        "export": [
            line
            for line in Erasures.of_namespace(database_url=url).export_user(user)
            if '"kind":"header"' not in line
        ],
    }
    return [f"{name}: {text}" for name, texts in answers.items() for text in texts if canary in text]


def receipt_is_wrong(erasures: Erasures, receipt: ErasureReceipt, verifier: Verifier) -> list[str]:
    """What is wrong with a receipt: it does not verify, or a changed one does."""
    wrong = []
    verdict = erasures.verify(receipt, verifier)
    if not verdict.is_good:
        wrong.append(f"the receipt does not verify: {verdict}")
    changed = ErasureReceipt.from_json(receipt.to_json().replace('"remaining":0', '"remaining":1', 1))
    if changed == receipt or erasures.verify(changed, verifier).signature != "changed":
        wrong.append("a changed receipt was not found out")
    return wrong


def _holds(body: bytes, words: list[str]) -> bool:
    return any(word.encode() in body for word in words)
