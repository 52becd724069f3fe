"""Overflow: a commutative stage that hands events to an application's handler, and derives nothing."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from strandline.pipelines.engine.stage import Batch, Call, RawAnswer
from strandline.pipelines.overflow.contract import LoadedHandler, OverflowEvent
from strandline.pipelines.own_code.bounded_calls import NoPlaceError, TimeLimitError, worker_calls
from strandline.pipelines.own_code.places import place_in
from strandline.pipelines.transcript import load_messages
from strandline.schemas.errors import HandlerError, PermanentModelError, ProviderDownError, RefusalError
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.work.overflow import FlushedSessions
from strandline.schemas.values.lanes import OVERFLOW_STAGE, Lane
from strandline.schemas.values.same_named import make_from

logger = logging.getLogger("strandline.overflow")


@dataclass(frozen=True, slots=True)
class OverflowStage:
    """Calls the handler once per event, in the order of the lane, and again what failed."""

    handler: LoadedHandler
    timeout_seconds: float
    name: ClassVar[str] = OVERFLOW_STAGE

    def wait_seconds(self) -> float:
        return 0.0

    def load(self, fetcher: Fetcher, batch: Batch) -> None:
        """Nothing: who only plans is not to hand anything over."""

    def load_stepping(self, fetcher: Fetcher, batch: Batch, between: Callable[[], None]) -> None:
        """Hand over event by event; ``between`` renews the lease before each, which may take its time."""
        for event in _events(fetcher, batch):
            between()
            self._hand_over(event)

    def calls(self, batch: Batch, work: None) -> Sequence[Call]:
        return ()

    def effect(self, batch: Batch, work: None, answers: Mapping[str, RawAnswer]) -> None:
        return None

    def write(self, fetcher: Fetcher, batch: Batch, work: None, effect: None) -> list[Lane]:
        return []

    def _hand_over(self, event: OverflowEvent) -> None:
        what = f"The overflow handler {self.handler.place}"
        try:
            worker_calls.within(self.timeout_seconds, partial(_call, self.handler.call, event))
        except (ProviderDownError, MemoryError):
            raise
        except RefusalError as error:
            raise PermanentModelError(f"{what} refused the event: {error}") from error
        except NoPlaceError:
            waiting = HandlerError(
                f"{what} was not called: earlier calls occupy all threads and have not returned; restart this"
                " process."
            )
            waiting.counts = False
            raise waiting from None
        except TimeLimitError:
            logger.error(
                "a call of the overflow handler does not return; its thread is lost until this process ends",
                extra={"action": "handler_late", "lost_threads": worker_calls.late},
            )
            raise HandlerError(
                f"{what} did not return within {self.timeout_seconds:g} seconds"
                " (STRANDLINE_BLOCK_TIMEOUT_SECONDS)"
            ) from None
        except Exception as error:  # the edge to foreign code: an application's handler
            # Its text may quote a message, so only its kind and its place are kept.
            raise HandlerError(f"{what} raised {type(error).__name__} at {place_in(error)}") from error


def _call(handler: Callable[[OverflowEvent], Any], event: OverflowEvent) -> None:
    result = handler(event)
    if inspect.isawaitable(result):
        asyncio.run(_wait_for(result))


async def _wait_for(result: Any) -> None:
    await result


def _events(fetcher: Fetcher, batch: Batch) -> Iterator[OverflowEvent]:
    keys: list[UUID] = sorted({event.session_key for event in batch.events})
    rows = fetcher.fetch(FlushedSessions(shard_key=batch.lane.shard_key, session_keys=keys))
    names = {row.session_key: row for row in rows}
    for event, messages in load_messages(fetcher, batch):
        session = names.get(event.session_key)
        if messages and session is not None:  # a correction may have taken all of them back
            yield make_from(
                OverflowEvent, event, session, flushed_at=event.created_at, messages=tuple(messages)
            )
