"""Delivering without moving the window: what a session has said so far is derived from at once."""

from __future__ import annotations

from uuid import UUID

from strandline.pipelines.flush.flush import Flushed, deliver_by_hand, end_delay
from strandline.producers.arguments import check_timeout
from strandline.producers.execution import async_method, sync_method
from strandline.producers.memory_parts.writing import MemoryWriting
from strandline.producers.reading.summary import Summary, wait_for_summary
from strandline.producers.sessions import history_page
from strandline.schemas.postgres.operations import Operation


class MemoryDelivery(MemoryWriting):
    """The methods of ``SessionMemory`` that deliver, and leave the window as it is."""

    @sync_method
    def deliver(self, *, connection: object | None = None) -> Operation[list[UUID]]:
        """Deliver all that was not delivered yet, and keep it in the window; return the events recorded.

        For the end of a run, or of a conversation.  A tool call without its result stays undelivered.  With
        the policy ``deliver="turn"`` each turn is delivered so when it ends.

        Raises:
            OwnerError: the session belongs to another owner.
        """
        return self._announce_after(self._deliver_all(), connection)

    adeliver = async_method(deliver)

    @sync_method
    def summarize(self, *, wait: float | None = None) -> Operation[Summary | None]:
        """Deliver all that was not delivered yet, as ``deliver`` does, and return the session's summary.

        Workers make it; a bad answer of their model keeps the summary before.  None: there is none yet, since
        nothing was said, or workers are not done.

        Args:
            wait: the longest wait for the workers, in seconds; None: do not wait.

        Raises:
            NotFoundError: the session has no messages yet.
            ConfigurationError: the session does not feed summaries.
            OwnerError: the session belongs to another owner.
        """
        wait_seconds = None if wait is None else check_timeout(wait)
        return self._summarize_now(wait_seconds)

    asummarize = async_method(summarize)

    def _summarize_now(self, wait_seconds: float | None) -> Operation[Summary | None]:
        yield from self._announce_after(self._deliver_all(), None)
        return (yield from self._record_read("summary.read", wait_for_summary(self._identity, wait_seconds)))

    def _deliver_all(self) -> Operation[Flushed | None]:
        return deliver_by_hand(self._identity.shard_key, self._identity.session_key)

    def _announce_after(
        self, flushing: Operation[Flushed | None], connection: object | None
    ) -> Operation[list[UUID]]:
        flushed = yield from flushing
        waiting = yield from end_delay(self._identity.shard_key, self._identity.session_key)
        if connection is None:
            self._resources.ring(waiting)
        if flushed is None:
            yield from history_page(self._identity, 0, 1)  # raises if the session belongs to another owner
        return self._announce_flush(flushed, connection)

    def _announce_flush(self, flushed: Flushed | None, connection: object | None) -> list[UUID]:
        if flushed is None:
            return []
        # Before the commit of a caller's transaction a hint would find nothing; the sweep rings after it.
        if connection is None:
            self._resources.ring(flushed.lanes)
        return list(flushed.event_ids)
