"""The breaker of a provider: whether it may be called, and whether a failure is its own or the input's.

A model server that is down is down for every call: no failure then may count against the work, however long
it lasts, and a retry for each lane would only add to the load.  An input that always fails must come to an
end, though.  The two differ in whether the provider answers other calls: a call answered since the failed one
began, or else a probe, the smallest possible request.

While the breaker is closed, calls pass.  A failure whose probe fails too opens it: no call is made until the
next probe is due, after a growing, jittered wait; the first call after that probes, and closes the breaker or
waits again.  A probe that only took too long says little of a slow server: after a few waits one real call is
let through, which may take longer.  A call that is turned away gets the reason why it is open.

A server that wants fewer calls is left alone for as long as it asks; if it names no time, it is asked at the
pace that it was seen to take, by all workers together (``pace.py``).  Calls begin a few at a time, so that a
limit is not met by as many as there are threads.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from strandline.pipelines.models.provided.pace import ProviderPace
from strandline.schemas.errors import (
    ModelError,
    PermanentModelError,
    ProviderDownError,
    ProviderSetupError,
    RateLimitError,
    TransientModelError,
)

logger = logging.getLogger("strandline.models")

MAX_PAUSE_SECONDS = 60.0
# So many probes that took too long in a row, and a real call takes the place of the next.
_LATE_PROBES = 3


@dataclass(slots=True, weakref_slot=True, eq=False)
class Provider:
    """State that the models of one server and key share: its pace, and its pause with the reason."""

    pace: ProviderPace
    lock: threading.Lock = field(default_factory=threading.Lock)
    # Refusals for too many calls since the last that was answered; and those that came after a wait that
    # the provider had asked for.
    refusals: int = 0
    told_waits: int = 0
    ask_at: float = float("-inf")
    reason: str = ""
    is_down: bool = False


_breakers: weakref.WeakSet[Breaker] = weakref.WeakSet()
_breakers_lock = threading.Lock()


def breaker_states() -> dict[str, str]:
    """By role, the kind of error that keeps calls from its provider in this process; empty if they pass."""
    states: dict[str, str] = {}
    with _breakers_lock:
        breakers = list(_breakers)
    for breaker in breakers:
        states[breaker.role] = states.get(breaker.role) or breaker.open_for
    return states


class Breaker:
    """One per model and process, shared by its threads; others share its knowledge of the provider.

    Whether a model, or an address within a server, is refused concerns that model alone.

    Args:
        name: the role, model and server in logs and in the errors of its calls.
        probe: makes the smallest request, and raises as a call does.  Without one, the first call after the
            wait takes its place, and no failure is ever attributed to the input.
        first_wait_seconds: from the first failure to the next probe; doubles with each failed probe.
        longest_wait_seconds: between two probes, so also how long a provider that is back goes unnoticed.
        longest_pause_seconds: a provider that asks for more is asked again after this, by one probe; and the
            time within which the calls are counted that it takes.
        provider: the known state of its server.
    """

    def __init__(
        self,
        name: str,
        probe: Callable[[], None] | None = None,
        *,
        first_wait_seconds: float = 1.0,
        longest_wait_seconds: float = 10.0,
        longest_pause_seconds: float = MAX_PAUSE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        provider: Provider | None = None,
    ) -> None:
        self._name = name
        self._probe = probe
        self._first_wait = first_wait_seconds
        self._longest_wait = longest_wait_seconds
        self._longest_pause = longest_pause_seconds
        self._clock = clock
        self._provider = provider or Provider(ProviderPace(longest_pause_seconds, clock=clock))
        self._lock = self._provider.lock
        self._probing = threading.Lock()
        self._failed_probes = 0
        self._late_probes = 0
        self._reason = self._kind = ""
        self._ask_at = self._answered_at = self._probed_at = float("-inf")
        with _breakers_lock:
            _breakers.add(self)

    @property
    def role(self) -> str:
        """The role of the model, with which the name begins."""
        return self._name.partition(",")[0]

    @property
    def open_for(self) -> str:
        """The class of the error for which no call is made; empty if calls pass."""
        if self._failed_probes:
            return self._kind
        return RateLimitError.__name__ if self._provider.refusals else ""

    def wait_seconds(self) -> float:
        """Seconds until the provider may be asked again; 0 when it may be now."""
        with self._lock:
            return max(0.0, max(self._ask_at, self._provider.ask_at) - self._clock())

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Around one call: turns it away while the provider is down, and learns from its end.

        Raises:
            ProviderDownError: no call was made.
            TransientModelError: the call's, with ``counts`` set if the input is to blame.
        """
        with self._begin():
            self._admit()
            began = self._clock()
            with self._judge(began):
                yield

    @contextmanager
    def _begin(self) -> Iterator[None]:
        if self._probe is not None and (delay := self._provider.pace.begin()) > 0:
            time.sleep(delay)
        is_answered = False
        try:
            yield
            is_answered = True
        finally:
            if self._probe is not None:
                self._provider.pace.end(is_answered=is_answered)

    @contextmanager
    def _judge(self, began: float) -> Iterator[None]:
        try:
            with self._name_in_errors():
                yield
        except RateLimitError as error:
            self._pause(error)
            raise
        except ProviderSetupError as error:
            # Calls that were answered before a key was withdrawn say nothing: only a probe does.
            error.counts = self._answers_others(float("inf"), error)
            raise
        except TransientModelError as error:
            error.counts = self._answers_others(began, error)
            raise
        except PermanentModelError:
            self._note_answer()
            raise
        self._note_answer()

    def _admit(self) -> None:
        provider = self._provider
        with provider.pace.admitting:
            wait = self.wait_seconds()
            learned = 0.0 if wait else provider.pace.take()
            with self._lock:
                now, is_down = self._clock(), self._failed_probes > 0
                waiting = wait > 0 or learned > 0
                if learned > 0:
                    provider.ask_at = max(provider.ask_at, now + learned)
                if not waiting and provider.refusals:  # one call at a time finds out
                    provider.ask_at = now + self._growing_wait(provider.refusals)
                if is_down and not waiting and (self._probe is None or self._late_probes >= _LATE_PROBES):
                    # This call stands for the probe; the others wait for its outcome.
                    self._ask_at = now + self._longest_wait
                    return
        if waiting or (is_down and not self._probe_succeeds(now)):
            raise ProviderDownError(
                self._reason
                or provider.reason
                or "The model server asked for a pause; it will be asked again later.",
                retry_after_seconds=self.wait_seconds(),
            )

    def _answers_others(self, since: float, error: TransientModelError) -> bool:
        with self._lock:
            if self._answered_at > since:
                return True
        if self._probe is None:
            self._note_failure(error)
            return False
        return self._probe_succeeds(self._clock())

    def _probe_succeeds(self, since: float) -> bool:
        with self._probing:
            if self._probed_at < since:
                self._run_probe()
            with self._lock:
                return self._failed_probes == 0

    def _run_probe(self) -> None:
        try:
            if self._probe is not None:
                with self._name_in_errors():
                    self._probe()
        except TransientModelError as error:
            self._note_failure(error)
        except PermanentModelError:
            self._note_answer()
        else:
            self._note_answer()
        self._probed_at = self._clock()

    def _note_answer(self) -> None:
        with self._lock:
            was_down, self._failed_probes, self._late_probes = self._failed_probes > 0, 0, 0
            self._answered_at = self._clock()
            self._reason = self._provider.reason = ""
            self._provider.refusals = self._provider.told_waits = 0
            if was_down:
                self._ask_at = self._answered_at
            if was_down or self._provider.is_down:
                self._provider.ask_at, self._provider.is_down = self._answered_at, False
        if was_down:
            logger.info("provider answers again", extra={"action": "provider_up", "provider": self._name})

    def _note_failure(self, error: TransientModelError) -> None:
        with self._lock:
            self._failed_probes += 1
            self._late_probes = self._late_probes + 1 if error.is_slow else 0
            self._reason, self._kind = str(error), type(error).__name__
            failures = self._failed_probes
            wait = min(self._longest_wait, self._first_wait * 2.0 ** min(failures - 1, 30))
            wait *= random.uniform(0.75, 1.0)  # noqa: S311
            self._ask_at = self._clock() + max(
                wait, min(error.retry_after_seconds or 0.0, self._longest_pause)
            )
            # Without a probe the input may be to blame, which says nothing of the server's other calls.
            if self._probe is not None and not isinstance(error, ProviderSetupError):
                self._provider.ask_at, self._provider.reason = self._ask_at, self._reason
                self._provider.is_down = True
        if failures == 1:
            logger.warning(
                "provider is down",
                extra={"action": "provider_down", "provider": self._name, "reason": str(error)},
            )

    def _pause(self, error: RateLimitError) -> None:
        # A wait of nothing says as little as none.
        provider, wait = self._provider, error.retry_after_seconds or None
        learned = provider.pace.note_refusal() if wait is None else 0.0
        with self._lock:
            provider.reason = str(error)
            now = self._clock()
            if wait is None:
                provider.refusals += 1
                wait = learned or self._growing_wait(provider.refusals)
            elif now >= provider.ask_at:
                # A server that refuses again after the wait that it named means nothing by it.
                wait = max(wait, self._growing_wait(provider.told_waits) if provider.told_waits else 0.0)
                provider.told_waits += 1
            provider.ask_at = max(provider.ask_at, now + min(wait, self._longest_pause))

    def _growing_wait(self, times: int) -> float:
        return min(self._longest_pause, self._first_wait * 4.0 ** min(times - 1, 10))

    @contextmanager
    def _name_in_errors(self) -> Iterator[None]:
        """Errors end with role, model and server; but a read's, which its caller is told."""
        try:
            yield
        except ModelError as error:
            if self._probe is not None:
                error.args = (f"{error} [{self._name}]", *error.args[1:])
            raise
