"""``strandline generations``: which derivations there are, which one serves, and changing that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Self
from uuid import UUID

import click
from pydantic import Field, PositiveInt, model_validator

from strandline.administration.generations import (
    delete_generation,
    generations_report,
    promote,
    serve_earlier,
)
from strandline.cli.command import CommandGroup, Output
from strandline.cli.evaluation import Line, Text, read_lines
from strandline.cli.servers.options import pipeline_filter
from strandline.cli.servers.targets import Running, opened_database, opened_servers
from strandline.pipelines.generations.definitions import recipe_for
from strandline.pipelines.generations.registry import Generation, find_kept, serving_generations
from strandline.pipelines.inspect.directory import check_known, find_session
from strandline.pipelines.models.contract import Embedder
from strandline.pipelines.models.embedding_batches import Prefixes
from strandline.pipelines.models.factory import build_embedder, with_recorded_embedder
from strandline.pipelines.replay.comparison import Diff, OwnerDiff, compare_generations
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.pipelines.vectors.stage import vector_text
from strandline.producers.search.hits import Hit
from strandline.producers.search.ranking import SearchQuery, Target, Vectors, rank_hits
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.derived.replay import CitedMessages
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, SessionIdentity, identify_session
from strandline.schemas.values.lanes import FACTS, VECTORS
from strandline.schemas.wire.operations import Promotion
from strandline.schemas.wire.replay import DiffReport, GenerationsReport, QuestionReport, SwitchReport


@click.group("generations", cls=CommandGroup)
def command() -> None:
    """Manage the generations of each pipeline: their recipes, and which one serves."""


LOOKED_AT = 10


class Question(Line):
    """A question, and whose memory is searched.

    Attributes:
        expect: a text that one of the hits must contain; None: no expectation.
        evidence: the ``seq`` of messages in ``session`` that hold the answer.
    """

    expect: Text | None = None
    user: Text | None = None
    session: Text | None = None
    namespace: Text = DEFAULT_NAMESPACE
    evidence: list[PositiveInt] = Field(default_factory=list)

    @model_validator(mode="after")
    def _is_of_somebody(self) -> Self:
        if not (self.session or (self.user and not self.evidence)):
            raise ValueError("session, or user without evidence, must say whose memory is searched")
        return self


@dataclass(frozen=True, slots=True)
class QuestionFinds:
    """One generation's first ten hits for a question; None where nothing was expected or no evidence is."""

    texts: tuple[str, ...]
    is_found: bool | None
    coverage: float | None


def read_questions(path: Path) -> list[Question]:
    """Questions from a file with a JSON object a line.

    Raises:
        ConfigurationError: a line is not a question; the error names it.
    """
    questions = []
    for _, question in read_lines(path, Question):
        if isinstance(question, list):
            raise ConfigurationError(f"{path}, {'; '.join(map(str, question))}.")
        questions.append(question)
    return questions


def find_answers(
    database: Database, generation: Generation, questions: Sequence[Question], settings: Settings
) -> list[QuestionFinds]:
    """The first ten hits for each question; facts are searched with the serving vectors."""
    of_vectors = generation if generation.pipeline == VECTORS else serving_generations(database)[VECTORS]
    embedder = build_embedder(with_recorded_embedder(settings, of_vectors.recipe.config), "query_embedding")
    return [_find(database, generation, of_vectors, embedder, question) for question in questions]


def recall(finds: Iterable[QuestionFinds]) -> float | None:
    """The share of the questions with something expected that find it; None if nothing is expected."""
    return _mean(float(find.is_found) for find in finds if find.is_found is not None)


def coverage(finds: Iterable[QuestionFinds]) -> float | None:
    """The average share of their evidence that the questions find; None if none of them has any."""
    return _mean(find.coverage for find in finds if find.coverage is not None)


def _mean(shares: Iterable[float]) -> float | None:
    values = list(shares)
    return round(fmean(values), 3) if values else None


