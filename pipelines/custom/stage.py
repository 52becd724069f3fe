"""Custom: an ordered stage that folds events into the state of a custom block, without a model.

A lane belongs to a session, or to an owner; an owner's lane folds the events of several sessions in the order
in which they come due, and the batches record that order.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from strandline.pipelines.custom.contract import BlockDefinition
from strandline.pipelines.engine.stage import Batch, Call, RawAnswer, add_state, latest_state
from strandline.pipelines.own_code.bounded_calls import NoPlaceError, TimeLimitError, worker_calls
from strandline.pipelines.own_code.places import place_in
from strandline.pipelines.transcript import load_messages
from strandline.schemas.errors import BlockCodeError, BlockWaitsError, InvalidMessageError
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.values.lanes import Lane
from strandline.schemas.values.message import plain
from strandline.schemas.values.stored_text import check_texts_within

logger = logging.getLogger("strandline.blocks")


@dataclass(frozen=True, slots=True)
class CustomStage:
    """Folds one custom block; each state is kept, so that folding can start again from it.

    ``fold`` is called once per event, on a state that has made a round trip through JSON, so the result does
    not depend on how events were grouped into batches.
    """

    block: BlockDefinition
    max_state_bytes: int
    timeout_seconds: float

    @property
    def name(self) -> str:
        return self.block.name

    def wait_seconds(self) -> float:
        return 0.0

    def load(self, fetcher: Fetcher, batch: Batch) -> str:
        """The state after the batch, as JSON; folded here, where neither lock nor connection is held."""
        return self.load_stepping(fetcher, batch, lambda: None)

    def load_stepping(self, fetcher: Fetcher, batch: Batch, between: Callable[[], None]) -> str:
        """As ``load``; ``between`` is called before each event, which may take the whole time limit."""
        return self.load_onto(latest_state(fetcher, batch.lane), fetcher, batch, between)

    def load_onto(
        self, state: str | None, fetcher: Fetcher, batch: Batch, between: Callable[[], None] = lambda: None
    ) -> str:
        state = self._state_from("initial") if state is None else state
        for _event, messages in load_messages(fetcher, batch):
            between()
            if messages:  # a correction may have taken all of them back
                state = self._state_from("fold", json.loads(state), messages)
        return state

    def calls(self, batch: Batch, work: str) -> Sequence[Call]:
        return ()

    def effect(self, batch: Batch, work: str, answers: Mapping[str, RawAnswer]) -> str:
        return work

    def write(self, fetcher: Fetcher, batch: Batch, work: str, effect: str) -> list[Lane]:
        add_state(fetcher, batch, effect)
        return []

    def _state_from(self, method: str, *arguments: Any) -> str:
        """The result of one of the block's functions, as JSON; a retry of what fails here would not help."""
        what = f"{method}() of block {self.name!r}"
        try:
            state = worker_calls.within(
                self.timeout_seconds, partial(getattr(self.block.code, method), *arguments)
            )
        except NoPlaceError:
            raise BlockWaitsError(
                f"{what} was not called: earlier block calls occupy all threads and have not returned;"
                " restart this process."
            ) from None
        except TimeLimitError:
            logger.error(
                "a call of a block does not return; its thread is lost until this process ends",
                extra={"action": "block_late", "block": self.name, "lost_threads": worker_calls.late},
            )
            raise BlockCodeError(
                f"{what} did not return within {self.timeout_seconds:g} seconds"
                " (STRANDLINE_BLOCK_TIMEOUT_SECONDS)"
            ) from None
        except Exception as error:
            # Its text may quote a message, so only its kind and its place are kept.
            raise BlockCodeError(f"{what} raised {type(error).__name__} at {place_in(error)}") from error
        return encode_state(what, state, self.max_state_bytes)


def encode_state(what: str, state: object, max_bytes: int) -> str:
    """A state as JSON that Postgres keeps as it is.

    Raises:
        BlockCodeError: the state is None, is not JSON, or is too large; the message quotes none of it.
    """
    if state is None:
        raise BlockCodeError(f"{what} returned None; it must return the state even if nothing changed")
    try:
        value = plain(state)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
        if "\\u0000" in text:
            check_texts_within("state", value)
    except (TypeError, ValueError, RecursionError, InvalidMessageError) as error:
        raise BlockCodeError(
            f"{what} returned a state that cannot be kept as JSON ({type(error).__name__}): use dicts with"
            " text keys, lists, text without NUL, finite numbers and booleans"
        ) from error
    if size > max_bytes:
        raise BlockCodeError(
            f"{what} returned a state of {size:,} bytes as JSON, over the limit of {max_bytes:,}; keep less,"
            " or raise STRANDLINE_MAX_STATE_BYTES"
        )
    return text
