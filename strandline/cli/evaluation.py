"""``strandline eval``: what searches and reads give for questions of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Self, TypeVar

import click
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SecretStr,
    ValidationError,
    model_validator,
)

from strandline.cli.command import Output, cli_command
from strandline.cli.servers.options import namespace_option, settings_alone
from strandline.cli.servers.targets import servers_for_once
from strandline.cli.terminal.interrupts import Stop, stops_at_signals
from strandline.cli.terminal.output import percentile, table
from strandline.cli.terminal.progress import shown_progress
from strandline.memory import Memory
from strandline.pipelines.generations.registry import find_kept
from strandline.pipelines.inspect.directory import check_known, find_session
from strandline.pipelines.inspect.sessions import session_state
from strandline.pipelines.models.local.text_model import is_local_embedder
from strandline.producers.blocks.resolve import default_blocks, owner_wide, stored_blocks
from strandline.producers.evaluation.asking import Answer, Measured, Subject, measure
from strandline.producers.search.ranking import Vectors
from strandline.producers.search.search import MAX_LIMIT
from strandline.producers.tokens import count_default
from strandline.schemas.display.refused_values import describe_refusal
from strandline.schemas.display.shown_text import quantity, quote
from strandline.schemas.errors import ConfigurationError, InvalidMessageError, NotFoundError
from strandline.schemas.foreign_json import read_json
from strandline.schemas.prices import cost_usd
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.lanes import VECTORS
from strandline.schemas.values.stored_text import check_text
from strandline.schemas.wire.report import Report
from strandline.wiring.runtime import Runtime, runtime_for


class LineProblem(Report):
    """Why a line of the file was not measured; ``field`` null: it is of no one field."""

    line: int
    field: str | None
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.field + ': ' if self.field else ''}{self.reason}"


def _check(text: str) -> str:
    try:
        check_text("", text)
    except InvalidMessageError as error:
        raise ValueError(error.problem) from None
    if not text.strip():
        raise ValueError("is empty")
    return text


Text = Annotated[str, AfterValidator(_check)]
Texts = Annotated[list[Text], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class Line(BaseModel):
    """The base of a line in a file of questions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    question: Text


L = TypeVar("L", bound=Line)


class Question(Line):
    """A question, whose it is, and what answers it: messages by id, or words that a read has to give."""

    evidence: Texts = []
    expected: Texts = []
    session_id: Text | None = None
    user_id: Text | None = None
    namespace: Text | None = None

    @model_validator(mode="after")
    def _has_an_answer(self) -> Self:
        if not (self.evidence or self.expected):
            raise ValueError("evidence, ids of messages, or expected, words, must say what answers it")
        return self