def _find(
    database: Database, generation: Generation, of_vectors: Generation, embedder: Embedder, asked: Question
) -> QuestionFinds:
    identity = _identity_of(database, asked)
    prefix = Prefixes.of_config(of_vectors.recipe.config).query
    (vector,) = embedder.embed([prefix + asked.question]).vectors
    query = SearchQuery(
        asked.question, query_lexemes(asked.question), vector_text(vector) if vector else None, None
    )
    facts: dict[str, Any] = {"kinds": ("message",)}
    if generation.pipeline == FACTS:
        facts = {"kinds": ("fact",), "facts_generation_id": generation.generation_id}
    vectors = Vectors(of_vectors.generation_id, of_vectors.recipe.config)
    target = Target(identity, "owner", shared_key=None, **facts)
    hits = database.run(rank_hits(query, vectors, target, limit=LOOKED_AT, similarity_cutoff=0.0))
    texts = tuple(one.text for hit in hits for one in (hit.messages if hit.fact is None else [hit.fact]))
    expected = asked.expect
    return QuestionFinds(
        texts=texts,
        is_found=None if expected is None else any(expected.casefold() in text.casefold() for text in texts),
        coverage=_coverage(database, generation, identity, asked, hits) if asked.evidence else None,
    )


def _identity_of(database: Database, asked: Question) -> SessionIdentity:
    if asked.session is not None:
        return find_session(database, asked.session, namespace=asked.namespace, user_id=asked.user)
    check_known(database, namespace=asked.namespace, user_id=asked.user)
    return identify_session(asked.namespace, asked.user or "", asked.user)


def _coverage(
    database: Database,
    generation: Generation,
    identity: SessionIdentity,
    asked: Question,
    hits: Sequence[Hit],
) -> float:
    places = {(hit.session_key, message.seq) for hit in hits for message in hit.messages}
    fact_ids: list[UUID] = [hit.fact.fact_id for hit in hits if hit.fact is not None]
    if fact_ids:
        rows = database.fetch(
            CitedMessages(
                shard_key=identity.shard_key, generation_id=generation.generation_id, fact_ids=fact_ids
            )
        )
        places |= {(row.session_key, row.seq) for row in rows}
    seqs = set(asked.evidence)
    return len({seq for key, seq in places if key == identity.session_key} & seqs) / len(seqs)


@command.add("list", opened_servers, GenerationsReport)
@pipeline_filter
def list_command(running: Running, pipeline: str | None) -> Output:
    """List generations, and replays that are not finished."""
    report = generations_report(running.database, running.settings, pipeline)
    if pipeline is not None and not report.generations:
        recipe_for(pipeline, running.settings)  # refuses a pipeline that is not known here
    return Output(report, list(_lines(report)) or ["no generations"])


@command.add("diff", opened_servers, DiffReport)
@click.argument("generation", type=int)
@click.option("--against", type=int, metavar="GENERATION", help="Compare with this one, not the serving one.")
@click.option("--namespace", metavar="NAME", help="Only owners of this namespace.")
@click.option("--user", "user_id", metavar="ID", help="Only this user.")
@click.option("--session", "session_id", metavar="ID", help="Only the owner of this session.")
@click.option(
    "--owners",
    "max_owners",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="Show at most this many.",
)
@click.option(
    "--questions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Show what a search finds for these, too: JSON lines with question, user or session, and perhaps"
    " expect or evidence.",
)
def diff_command(
    running: Running,
    generation: int,
    against: int | None,
    max_owners: int,
    questions: Path | None,
    **whose: Any,
) -> Output:
    """Show how the memory of GENERATION differs from that of its pipeline's serving generation.

    GENERATION is a number, as `strandline generations list` shows it. To compare two others, name the first
    with --against.
    """
    if whose["namespace"] is None and (whose["user_id"] is not None or whose["session_id"] is not None):
        whose["namespace"] = DEFAULT_NAMESPACE
    database = running.database
    check_known(database, **whose)
    diff = compare_generations(database, generation, against, max_owners=max_owners, **whose)
    asked = [] if questions is None else read_questions(questions)
    old, new = (
        find_answers(database, find_kept(database, number), asked, running.settings) if asked else []
        for number in (diff.old, diff.new)
    )
    answers = [
        QuestionReport(
            question=question.question,
            found_old=list(before.texts),
            found_new=list(after.texts),
            expected_old=before.is_found,
            expected_new=after.is_found,
            coverage_old=before.coverage,
            coverage_new=after.coverage,
        )
        for question, before, after in zip(asked, old, new, strict=True)
    ]
    report = DiffReport.model_validate(
        asdict(diff)
        | {"recall_old": recall(old), "recall_new": recall(new)}
        | {"coverage_old": coverage(old), "coverage_new": coverage(new)}
        | {"questions": answers}
    )
    return Output(report, [*_diff_lines(diff), *_question_lines(report)])


