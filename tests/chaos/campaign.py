"""A campaign from beginning to end: start, disturb, let it settle, judge, clean up."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg

from tests.chaos.children import Start, StoppedTooLateError
from tests.chaos.faults.faults import FROZEN_WORKER, WELL, Harm
from tests.chaos.faults.meanwhile import FAULTS, REPLAY_SECONDS
from tests.chaos.judging import judge
from tests.chaos.judging.findings import fill_away, fill_puts, fill_recoveries
from tests.chaos.judging.observer import Observer
from tests.chaos.judging.report import Report, machine
from tests.chaos.judging.timeline import Interval
from tests.chaos.plan import PlannedFault, Shape, make_plan, most_at_once
from tests.chaos.running import running_stack
from tests.chaos.stack import READY_SECONDS, Stack, start_model

SETTLE_SECONDS = 180.0
COMMAND_SECONDS = 120.0
# A wrong answer may take effect this much later: a repair is asked for, a batch is tried event by event.
EXPLAINED_WITHIN_SECONDS = 8.0
WRONG_ANSWERS = ("model cuts answers", "model answers otherwise")

# Nothing due, and no session that the sweep will look at soon.
UNSETTLED = """
SELECT (SELECT count(*) FROM strandline.due)
    + (SELECT count(*) FROM strandline.watch WHERE check_at < clock_timestamp() + interval '15 seconds')
