"""Runs that are added, and added again: what stands behind them stands behind them again.

A message that is given as before stands as people left it: with other content, or not at all.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from strandline.schemas.errors import ConflictError
from tests.chaos.corrections.book import Book, Session


def add_new_run(session: Session, book: Book, texts: Sequence[str]) -> int:
    """Add a run; returns the number of its messages."""
    run_id = uuid4().hex
    run = session.memory.add_run(run_id, _messages(texts))
    book.place(session, list(zip(run.seqs, texts, strict=True)))
    session.runs[run_id] = list(zip(texts, run.seqs, strict=True))
    return len(texts)


def add_run_again(
    session: Session,
    book: Book,
    chance: random.Random,
    new_texts: Sequence[str],
    wrong: Callable[[str], None],
) -> str | None:
    """Add a run of which something is left once more; returns what that was, None if there is no such run.

    Nothing else may write to the session meanwhile.
    """
    before = book.lines(session)
    for run_id in [one for one, run in session.runs.items() if not any(seq in before for _, seq in run)]:
        del session.runs[run_id]  # it would be a new one
    if not session.runs:
        return None
    run_id = chance.choice(list(session.runs))
    known = session.runs[run_id]
    texts = _changed([text for text, _seq in known], new_texts, chance)
    expected, taken = _expected(known, texts, before)
    own = {seq for _text, seq in known}
    is_last = not any(seq > max(own) for seq in before)
    try:
        run = session.memory.add_run(run_id, _messages(texts))
    except ConflictError:
        return None
    lines = {message.seq or 0: message.text for message in session.memory.get_all()}
    others = [seq for seq in before if seq not in own]
    others_now = [seq for seq in lines if seq not in run.seqs]
    run_now = [lines.get(seq) for seq in run.seqs]
    if run_now != [text for text, _given in expected]:
        wrong(f"run {run_id} of {session.name} shows {run_now} for {expected}, given {texts}, known {known}")
    if [before[seq] for seq in others] != [lines[seq] for seq in others_now]:
        shown = {seq: lines[seq] for seq in others_now}
        wrong(
            f"run {run_id} of {session.name} left {shown} behind it, before {before}, known {known},"
            f" given {texts}, now {run.seqs}"
        )
        others = others_now = []
    moved = {old: new for old, new in zip(others, others_now, strict=True) if old != new}
    replaced = {
        seq: correction.number
        for correction in run.corrections
        if correction.kind == "replace"
        for seq in correction.seqs
    }
    book.renumber(session, lines, moved, replaced)
    given = [given for _text, given in expected]
    session.runs[run_id] = [*zip(given, run.seqs, strict=False), *taken]
    return f"run again, {'last' if is_last else 'middle'}"


def _changed(texts: list[str], new_texts: Sequence[str], chance: random.Random) -> list[str]:
    """The texts of a run as they come again."""
    match chance.choice(("same", "longer", "shorter", "other answer", "other question", "begins otherwise")):
        case "longer":
            return [*texts, new_texts[-1]]
        case "shorter":
            return texts[:-1] or texts
        case "other answer":
            return [*texts[:-1], new_texts[-1]]
        case "other question":
            return [new_texts[0], *texts[1:]]
        case "begins otherwise":
            return [new_texts[0], *texts]
        case _:
            return texts


def _expected(
    known: Sequence[tuple[str, int]], texts: Sequence[str], lines: dict[int, str]
) -> tuple[list[tuple[str, str]], list[tuple[str, int]]]:
    """The texts that the run is to show, each with the one that is given; and what people took back of it."""
    left = list(known)
    expected = []
    for text in texts:
        entry = next((one for one in left if one[0] == text), None)
        if entry is None:
            expected.append((text, text))
            continue
        left.remove(entry)
        if entry[1] in lines:
            expected.append((lines[entry[1]], text))
    return expected, [one for one in known if one[1] not in lines]


def _messages(texts: Sequence[str]) -> list[dict[str, Any]]:
    roles = {"my": "user", "noted": "assistant"}
    return [{"role": roles[text.split()[0]], "content": text} for text in texts]
