"""How much a test's database holds, by what it is called outside the tables."""

from __future__ import annotations

from tests.conftest import rows_of


def stored_messages(url: str) -> int:
    return _count(url, "message")


def stored_sessions(url: str) -> int:
    return _count(url, "session")


def stored_facts(url: str) -> int:
    """With those that no longer hold."""
    return _count(url, "fact")


def live_facts(url: str) -> int:
    return _count(url, "fact WHERE live")


def stored_chunks(url: str) -> int:
    return _count(url, "chunk")


def flush_events(url: str) -> int:
    return _count(url, "flush_event")


def due_work(url: str) -> int:
    """Events that a pipeline has still to consume, once for each stage."""
    return _count(url, "due")


def dead_letters(url: str) -> int:
    return _count(url, "dead_letter")


def registered_workers(url: str) -> int:
    return _count(url, "worker")


def kept_answers(url: str) -> int:
    """Answers of models that are kept until their work is committed."""
    return _count(url, "answer")


def _count(url: str, rows: str) -> int:
    ((count,),) = rows_of(url, f"SELECT count(*) FROM strandline.{rows}")
    return int(count)
