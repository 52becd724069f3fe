"""``strandline demo``: a conversation through the real pipeline, with its checks and figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console

from strandline.cli.demo.checks import Outcome, checks, figures
from strandline.cli.demo.environment import DemoEnvironment, demo_environment
from strandline.cli.demo.file import Conversation, read_conversation
from strandline.cli.demo.observer import Look, Observer, look_at
from strandline.cli.demo.play import Played, await_consumed, play
from strandline.cli.demo.questions import add_up, ask
from strandline.cli.demo.reports import AnswerReport, DemoReport, EvidenceReport
from strandline.cli.demo.story import Story
from strandline.cli.demo.view import LiveView, PlainView, View
from strandline.cli.servers.local_service import START_SECONDS, local_service
from strandline.cli.servers.models_used import ModelsUsed, models_used
from strandline.cli.terminal.interrupts import Interrupts, ends_as_interrupts
from strandline.cli.terminal.logs import log_to_stderr
from strandline.cli.terminal.numbers import FiniteRange
from strandline.cli.terminal.output import console, is_rich, print_json
from strandline.deploy.supervisor import Supervisor
from strandline.memory import Memory
from strandline.pipelines.generations.registry import serving_generations
from strandline.pipelines.models.local.text_model import LOCAL_EMBEDDERS
from strandline.producers.facts.listing import Fact
from strandline.producers.tokens import count_default, count_message
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, check_name, identify_session
from strandline.schemas.values.lanes import VECTORS
from strandline.schemas.values.message import Message
from strandline.schemas.values.policy import FLUSH_SIZE_REPAIR_RATIO, MAX_INTEGER
from strandline.wiring.runtime import runtime_for
from strandline.workers.signal_pipe import SignalPipe, ending_signals

USER_ID = "demo"
TOKEN_LIMIT, FLUSH_SIZE = 4_000, 700
HISTORY_RATIO = 0.5
FACTS_PER_PAGE = 1_000

# Reads on the way; with a model server each of them calls it.
LOCAL_READS, SERVED_READS = 100, 20

# How long the demo waits for a next step of the work before it gives up: with a worker, and while it waits
# for a person to start one. However slow a model or a machine is, what goes on is waited for.
PATIENCE_SECONDS, ALONE_PATIENCE_SECONDS = 120.0, 300.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the command line."""

    token_limit: int
    flush_size: int
    session_id: str
    pace_seconds: float
    all_questions: bool
    keep: bool
    stay: bool
    restart: bool
    as_json: bool


@click.command("demo")
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path),
    metavar="CHAT.jsonl",
    help='One {"role", "content"} per line; default: the sample that ships.',
)
@click.option(
    "--questions",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Questions with answers and evidence; default: CHAT.qa.json beside the file.",
)
@click.option("--all-questions", is_flag=True, help="Show each question in full, not one of them.")
@click.option(
    "--token-limit",
    type=click.IntRange(1, MAX_INTEGER),
    metavar="N",
    help=f"Maximum tokens of a read; default: {TOKEN_LIMIT}, or more if a message needs it.",
)
@click.option(
    "--flush-size",
    type=click.IntRange(1, MAX_INTEGER),
    metavar="N",
    help=f"Minimum tokens of one flush event; default: {FLUSH_SIZE}, or less with a small limit.",
)
@click.option("--session-id", metavar="ID", help="Default: the file's name.")
@click.option("--pace", type=FiniteRange(0), default=0.0, metavar="SECONDS", help="Wait between puts.")
@click.option("--no-restart", is_flag=True, help="Do not restart a worker that dies; start another by hand.")
@click.option("--stay", is_flag=True, help="Keep everything running at the end, until Ctrl-C.")
@click.option("--keep", is_flag=True, help="Keep the temporary home directory with its database.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; the play goes to stderr.")
def command(
    file: Path | None,
    questions: Path | None,
    all_questions: bool,
    token_limit: int | None,
    flush_size: int | None,
    session_id: str | None,
    pace: float,
    no_restart: bool,
    stay: bool,
    keep: bool,
    as_json: bool,
) -> int:
    """Play a conversation through the real pipeline: embedded Postgres and broker, a worker process.

    Shows the window fill and flush, the events consumed, and the resulting memory; then asks questions.
    Exits with 1 if a message was lost, an event was not consumed in time, or another check failed.
    """
    log_to_stderr("WARNING")
    conversation = read_conversation(file, questions, load_settings())
    limit = _token_limit(token_limit, conversation)
    options = DemoOptions(
        token_limit=limit,
        flush_size=_flush_size(flush_size, limit),
        session_id=check_name("--session-id", conversation.path.stem if session_id is None else session_id),
        pace_seconds=pace,
        all_questions=all_questions,
        keep=keep,
        stay=stay,
        restart=not no_restart,
        as_json=as_json,
    )
    with ends_as_interrupts() as interrupts:
        report = _Demo(conversation, options, interrupts).run()
    if as_json:
        print_json(report)
    return 0 if report.ok else 1


