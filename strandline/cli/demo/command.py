"""``strandline demo``: a conversation through the real pipeline, with its checks and figures."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from strandline.cli.demo.play import Conversation, Look, Play, await_consumed, look_at, read_conversation
from strandline.cli.demo.story import DemoReport, PlayView, Story, add_up, ask, checks, figures
from strandline.cli.servers.options import FiniteRange
from strandline.cli.servers.processes import (
    START_SECONDS,
    ModelsUsed,
    await_worker,
    live_workers,
    local_service,
    models_used,
    worker_command,
)
from strandline.cli.servers.targets import Running, opened_pool, started_servers
from strandline.cli.terminal.interrupts import Interrupts, ends_as_interrupts
from strandline.cli.terminal.output import console, print_json, program
from strandline.cli.terminal.streams import log_to_stderr
from strandline.deploy.embedded.processes import wait_gone
from strandline.deploy.supervisor import Supervisor
from strandline.memory import Memory
from strandline.pipelines.generations.registry import serving_generations
from strandline.producers.tokens import count_default, count_message
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConfigurationError, StrandlineError
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, check_name, identify_session
from strandline.schemas.values.lanes import VECTORS
from strandline.schemas.values.message import Message
from strandline.schemas.values.policy import FLUSH_SIZE_REPAIR_RATIO, MAX_INTEGER
from strandline.wiring.assembly import ensure_tables
from strandline.wiring.runtime import runtime_for
from strandline.workers.signal_pipe import SignalPipe, ending_signals

_WORKER_START_SECONDS = 60.0
_ATTACHED_END_SECONDS = 15.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DemoEnvironment:
    """The servers of the demo, the worker process, and the command that starts another one by hand."""

    running: Running
    supervisor: Supervisor
    attach: str

    @property
    def home(self) -> Path:
        return self.running.settings.home

    def worker_pids(self) -> set[int]:
        """The workers that the demo itself runs."""
        return set(self.supervisor.pids().values())


@contextmanager
def demo_environment(
    say: Say, check: Callable[[], None], *, restart: bool, keep: bool
) -> Iterator[DemoEnvironment]:
    """A home directory, Postgres, a broker and a worker process; all gone in the end, but for ``keep``."""
    home = Path(tempfile.mkdtemp(prefix="strandline-demo-")).resolve()
    if os.geteuid() == 0:
        # Postgres does not run as root, and its own account has to pass through.
        home.chmod(0o711)
    attach = _attach_command(home)
    instead = None if restart else f"start one with: {attach}"
    own = load_settings().model_copy(update={"home": home, "database_url": None, "broker_url": None})
    try:
        with started_servers(own) as servers, opened_pool(servers.database_url, own) as database:
            running = Running(servers.named_in(own), servers, database)
            ensure_tables(servers.database_url, database, own)
            check()
            command = worker_command("the worker", running, log_path=home / "worker.log")
            try:
                with Supervisor([command], say=say, instead_of_restart=instead) as supervisor:
                    environment = DemoEnvironment(running, supervisor, attach)
                    _await_first_worker(environment, check)
                    yield environment
            finally:
                _end_attached(running, say)
    finally:
        if keep:
            say(f"the home directory was kept: {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)


def _await_first_worker(environment: DemoEnvironment, check: Callable[[], None]) -> None:
    def has_failed() -> bool:
        check()
        return environment.supervisor.ends > 0

    if await_worker(environment.running, environment.worker_pids, has_failed, _WORKER_START_SECONDS) is None:
        log = environment.home / "worker.log"
        lines = log.read_text(errors="replace").split("\n") if log.exists() else []
        last = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
        raise ConfigurationError(f"The worker did not start. It said: {last}")


def _end_attached(running: Running, say: Say) -> None:
    """Ask workers that were attached by hand to end: they would keep the demo's servers running."""
    try:
        rows = live_workers(running)
    except StrandlineError:
        # The database is gone, which must not take the place of what ended the demo.
        return
    for pid in [row.pid for row in rows if row.host == socket.gethostname()]:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
            say(f"the attached worker {pid} was asked to end, since its servers end now")
            wait_gone(pid, timeout_seconds=_ATTACHED_END_SECONDS)


