"""``python -m bench.facts``: how good the facts are that extract and merge make of conversations.

Every conversation is put, flushed every few messages, and derived by the real pipeline on an embedded
Postgres of its own.  With OPENAI_API_KEY or OPENAI_BASE_URL the model there extracts and merges, which costs
its tokens; without, the local stand-in does, which copies sentences: its figures say that the measurement
works, and what picking sentences gives, not what a model does.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from bench.environment import Ground, prepared_ground
from bench.facts.data import WHERE, ObservedConversation, observed_conversations
from bench.facts.deriving import Derived, NotDerivedError, derive
from bench.facts.judging import judge_alone
from bench.facts.rules import (
    count_cited,
    count_covered_by_words,
    count_duplicates,
    count_similar,
    names_a_day,
    stands_alone,
)
from bench.recall.data import DEFAULT_FOLDER
from strandline.pipelines.models.factory import build_embedder
from strandline.schemas.settings import Settings, load_settings

FLUSH_EVERY = 8
SECONDS = 1_800.0
JUDGED_FACTS = 100
TOTAL = "all"

STAND_IN = "No model is configured: the answers are those of the local stand-in, which copies sentences."
RULES = """\
cited: observations with a fact from one of their messages; in words: with a fact that has half of their
lexemes; in meaning: with a fact of cosine 0.7 or more by the local embedder. Alone: facts that begin with no
pronoun or answer and name somebody; judged: of some facts, those that the model understands alone. Dates: of
the facts whose messages name a day ("yesterday"), those that have it. Double: facts that say what an earlier
one says. Calls and tokens are those of extract and merge."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of one conversation, or of all with one setting; shares are made of these in the end."""

    conversation: str
    context_tokens: int
    observations: int = 0
    cited: int = 0
    in_words: int = 0
    in_meaning: int = 0
    facts: int = 0
    alone: int = 0
    judged: int = 0
    judged_alone: int = 0
    dated: int = 0
    dates_resolved: int = 0
    duplicates: int = 0
    dead_letters: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.facts", description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_FOLDER, help="the folder of the conversations")
    parser.add_argument("--only", metavar="NAME", help="only this conversation, such as conv-26")
    parser.add_argument(
        "--context", type=int, action="append", metavar="TOKENS", help="context of extract; may be repeated"
    )
    parser.add_argument("--flush-every", type=int, default=FLUSH_EVERY, metavar="MESSAGES")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for one conversation, at most")
    parser.add_argument(
        "--judged", type=int, default=JUDGED_FACTS, metavar="FACTS", help="how many the model judges"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE as well")
    arguments = parser.parse_args()
    measured = [one for one in observed_conversations(arguments.data) if arguments.only in (None, one.name)]
    if not measured:
        print(f"There are no such conversations in {arguments.data}.\n{WHERE}", file=sys.stderr)
        return 2
    settings = load_settings(embedding_backend="local")
    is_local = settings.backend("facts") == "local"
    _say(STAND_IN if is_local else f"{settings.facts_model} extracts, merges and judges, at its price.")
    contexts = [0] if is_local else arguments.context or [settings.facts_context_tokens]
    try:
        counts = _measure_all(measured, settings, contexts, arguments)
    except NotDerivedError as error:
        print(error, file=sys.stderr)
        return 1
    print(as_text(counts))
    print(STAND_IN if is_local else f"Model: {settings.facts_model}.")
    print(RULES)
    if arguments.json is not None:
        model = "local-extractive" if is_local else settings.facts_model
        content = {"model": model, "figures": [asdict(one) for one in counts]}
        arguments.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return 0


def _measure_all(
    measured: Sequence[ObservedConversation],
    settings: Settings,
    contexts: Sequence[int],
    arguments: argparse.Namespace,
) -> list[Counts]:
    counts = []
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as home:
        _say("starting PostgreSQL")
        with prepared_ground(Path(home)) as server:
            for tokens in contexts:
                chosen = settings.model_copy(update={"facts_context_tokens": tokens})
                with server.fresh(registered=False) as ground:
                    found = [_measure(ground, one, chosen, arguments) for one in measured]
                counts += [*found, *([add_up(found)] if len(found) > 1 else [])]
    return counts


def _measure(
    ground: Ground, conversation: ObservedConversation, settings: Settings, arguments: argparse.Namespace
) -> Counts:
    _say(f"{conversation.name}: {len(conversation.observations)} observations")
    derived = derive(
        ground, conversation, settings, flush_every=arguments.flush_every, seconds=arguments.seconds
    )
    verdicts = []
    if settings.backend("facts") == "openai":
        verdicts = judge_alone(spread([fact.text for fact in derived.facts], arguments.judged), settings)
    return count(conversation, derived, settings, verdicts)


def count(
    conversation: ObservedConversation, derived: Derived, settings: Settings, verdicts: Sequence[bool] = ()
) -> Counts:
    """Count what the rules say of the facts of a conversation; ``verdicts`` are those of a model."""
    facts, observations = derived.facts, conversation.observations
    days = [names_a_day(fact) for fact in facts]
    return Counts(
        conversation=conversation.name,
        context_tokens=0 if settings.backend("facts") == "local" else settings.facts_context_tokens,
        observations=len(observations),
        cited=count_cited(observations, facts),
        in_words=count_covered_by_words(observations, facts),
        in_meaning=count_similar(observations, facts, build_embedder(settings)),
        facts=len(facts),
        alone=sum(stands_alone(fact.text, conversation.speakers) for fact in facts),
        judged=len(verdicts),
        judged_alone=sum(verdicts),
        dated=sum(named for named, _ in days),
        dates_resolved=sum(resolved for _, resolved in days),
        duplicates=count_duplicates(facts),
        dead_letters=derived.dead,
        calls=derived.calls,
        input_tokens=derived.input_tokens,
        output_tokens=derived.output_tokens,
        usd=derived.usd,
    )


def add_up(counts: Sequence[Counts]) -> Counts:
    """The counts of several conversations together."""
    names = [
        field.name for field in fields(Counts) if field.name not in ("conversation", "context_tokens", "usd")
    ]
    sums = {name: sum(getattr(one, name) for one in counts) for name in names}
    costs = [one.usd for one in counts if one.usd is not None]
    return Counts(TOTAL, counts[0].context_tokens, **sums, usd=sum(costs) if costs else None)


def spread(texts: Sequence[str], most: int) -> list[str]:
    """At most so many of the texts, evenly from beginning to end."""
    if len(texts) <= most:
        return list(texts)
    return [texts[place * len(texts) // most] for place in range(most)]


def as_text(counts: Iterable[Counts]) -> str:
    """The figures for a terminal, shares in per cent."""
    header = ("", "context", "cited", "in words", "in meaning", "facts", "alone", "judged", "dates", "double")
    rows: list[tuple[str, ...]] = [(*header, "dead", "calls", "tokens in", "out", "USD")]
    rows += [_row(one) for one in counts]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    )


def _row(one: Counts) -> tuple[str, ...]:
    return (
        one.conversation,
        str(one.context_tokens),
        _share(one.cited, one.observations),
        _share(one.in_words, one.observations),
        _share(one.in_meaning, one.observations),
        str(one.facts),
        _share(one.alone, one.facts),
        _share(one.judged_alone, one.judged),
        _share(one.dates_resolved, one.dated),
        _share(one.duplicates, one.facts),
        str(one.dead_letters),
        str(one.calls),
        str(one.input_tokens),
        str(one.output_tokens),
        "-" if one.usd is None else f"{one.usd:.4f}",
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