def smallest_token_limit(messages: Sequence[Message]) -> int:
    """The smallest limit whose mark the largest message does not exceed.

    Under a lower limit that message is flushed alone.
    """
    return math.ceil(max(count_message(message, count_default) for message in messages) / HISTORY_RATIO)


def _token_limit(token_limit: int | None, conversation: Conversation) -> int:
    smallest = smallest_token_limit(conversation.messages)
    if token_limit is None:
        return max(TOKEN_LIMIT, smallest)
    if token_limit < smallest:
        raise click.UsageError(
            f"--token-limit {token_limit} is too small for the largest message of {conversation.path.name};"
            f" the smallest limit that works is {smallest}."
        )
    return token_limit


def _flush_size(flush_size: int | None, token_limit: int) -> int:
    if flush_size is None:
        return max(1, min(FLUSH_SIZE, int(token_limit * FLUSH_SIZE_REPAIR_RATIO)))
    if flush_size > token_limit:
        raise click.UsageError(
            f"--flush-size {flush_size} is above the token limit, {token_limit}, so no flush would be in"
            " time; lower it, or raise --token-limit."
        )
    return flush_size


class _Demo:
    """One run from start to end."""

    def __init__(self, conversation: Conversation, options: DemoOptions, interrupts: Interrupts) -> None:
        self._conversation = conversation
        self._options = options
        self._interrupts = interrupts
        self._console: Console = console(stderr=options.as_json)
        self._story = Story(self._console)
        self._view: View | None = None

    def run(self) -> DemoReport:
        status = self._console.status("starting PostgreSQL, the broker and a worker")
        live = is_rich(stderr=self._options.as_json)
        if live:
            status.start()
        else:
            self._console.print("starting PostgreSQL, the broker and a worker")
        try:
            with demo_environment(
                restart=self._options.restart,
                keep=self._options.keep,
                say=self._note,
                check=self._interrupts.check,
            ) as environment:
                models = models_used(environment.settings)
                memory = self._memory(environment)
                _warm_up(environment)
                status.stop()
                try:
                    return self._perform(environment, memory, models)
                finally:
                    memory.close()
        finally:
            status.stop()

    def _perform(self, environment: DemoEnvironment, memory: Memory, models: ModelsUsed) -> DemoReport:
        story = self._story
        story.open(self._conversation, models, environment.home)
        story.worker(environment.worker_pid, environment.attach)
        outcome = self._play(environment, memory, models)
        self._tell(memory, outcome)
        answers, evidence = self._ask(memory, outcome)
        results = checks(outcome)
        measured = figures(outcome)
        story.checks(results)
        story.figures(measured)
        pids = sorted(environment.worker.pids())
        story.close(pids, environment.attach, stays=self._options.stay)
        if self._options.stay:
            self._stay(environment, memory.session_id)
        return DemoReport(
            ok=all(check.ok for check in results),
            session_id=memory.session_id,
            user_id=USER_ID,
            file=str(self._conversation.path),
            home=str(environment.home),
            worker_pid=pids[0] if pids else None,
            checks=results,
            figures=measured,
            questions=answers,
            evidence=evidence,
        )

    def _stay(self, environment: DemoEnvironment, session_id: str) -> None:
        """Keep all of it running until a signal, with the HTTP service beside."""
        with local_service(
            environment.database,
            environment.servers,
            environment.settings,
            log_path=environment.home / "service.log",
        ) as service:
            if service is None:
                _await_signal(self._interrupts)
                return
            with Supervisor([service.command], say=self._note):
                # A line that is shown works at once.
                if service.await_ready(pause=self._interrupts.pause, timeout_seconds=START_SECONDS):
                    self._story.service(service.curl(session_id, USER_ID))
                else:
                    self._note(f"the HTTP service does not answer yet; {service.command.log_path} says why")
                _await_signal(self._interrupts)

    def _play(self, environment: DemoEnvironment, memory: Memory, models: ModelsUsed) -> Outcome:
        pipelines = [block.pipeline for block in memory.memory_blocks if block.pipeline is not None]
        identity = identify_session(DEFAULT_NAMESPACE, memory.session_id, USER_ID)
        served = not (models.text_is_local and models.embedding_is_local)
        messages = self._conversation.messages
        kind = LiveView if is_rich(stderr=self._options.as_json) else PlainView
        view = self._view = kind(self._console, total=len(messages), pipelines=pipelines)
        view.start()
        try:
            with Observer(environment.database, identity, view.look):
                played = play(
                    memory,
                    messages,
                    reads=SERVED_READS if served else LOCAL_READS,
                    pace_seconds=self._options.pace_seconds,
                    on_put=view.put,
                    interrupts=self._interrupts,
                )
                seen, waited = await_consumed(
                    lambda: look_at(environment.database, identity),
                    pipelines,
                    since=played.ended_at,
                    patience_seconds=lambda: _patience(environment),
                    interrupts=self._interrupts,
                )
            view.look(seen)
        finally:
            self._view = None
            view.stop()
        return self._outcome(environment, memory, models, played, seen, waited, pipelines)

    def _outcome(
        self,
        environment: DemoEnvironment,
        memory: Memory,
        models: ModelsUsed,
        played: Played,
        seen: Look,
        waited: float | None,
        pipelines: list[str],
    ) -> Outcome:
        return Outcome(
            sent=self._conversation.messages,
            stored=memory.get_all(),
            facts=_all_facts(memory),
            look=seen,
            played=played,
            pipelines=pipelines,
            token_limit=memory.token_limit,
            consumed_after=waited,
            worker_ends=environment.worker.ends,
            models=models,
        )

    def _tell(self, memory: Memory, outcome: Outcome) -> None:
        self._story.facts(outcome.facts, outcome.look)
        self._story.summary(outcome.look)
        self._story.coverage(memory.get())

    def _ask(self, memory: Memory, outcome: Outcome) -> tuple[list[AnswerReport], EvidenceReport | None]:
        history: list[Message] = list(outcome.stored)
        answers = [
            ask(memory, question, history=history, samples=outcome.played.samples)
            for question in self._conversation.questions
        ]
        evidence = add_up(
            answers,
            token_limit=memory.token_limit,
            conversation_tokens=sum(message.tokens or 0 for message in history),
        )
        self._story.answers(answers, in_full=self._options.all_questions)
        if evidence is not None:
            self._story.evidence(evidence, stand_ins=outcome.models.text_is_local)
        return answers, evidence

    def _memory(self, environment: DemoEnvironment) -> Memory:
        return Memory.from_defaults(
            self._options.session_id,
            user_id=USER_ID,
            token_limit=self._options.token_limit,
            chat_history_token_ratio=HISTORY_RATIO,
            token_flush_size=self._options.flush_size,
            database_url=environment.servers.database_url,
            broker_url=environment.servers.broker_url,
        )

    def _note(self, line: str) -> None:
        view = self._view
        if view is not None:
            view.note(line)
        else:
            self._story.line(line, "yellow")


def _patience(environment: DemoEnvironment) -> float:
    """How long to wait for a next step; longer where a person is to start another worker first."""
    alone = environment.worker.ends and not environment.worker.pids()
    return ALONE_PATIENCE_SECONDS if alone else PATIENCE_SECONDS


def _warm_up(environment: DemoEnvironment) -> None:
    """Load vocabulary and embedding model before anything is measured: a backend does so at its start."""
    count_default("warm-up")
    vectors = serving_generations(environment.database).get(VECTORS)
    if vectors is not None and load_settings().backend("embedding") in LOCAL_EMBEDDERS:
        settings = load_settings(
            database_url=environment.servers.database_url, broker_url=environment.servers.broker_url
        )
        runtime_for(settings).embed_query("warm-up", vectors.recipe.config)


def _await_signal(interrupts: Interrupts) -> None:
    with SignalPipe(ending_signals()) as signals:
        interrupts.check()
        signals.wait()


def _all_facts(memory: Memory) -> list[Fact]:
    facts: list[Fact] = []
    while page := memory.facts.list(limit=FACTS_PER_PAGE, offset=len(facts)):
        facts += page
    return facts