def _attach_command(home: Path) -> str:
    """The command for a second terminal, without the variables that would point it elsewhere."""
    unset = [name for name in ("STRANDLINE_DATABASE_URL", "STRANDLINE_BROKER_URL") if os.environ.get(name)]
    prefix = "env " + " ".join(f"-u {name}" for name in unset) + " " if unset else ""
    return f"{prefix}STRANDLINE_HOME={shlex.quote(str(home))} {program()} worker"


USER_ID = "demo"
TOKEN_LIMIT, FLUSH_SIZE = 4_000, 700
HISTORY_RATIO = 0.5
LOOK_SECONDS = 0.1

# Reads on the way; with a model server each of them calls it.
LOCAL_READS, SERVED_READS = 100, 20

# How long the demo waits for the next step of the work before it gives up: with a worker, and while it waits
# for a person to start one. It waits for slow models and machines, as long as there is progress.
PATIENCE_SECONDS, ALONE_PATIENCE_SECONDS = 120.0, 300.0


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
    token_limit: int | None,
    flush_size: int | None,
    session_id: str | None,
    as_json: bool,
    **how: Any,
) -> int:
    """Play a conversation through the real pipeline: embedded Postgres and broker, a worker process.

    Shows the window fill and flush, the events consumed, and the resulting memory; then asks questions.
    Exits with 1 if a message was lost, an event was not consumed in time, or another check failed.
    """
    log_to_stderr("WARNING", "text")
    conversation = read_conversation(file, questions, load_settings())
    limit, size = _limits(token_limit, flush_size, conversation)
    session = check_name("--session-id", conversation.path.stem if session_id is None else session_id)
    screen = console(stderr=as_json)
    story = Story(screen)
    with ends_as_interrupts() as interrupts:
        screen.print("starting PostgreSQL, the broker and a worker")
        say = partial(story.line, style="yellow")
        with demo_environment(
            say, interrupts.check, restart=not how["no_restart"], keep=how["keep"]
        ) as environment:
            servers = environment.running.servers
            memory = Memory.from_defaults(
                session,
                user_id=USER_ID,
                token_limit=limit,
                chat_history_token_ratio=HISTORY_RATIO,
                token_flush_size=size,
                database_url=servers.database_url,
                broker_url=servers.broker_url,
            )
            with closing(memory):
                demo = _Demo(conversation, environment, memory, story, interrupts)
                report = demo.run(pace_seconds=how["pace"], all_questions=how["all_questions"])
                if how["stay"]:
                    demo.stay(say)
    if as_json:
        print_json(report)
    return 0 if report.ok else 1


def smallest_token_limit(messages: Sequence[Message]) -> int:
    """The smallest limit under which the largest message is not flushed alone."""
    return math.ceil(max(count_message(message, count_default) for message in messages) / HISTORY_RATIO)


def _limits(token_limit: int | None, flush_size: int | None, conversation: Conversation) -> tuple[int, int]:
    smallest = smallest_token_limit(conversation.messages)
    limit = max(TOKEN_LIMIT, smallest) if token_limit is None else token_limit
    if limit < smallest:
        raise click.UsageError(
            f"--token-limit {limit} is too small for the largest message of {conversation.path.name};"
            f" the smallest limit that works is {smallest}."
        )
    size = min(FLUSH_SIZE, int(limit * FLUSH_SIZE_REPAIR_RATIO)) if flush_size is None else flush_size
    if size > limit:
        raise click.UsageError(
            f"--flush-size {size} is above the token limit, {limit}, so no flush would be in"
            " time; lower it, or raise --token-limit."
        )
    return limit, max(1, size)