def read_lines(path: Path, kind: type[L]) -> Iterator[tuple[int, L | list[LineProblem]]]:
    """Each line that is not blank, by its number: its JSON object, or its fault.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, _read(number, line, kind)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None


def _read(number: int, line: bytes, kind: type[L]) -> L | list[LineProblem]:
    try:
        value = read_json(line.decode("utf-8-sig"))
        if not isinstance(value, dict):
            raise ValueError("it is of another type")
        return kind.model_validate(value)
    except ValidationError as error:
        problems = [
            (".".join(map(str, item["loc"])), describe_refusal({**item, "loc": item["loc"][-1:]}))
            for item in error.errors(include_input=False, include_url=False)
        ]
    except (ValueError, RecursionError) as error:
        problems = [("", f"is not a JSON object in UTF-8: {error}")]
    return [LineProblem(line=number, field=field or None, reason=reason) for field, reason in problems]


@dataclass(slots=True)
class Embeddings:
    """Embeds queries, and counts; ``usd`` None: a model has no price."""

    runtime: Runtime
    calls: int = 0
    usd: Decimal | None = Decimal(0)

    def embed(self, text: str, config: Mapping[str, Any]) -> str | None:
        vector = self.runtime.embed_query(text, config)
        if vector:
            self.calls += 1
            model, prices = str(config.get("embedder")), self.runtime.settings.model_prices
            price = cost_usd(prices, model, input_tokens=count_default(text), output_tokens=0)
            price = Decimal(0) if is_local_embedder(model) else price
            self.usd = None if price is None or self.usd is None else self.usd + price
        return vector


def vectors_of(runtime: Runtime, generation: int) -> Vectors:
    """The search parameters of a generation of vectors.

    Raises:
        UnknownReplayError: it does not exist, or it was pruned.
        ConfigurationError: it is of another pipeline, or it is still being filled.
    """
    kept = find_kept(runtime.database(), generation)
    if kept.pipeline != VECTORS:
        raise ConfigurationError(
            f"Generation {generation} is of {kept.pipeline}, and messages are searched by vectors;"
            " `strandline generations list --pipeline vectors` lists those to choose from."
        )
    if not kept.is_filled:
        raise ConfigurationError(
            f"Generation {generation} is still being filled, so its searches would miss messages;"
            " `strandline generations list` shows how far its replay is."
        )
    return Vectors(generation, kept.recipe.config)


@dataclass(slots=True)
class Subjects:
    """Whose memories the questions ask; each is found once."""

    runtime: Runtime
    token_limit: int | None
    known: dict[tuple[str, str | None, str | None], Subject] = field(default_factory=dict)

    def find(self, line: int, asked: Question) -> tuple[Subject, Answer] | LineProblem:
        """Whom a question asks and what answers it, or why it cannot be asked."""
        place = asked.namespace or "", asked.session_id, asked.user_id
        name = "user_id" if asked.session_id is None else "session_id"
        try:
            subject = self.known.get(place) or self.known.setdefault(place, self._make(*place))
        except (NotFoundError, InvalidMessageError) as error:
            return LineProblem(line=line, field=name, reason=str(error))
        answer = Answer.of(subject, asked.evidence, asked.expected)
        if missing := [quote(one) for one in asked.evidence if one not in answer.messages]:
            reason = f"no message that may be read has the id {', '.join(missing)}"
            return LineProblem(line=line, field="evidence", reason=reason)
        return subject, answer

    def _make(self, namespace: str, session_id: str | None, user_id: str | None) -> Subject:
        database, runtime = self.runtime.database(), self.runtime
        named: dict[str, Any] = {"user_id": user_id, "namespace": namespace}
        if session_id is None and user_id is None:
            raise NotFoundError("neither a session nor a user is named, here or by --session or --user")
        if session_id is None:
            check_known(database, **named)
            memory = Memory.from_defaults(
                token_limit=self.token_limit, memory_blocks=owner_wide(default_blocks()), **named
            )
            identity = identify_session(namespace, memory.session_id, user_id)
        else:
            identity = find_session(database, session_id, **named)
            policy = session_state(database, identity).policy
            memory = Memory.from_defaults(
                session_id,
                token_limit=self.token_limit or policy.token_limit,
                memory_blocks=stored_blocks(policy.pipelines, policy.max_facts),
                **named,
            )
        scope: Any = "owner" if session_id is None else "session"
        blocks, limit = memory.memory_blocks, memory.token_limit
        subject = Subject(runtime, identity, scope, blocks=blocks, token_limit=limit)
        subject.read("")  # so that no generation pays for the first read of a session
        return subject


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
Columns = Sequence[tuple[Vectors | None, Embeddings]]


class FiguresReport(Report):
    """All questions in one generation (null: what serves), as means; shares are from 0 to 1.

    ``recall`` is of answers in the first hits, ``context_recall`` in reads; ``any_…`` and ``all_…`` are
    shares of questions.  ``cost_usd`` is of the embedding calls, null without a price.  ``by_words`` counts
    questions without a vector.
    """

    generation: int | None
    recall: float
    any_found: float
    all_found: float
    context_recall: float
    any_given: float
    all_given: float
    tokens: float
    over_limit: int
    search_ms_p50: float
    search_ms_p95: float
    read_ms_p50: float
    read_ms_p95: float
    embedding_calls: int
    cost_usd: float | None
    by_words: int


class AskedReport(Report):
    """A question in each generation, and in the earlier result (``before``)."""

    line: int
    namespace: str
    session_id: str | None
    user_id: str | None
    question: str
    measured: list[Measured]
    before: Measured | None


class EvalReport(Report):
    """``strandline eval``: of the first ``k`` hits; ``before`` are the figures of an earlier result."""

    k: int
    token_limit: int | None
    interrupted: bool
    figures: list[FiguresReport]
    before: FiguresReport | None
    questions: list[AskedReport]
    problems: list[LineProblem]


@cli_command("eval", settings_alone, EvalReport)
@click.argument("questions", type=_FILE)
@namespace_option
@click.option("--session", "session_id", metavar="ID", help="The session of questions that name none.")
@click.option("--user", "user_id", metavar="ID", help="The user of questions that name none.")
@click.option(
    "--k", type=click.IntRange(1, MAX_LIMIT), default=10, show_default=True, help="Hits that count."
)
@click.option(
    "--token-limit", type=click.IntRange(4), metavar="N", help="Of each read; default: the session's."
)
@click.option("--generation", "numbers", type=int, multiple=True, help="Search this one; repeat to compare.")
@click.option("--against", type=_FILE, help="Compare with an earlier result, saved from --json.")
def command(
    settings: Settings,
    questions: Path,
    k: int,
    token_limit: int | None,
    numbers: tuple[int, ...],
    against: Path | None,
    **whose: str | None,
) -> Output:
    """Measure what searches and reads give for the questions in the file QUESTIONS.

    It has a JSON object per line: "question", and "evidence" (ids of messages) or "expected" (words); perhaps
    "session_id", "user_id" and "namespace". The only model calls embed the questions; nothing is written.
    """
    earlier = None if against is None else _read_earlier(against, k)
    lines = dict(read_lines(questions, Question))
    problems = [problem for one in lines.values() if isinstance(one, list) for problem in one]
    asked = {
        number: one.model_copy(update={name: getattr(one, name) or whose[name] for name in whose})
        for number, one in lines.items()
        if isinstance(one, Question)
    }
    with servers_for_once(settings) as servers:
        own = {"database_url": SecretStr(servers.database_url), "broker_url": None}
        with closing(runtime_for(settings.model_copy(update=own))) as runtime, stops_at_signals() as stop:
            generations: list[Vectors | None] = [vectors_of(runtime, number) for number in numbers]
            columns = [(vectors, Embeddings(runtime)) for vectors in generations or [None]]
            measured = _ask(Subjects(runtime, token_limit), asked, columns, k, problems, stop)
    known = {_key(one): one.measured[0] for one in earlier.questions} if earlier else {}
    report = EvalReport(
        k=k,
        token_limit=token_limit,
        interrupted=stop.is_set(),
        figures=[
            _figures([one.measured[at] for one in measured], embeddings)
            for at, (_, embeddings) in enumerate(columns if measured else ())
        ],
        before=earlier.figures[0] if earlier else None,
        questions=[one.model_copy(update={"before": known.get(_key(one))}) for one in measured],
        problems=sorted(problems, key=lambda one: one.line),
    )
    return Output(report, _lines(report), stop.exit_code or (1 if problems else 0), _notes(report))


def _ask(
    subjects: Subjects,
    asked: dict[int, Question],
    columns: Columns,
    k: int,
    problems: list[LineProblem],
    stop: Stop,
) -> list[AskedReport]:
    reports = []
    with shown_progress("asking", "question") as progress:
        for done, (line, one) in enumerate(asked.items(), start=1):
            if stop.is_set():
                break
            target = subjects.find(line, one)
            if isinstance(target, LineProblem):
                problems.append(target)
                continue
            subject, answer = target
            measured = [
                measure(replace(subject, vectors=vectors, embed_query=by.embed), one.question, answer, k)
                for vectors, by in columns
            ]
            whose = one.model_dump(exclude={"evidence", "expected"})
            reports.append(AskedReport(line=line, measured=measured, before=None, **whose))
            progress(done, len(asked), f"{done:,} of {len(asked):,} asked")
    return reports


def _figures(measured: Sequence[Measured], embeddings: Embeddings) -> FiguresReport:
    recalls, of_reads = [one.recall for one in measured], [one.context_recall for one in measured]
    searches, reads = [one.search_ms for one in measured], [one.read_ms for one in measured]
    return FiguresReport(
        generation=measured[0].generation,
        recall=_mean(recalls),
        any_found=_mean([share > 0 for share in recalls]),
        all_found=_mean([share == 1 for share in recalls]),
        context_recall=_mean(of_reads),
        any_given=_mean([share > 0 for share in of_reads]),
        all_given=_mean([share == 1 for share in of_reads]),
        tokens=_mean([one.tokens for one in measured]),
        over_limit=sum(one.over_limit for one in measured),
        search_ms_p50=percentile(searches, 0.5),
        search_ms_p95=percentile(searches, 0.95),
        read_ms_p50=percentile(reads, 0.5),
        read_ms_p95=percentile(reads, 0.95),
        embedding_calls=embeddings.calls,
        cost_usd=None if embeddings.usd is None else float(embeddings.usd),
        by_words=sum(one.problem is not None for one in measured),
    )


def _mean(values: Sequence[float]) -> float:
    return round(fmean(values), 4)


def _key(asked: AskedReport) -> tuple[str | None, ...]:
    return asked.namespace, asked.session_id, asked.user_id, asked.question


def _read_earlier(path: Path, k: int) -> EvalReport:
    try:
        earlier = EvalReport.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        raise ConfigurationError(f"{path} is not what `strandline eval --json` printed.") from None
    if not earlier.figures or earlier.k != k:
        held = f"has figures of the first {earlier.k} hits" if earlier.figures else "has no figures"
        raise ConfigurationError(f"{path} {held}; measure it again, or give the same --k.")
    return earlier


def _lines(report: EvalReport) -> Iterator[str]:
    before = [] if report.before is None else [("before", report.before)]
    columns = [*before, *((_title(one.generation), one) for one in report.figures)]
    if report.figures:
        rows = [
            (title.format(k=report.k), *(text.format(one).replace("None", "unknown") for _, one in columns))
            for title, text in _ROWS
        ]
        yield from table(
            [quantity(len(report.questions), "question"), *(title for title, _ in columns)], rows
        )
    for asked in report.questions:
        yield from _changes(asked)


def _notes(report: EvalReport) -> Iterator[str]:
    reasons = {one.problem for asked in report.questions for one in asked.measured if one.problem}
    yield from (f"compared by words alone: {reason}" for reason in sorted(reasons))
    yield from (f"not measured: {problem}" for problem in report.problems)
    if report.interrupted:
        yield "interrupted; the figures are of the questions asked until then"


def _title(generation: int | None) -> str:
    return "what serves" if generation is None else f"generation {generation}"


_ROWS = (
    ("R@{k}, found", "{0.recall:.1%}"),
    ("any, all of it found", "{0.any_found:.1%}, {0.all_found:.1%}"),
    ("context recall, given", "{0.context_recall:.1%}"),
    ("any, all of it given", "{0.any_given:.1%}, {0.all_given:.1%}"),
    ("tokens of a read", "{0.tokens:,.0f}"),
    ("reads over the limit", "{0.over_limit:,}"),
    ("ms of a search, p50, p95", "{0.search_ms_p50:.1f}, {0.search_ms_p95:.1f}"),
    ("ms of a read, p50, p95", "{0.read_ms_p50:.1f}, {0.read_ms_p95:.1f}"),
    ("embedding calls", "{0.embedding_calls:,}"),
    ("cost, USD", "{0.cost_usd}"),
    ("questions by words alone", "{0.by_words:,}"),
)


def _changes(asked: AskedReport) -> Iterator[str]:
    first, *others = [*([asked.before] if asked.before else []), *asked.measured]
    for one in others:
        change = one.recall + one.context_recall - first.recall - first.context_recall
        if change or one.recall != first.recall:
            yield (
                f"{'better' if change > 0 else 'worse'} in {_title(one.generation)}:"
                f" found {first.recall:.0%} -> {one.recall:.0%},"
                f" given {first.context_recall:.0%} -> {one.context_recall:.0%}: {asked.question}"
            )