@command.add("promote", opened_database, SwitchReport)
@click.argument("generation", type=int)
@click.option(
    "--namespace", metavar="NAME", default=DEFAULT_NAMESPACE, help="The namespace of the user or session."
)
@click.option("--user", "user_id", metavar="ID", help="Only for this user.")
@click.option(
    "--session", "session_id", metavar="ID", help="Only for the owner of this session, if it has no user."
)
def promote_command(database: Database, generation: int, **whom: Any) -> Output:
    """Let a generation serve all owners that it covers, or one owner.

    The earlier generation stays fed, so that `rollback` takes effect at once; its model calls cost money
    until `prune`.
    """
    return _show_switch(promote(database, generation, Promotion.model_construct(**whom)))


@command.add("rollback", opened_database, SwitchReport)
@click.option("--pipeline", required=True, metavar="NAME")
def rollback_command(database: Database, pipeline: str) -> Output:
    """Roll back to the generation that served before, for all owners at once."""
    return _show_switch(serve_earlier(database, pipeline))


@command.add("prune", opened_database, SwitchReport)
@click.argument("generation", type=int)
def prune_command(database: Database, generation: int) -> Output:
    """Delete a generation that does not serve; the cost of its model calls stays on record."""
    return _show_switch(delete_generation(database, generation))


def _lines(report: GenerationsReport) -> Iterator[str]:
    for item in report.generations:
        made_with = item.made_with.get("model") or item.made_with.get("embedder") or f"version {item.version}"
        size = f" {item.made_with['dimensions']}" if "dimensions" in item.made_with else ""
        owners = f", serves {quantity(item.owners, 'owner')}" if item.owners else ""
        yield (
            f"{item.pipeline} {item.generation}: {item.state}, {made_with}{size}, due {item.due:,},"
            f" dead {item.dead:,}{owners}"
        )
        if item.differences:
            yield (
                f"  the settings differ ({'; '.join(item.differences)});"
                f" derive with them: strandline replay --new --pipeline {item.pipeline}"
            )
    for replay in report.replays:
        yield (
            f"replay {replay.replay_id} ({replay.kind}) of {replay.pipeline}, generation"
            f" {replay.generation}: {replay.state}, {replay.counts.get('phase', 'under way')}"
        )


def _diff_lines(diff: Diff) -> Iterator[str]:
    totals = ", ".join(
        f"{name} {diff.totals.get(name, 0):,}" for name in ("added", "changed", "gone", "same")
    )
    yield f"{diff.pipeline}, generation {diff.new} against {diff.old}: {totals}"
    for owner in diff.owners:
        yield f"{owner.user_id or owner.session_id} ({owner.namespace})"
        yield from _owner_lines(owner)


def _owner_lines(owner: OwnerDiff) -> Iterator[str]:
    signs = {"added": "+", "gone": "-", "changed": "~"}
    for fact in owner.facts:
        both = f"{fact.before} -> {fact.after}" if fact.change == "changed" else fact.after or fact.before
        yield f"  {signs[fact.change]} {both}"
    for state in owner.states:
        yield f"  {state.session_id or 'owner'}"
        yield f"    before: {state.before}"
        yield f"    after:  {state.after}"


def _question_lines(report: DiffReport) -> Iterator[str]:
    for one in report.questions:
        gone = [text for text in one.found_old if text not in one.found_new]
        added = [text for text in one.found_new if text not in one.found_old]
        if gone or added or one.coverage_old != one.coverage_new:
            yield f"question: {one.question}{_change(', coverage', one.coverage_old, one.coverage_new)}"
            yield from (f"  - {text}" for text in gone)
            yield from (f"  + {text}" for text in added)
    for name, old, new in (
        ("recall on the questions:", report.recall_old, report.recall_new),
        ("coverage of their evidence:", report.coverage_old, report.coverage_new),
    ):
        if line := _change(name, old, new):
            yield line


def _change(name: str, old: float | None, new: float | None) -> str:
    return "" if old is None or new is None else f"{name} {old:.1%} before, {new:.1%} after"


def _show_switch(report: SwitchReport) -> Output:
    return Output(report, [f"generation {report.generation} of {report.pipeline}: {report.done}"])