@dataclass(frozen=True, slots=True)
class _Demo:
    conversation: Conversation
    environment: DemoEnvironment
    memory: Memory
    story: Story
    interrupts: Interrupts

    def run(self, *, pace_seconds: float, all_questions: bool) -> DemoReport:
        story, environment = self.story, self.environment
        models = models_used(environment.running.settings)
        self._warm_up(models)
        self._open(models)
        play = self._play(models, pace_seconds)
        story.memory(play.look, self.memory)
        answers = [ask(play, question) for question in self.conversation.questions]
        story.answers(answers, in_full=all_questions)
        tokens = sum(message.tokens or 0 for message in play.stored)
        evidence = add_up(answers, token_limit=self.memory.token_limit, conversation_tokens=tokens)
        if evidence is not None:
            story.evidence(evidence, stand_ins=models.text_is_local)
        results = checks(play, environment.running.database)
        measured = figures(play, worker_ends=environment.supervisor.ends)
        story.results(results, measured)
        story.next_steps(self._next_steps())
        return DemoReport(
            ok=all(check.ok for check in results),
            session_id=self.memory.session_id,
            user_id=USER_ID,
            file=str(self.conversation.path),
            home=str(environment.home),
            worker_pid=min(environment.worker_pids(), default=None),
            checks=results,
            figures=measured,
            questions=answers,
            evidence=evidence,
        )

    def _next_steps(self) -> dict[str, str]:
        file, session = (shlex.quote(str(name)) for name in (self.conversation.path, self.memory.session_id))
        questions = [question.question for question in self.conversation.questions]
        asked = shlex.quote(min(questions, key=len, default="a question"))
        limits = f"--token-limit {TOKEN_LIMIT} --token-flush-size {FLUSH_SIZE}"
        return {
            "a stack that stays": f"{program()} up",
            "the same conversation in it, from a second terminal": f"{program()} import {file}"
            f" --session {session} --user {USER_ID} {limits}",
            "the memory for a question": f"{program()} ask {session} {asked} --user {USER_ID}",
        }

    def stay(self, say: Say) -> None:
        story, environment = self.story, self.environment
        story.worker(environment.worker_pids(), environment.attach, until="until Ctrl-C here")
        log_path = environment.home / "service.log"
        with (
            local_service(environment.running, log_path=log_path) as service,
            Supervisor([service.command] if service else [], say=say),
        ):
            if service is not None:
                # A line that is shown works at once.
                if service.await_ready(pause=self.interrupts.pause, timeout_seconds=START_SECONDS):
                    curl = service.curl(self.memory.session_id, USER_ID)
                    story.command("the same memory over HTTP, from a second terminal:", curl)
                else:
                    say(f"the HTTP service does not answer yet; {log_path} says why")
            with SignalPipe(ending_signals()) as signals:
                self.interrupts.check()
                signals.wait()

    def _warm_up(self, models: ModelsUsed) -> None:
        """Load vocabulary and embedding model before anything is measured: a backend does so at its start."""
        servers = self.environment.running.servers
        settings = load_settings(database_url=servers.database_url, broker_url=servers.broker_url)
        count_default("warm-up")
        vectors = serving_generations(self.environment.running.database).get(VECTORS)
        if vectors is not None and models.embedding_is_local:
            runtime_for(settings).embed_query("warm-up", vectors.recipe.config)

    def _open(self, models: ModelsUsed) -> None:
        conversation, environment = self.conversation, self.environment
        messages = quantity(len(conversation.messages), "message")
        questions = quantity(len(conversation.questions), "question")
        self.story.heading("Strandline demo")
        self.story.pairs(
            {
                "plays": f"{conversation.path.name}: {messages} and {questions}",
                "models": models.announcement,
                "servers": f"its own PostgreSQL and broker, in {environment.home}",
            }
        )
        self.story.worker(environment.worker_pids(), environment.attach)

    def _play(self, models: ModelsUsed, pace_seconds: float) -> Play:
        play = Play(self.memory, self.conversation.messages)
        is_local = models.text_is_local and models.embedding_is_local
        view = PlayView(self.story, play)

        def wait() -> None:
            view.put()
            self._watch(view, pace_seconds)

        play.put_all(reads=LOCAL_READS if is_local else SERVED_READS, wait=wait)
        play.look, play.consumed_after = await_consumed(
            lambda: self._look(view),
            play.pipelines,
            patience_seconds=self._patience_seconds,
            pause=self.interrupts.pause,
        )
        play.stored = self.memory.get_all()
        return play

    def _watch(self, view: PlayView, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            if time.monotonic() - view.looked_at >= LOOK_SECONDS:
                self._look(view)
            left = until - time.monotonic()
            self.interrupts.pause(min(left, LOOK_SECONDS))
            if left <= LOOK_SECONDS:
                return

    def _look(self, view: PlayView) -> Look:
        identity = identify_session(DEFAULT_NAMESPACE, self.memory.session_id, USER_ID)
        look = look_at(self.memory, self.environment.running.database, identity)
        view.look(look)
        return look

    def _patience_seconds(self) -> float:
        is_alone = self.environment.supervisor.ends and not self.environment.worker_pids()
        return ALONE_PATIENCE_SECONDS if is_alone else PATIENCE_SECONDS