"""

Say = Callable[[str], None]


@dataclass
class Campaign:
    """One run; ``say`` is given a line of progress now and then.

    Attributes:
        plan: what happens when; default: what ``make_plan`` draws from the seed.
        patience: times as long as otherwise may pass until some due work ends, and between what explains
            something and what is explained; for runs in which nothing may depend on a clock.
    """

    seed: int
    shape: Shape
    rate: float
    broker: str
    say: Say
    say_every_seconds: float = 15.0
    keep: bool = False
    patience: float = 1.0
    plan: Sequence[PlannedFault] = ()
    popen: Start = subprocess.Popen
    violations: list[str] = field(default_factory=list)

    def run(self) -> Report:
        """Run it; processes are gone when it returns or raises."""
        self.plan = self.plan or make_plan(self.seed, self.shape)
        began = time.monotonic()
        with running_stack(self.seed, self.shape, self.rate, self.broker) as stack:
            stack.popen = self.popen
            for child in stack.children:
                child.popen = self.popen
            observer = Observer(stack)
            self._start(stack, observer)
            try:
                at = self._disturb(stack, observer)
                report = self._judge(stack, observer, at)
            finally:
                stack.ending.set()
                observer.stop()
        report.seconds = time.monotonic() - began
        return report

    def _start(self, stack: Stack, observer: Observer) -> None:
        """Wait until all work: producers put, workers beat."""
        start_model(stack)
        stack.control_model(WELL)
        for child in [*stack.workers, *stack.producers]:
            child.start()
        observer.start()
        self.say(f"{len(stack.workers)} workers and {len(stack.producers)} producers start")
        deadline = time.monotonic() + READY_SECONDS
        while len(observer.seen.last_ack) < len(stack.producers) or not _all_beat(stack):
            assert time.monotonic() < deadline, f"not all processes came up; their logs: {stack.directory}"
            time.sleep(0.1)

    def _disturb(self, stack: Stack, observer: Observer) -> float:
        """Carry the plan out, and end the load after it; returns when it began, in monotonic seconds.

        Replays still running then end without load: beside it, live work comes first, so that a replay ends
        when the machine has time for it.
        """
        began = time.monotonic()
        turns = {(fault.target, fault.slot): threading.Lock() for fault in self.plan}
        with ThreadPoolExecutor(max_workers=32, thread_name_prefix="fault") as pool:
            running: list[Future[None]] = []
            replays: list[Future[None]] = []
            next_line = began
            waiting = list(self.plan)
            try:
                while waiting or any(not one.done() for one in running):
                    now = time.monotonic()
                    while waiting and now - began >= waiting[0].at:
                        fault = waiting.pop(0)
                        harm = Harm(fault, stack, observer.expect, observer.last_ack)
                        carried = pool.submit(self._carry_out, harm, turns[fault.target, fault.slot])
                        (replays if fault.target == "replay" else running).append(carried)
                    if now >= next_line:
                        next_line += self.say_every_seconds
                        self._progress(observer, now - began, len(running) + len(replays))
                    time.sleep(0.05)
                self.say("the plan is done; the producers stop")
                self._await_producers(observer)
                self._stop_producers(stack)
                self._await_replays(stack, observer, replays)
            except BaseException:
                stack.ending.set()
                raise
        return began

    def _await_replays(self, stack: Stack, observer: Observer, replays: Sequence[Future[None]]) -> None:
        """Without load, each has its time; the others are told to give up, and say so."""
        left, since = 0, time.monotonic()
        while running := [one for one in replays if not one.done()]:
            if len(running) != left:
                left, since = len(running), time.monotonic()
            elif time.monotonic() > since + self.patience * REPLAY_SECONDS:
                stack.ending.set()
            self.say(f"{left} replays run without load, {observer.seen.due} due")
            wait(running, self.say_every_seconds)

    def _carry_out(self, harm: Harm, turn: threading.Lock) -> None:
        fault = FAULTS[harm.planned.kind](harm)
        with turn:
            try:
                next(fault)
                harm.stack.ending.wait(harm.planned.seconds)
                if not harm.stack.ending.is_set():
                    next(fault, None)
            except StoppedTooLateError as error:
                self.violations.append(str(error))
            except Exception as error:  # noqa: BLE001
                # The outermost edge of this thread: a fault that cannot be carried out proves nothing.
                self.violations.append(
                    f"Fault {harm.planned.number} ({harm.planned.kind}) could not be carried out:"
                    f" {type(error).__name__}: {error}"
                )

    def _judge(self, stack: Stack, observer: Observer, began: float) -> Report:
        report = Report(self.seed, self.broker, machine=machine(), at_once=most_at_once(self.plan))
        report.settled_seconds = self._settle(observer, stack, "after the load")
        self._dead_letters(stack, observer, report)
        observer.stop()
        fill_puts(report, observer.seen, stack, began=began, calm=self.shape.calm)
        self.violations += fill_recoveries(report, self.plan, observer.recoveries, began)
        self.violations += fill_away(report, stack, began, self.patience)
        self._check(stack, observer, report)
        report.violations = [*self.violations, *observer.seen.complaints]
        if report.violations or report.late or self.keep:
            stack.keep = True
            report.logs = str(stack.directory)
        return report

    def _await_producers(self, observer: Observer) -> None:
        """Keep the load up until each producer that was killed has put again, or has had its time for it.

        One that is told to stop before puts no more, and would count as never recovered.
        """
        deadline = time.monotonic() + READY_SECONDS
        while any(one.kind == "producer killed" for one in observer.pending()):
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)

    def _stop_producers(self, stack: Stack) -> None:
        for producer in stack.producers:
            producer.ask_to_end()
        for producer in stack.producers:
            try:
                producer.wait_for_end(60.0)
            except StoppedTooLateError as error:
                self.violations.append(str(error))

    def _settle(self, observer: Observer, stack: Stack, when: str) -> float:
        """Wait until nothing is due, as long as work goes on; how long it took."""
        began = next_line = progressed = time.monotonic()
        least = None
        with psycopg.connect(stack.postgres.url, autocommit=True) as connection:
            while unsettled := connection.execute(UNSETTLED).fetchall()[0][0]:
                now = time.monotonic()
                if least is None or unsettled < least:
                    least, progressed = unsettled, now
                if now > progressed + self.patience * SETTLE_SECONDS:
                    self.violations.append(
                        f"{unsettled} pieces of work stay due {when}: none ends for {now - progressed:.0f} s."
                    )
                    break
                if now >= next_line:
                    next_line += self.say_every_seconds
                    self.say(f"{when}: {unsettled} due")
                time.sleep(0.1)
        return time.monotonic() - began

    def _dead_letters(self, stack: Stack, observer: Observer, report: Report) -> None:
        """Count them, explain each, and bring all of them through with a well model."""
        letters = _command(stack, "dead-letters", "list", "--json")["dead_letters"]
        report.dead_letters = len(letters)
        unexplained = [letter for letter in letters if not _is_explained(letter, stack, self.patience)]
        report.unexplained = len(unexplained)
        for letter in unexplained[:5]:
            self.violations.append(
                f"Dead letter {letter['id']} of {letter['died_at']} has no wrong answer that explains it:"
                f" {letter['reason']}"
            )
        if letters:
            self.say(f"{len(letters)} dead letters are retried")
            _command(stack, "dead-letters", "retry", "--all", "--json")
            report.retried_seconds = self._settle(observer, stack, "after the dead letters were retried")
            report.stuck = len(_command(stack, "dead-letters", "list", "--json")["dead_letters"])
            if report.stuck:
                self.violations.append(f"{report.stuck} dead letters did not come through when retried.")

    def _check(self, stack: Stack, observer: Observer, report: Report) -> None:
        verified = _command(stack, "verify", "--json", may_fail=True)
        wrong = verified["violations"]
        report.verified = f"{len(wrong)} violations" if wrong else "no violation"
        self.violations += [f"verify: {violation['sentence']}" for violation in wrong[:10]]
        with psycopg.connect(stack.postgres.url, autocommit=True) as connection:
            book = stack.book
            compared = judge.compare(connection, [*observer.seen.acks, *book.acks])
            self.violations += [*compared.violations, *judge.check_tables(connection, book.gone_texts)]
            counts = judge.counts(connection)
        self.violations += judge.compare_histories(observer.seen.acks, stack.postgres.url)
        report.edits, report.resets = book.edits, book.resets
        self.violations += judge.deleted_and_live(book, stack.postgres.url)
        report.accepted, report.lost, report.doubled = compared.accepted, compared.lost, compared.doubled
        report.events, report.applied = counts["events"], counts["applied"]
        report.facts, report.model_calls = counts["facts"], counts["model_calls"]

    def _progress(self, observer: Observer, elapsed: float, faults: int) -> None:
        due = "?" if observer.seen.due is None else f"{observer.seen.due}"
        self.say(
            f"{elapsed:5.0f} s: {len(observer.seen.acks):6,} puts, {due:>5} due,"
            f" {faults:3} of {len(self.plan)} faults, {len(observer.pending())} recoveries awaited"
        )


def _all_beat(stack: Stack) -> bool:
    with psycopg.connect(stack.postgres.url, autocommit=True) as connection:
        beating = {pid for (pid,) in connection.execute("SELECT pid FROM strandline.worker")}
    return {worker.pid for worker in stack.workers} <= beating


def _command(stack: Stack, *arguments: str, may_fail: bool = False) -> Any:
    """Run ``strandline`` as its user would, and read its JSON."""
    done = stack.run(*arguments, seconds=COMMAND_SECONDS)
    assert done.returncode == 0 or may_fail, f"strandline {' '.join(arguments)}: {done.stderr}"
    return json.loads(done.stdout)


def _is_explained(letter: Mapping[str, Any], stack: Stack, patience: float) -> bool:
    """Whether the model answered nonsense when this letter died, and the letter says so."""
    offset = time.time() - time.monotonic()
    died = datetime.fromisoformat(letter["died_at"]).timestamp() - offset
    frozen = stack.timeline.named(FROZEN_WORKER)
    return "unusable" in letter["reason"] and any(
        wrong.begin <= died <= heeded_until(wrong, frozen, patience)
        for wrong in stack.timeline.named(*WRONG_ANSWERS)
    )


def heeded_until(wrong: Interval, frozen: Sequence[Interval], patience: float = 1.0) -> float:
    """When a wrong answer can no longer take effect: a frozen worker acts on it when it wakes up."""
    within = patience * EXPLAINED_WITHIN_SECONDS
    until = wrong.end + within
    waking = [one.end for one in frozen if one.begin <= until and one.end >= wrong.begin]
    return max([until, *(end + within for end in waking)])
