"""Looking for an erased user through the readers, not through what erased: each as its callers ask it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from strandline.pipelines.upkeep.erasure.receipt import ReaderCheck
from strandline.pipelines.upkeep.erasure.steps import rows_left
from strandline.pipelines.upkeep.erasure.target import ErasureTarget
from strandline.producers.exports.export import count_lines
from strandline.producers.exports.pages import ExportTarget
from strandline.producers.facts.listing import FactFilter, PageRequest, list_facts
from strandline.producers.reading.snapshot import read_snapshot
from strandline.producers.search.search import SearchRequest, search_history
from strandline.producers.sessions import HISTORY_PAGE_BYTES
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import KeyUnavailableError, SealedContentError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.messages import History
from strandline.schemas.queries.conversation.read import Read
from strandline.schemas.queries.conversation.sessions import FindOwner, UserIsKnown
from strandline.schemas.queries.inspection.explain import ExplainFindMessages
from strandline.schemas.queries.upkeep.erasures import OwnerDirectory
from strandline.schemas.values.identity import Owner, SessionIdentity, identify_session
from strandline.schemas.values.lanes import FACTS, SUMMARY, VECTORS
from strandline.schemas.values.message import read_rows

# So many sessions of a user, and so many of their messages, are asked for again in the end.
MAX_SESSIONS_CHECKED = 50
MAX_QUERIES = 5


@dataclass(frozen=True, slots=True)
class Traces:
    """Content from before an erasure to search for afterwards; kept in memory alone."""

    sessions: Sequence[SessionIdentity] = ()
    queries: Sequence[str] = ()
    message_ids: Sequence[str] = ()
    unopened: int = 0

    @property
    def omissions(self) -> list[str]:
        """The receipt's sentences about them."""
        if not self.unopened:
            return []
        return [
            f"Search and explain: content of {quantity(self.unopened, 'session')} did not open before it was"
            " deleted, so they were not asked for its words; the rows themselves are gone."
        ]


def gather_traces(target: ErasureTarget) -> Operation[Traces]:
    """Sessions and texts to ask the readers for afterwards; none for a resumed erasure.

    Content that does not open, because its key is lost or it was changed, is erased all the same.
    """
    sessions = yield from _sessions(target)
    queries: list[str] = []
    ids: list[str] = []
    unopened = 0
    for session in sessions[:MAX_QUERIES]:
        try:
            rows = yield from fetch(
                History(**session.keys, after_seq=0, page_size=1, page_bytes=HISTORY_PAGE_BYTES)
            )
        except (KeyUnavailableError, SealedContentError):
            unopened += 1
            continue
        for message in read_rows(rows):
            ids.append(message.id or "")
            if message.text.strip():
                queries.append(message.text)
    return Traces(sessions, queries, ids, unopened)


def check_readers(target: ErasureTarget, traces: Traces) -> Operation[list[ReaderCheck]]:
    """The number of rows that each reader still gives; all zero if the erasure is finished."""
    checks = [
        (yield from _history(traces)),
        (yield from _get(target, traces)),
        (yield from _search(target, traces)),
        (yield from _explain(target, traces)),
    ]
    if target.is_whole_owner:
        checks.append((yield from _facts(target)))
    checks.append((yield from _export(target)))
    checks.append((yield from _directory(target, traces)))
    left = yield from rows_left(target)
    checks.append(ReaderCheck("catalog", 1, sum(left.values())))
    return checks


def _sessions(target: ErasureTarget) -> Operation[list[SessionIdentity]]:
    if target.session_id is not None:
        named = identify_session(target.namespace, target.session_id, target.user_id)
        # Where a fence alone knows the session, nothing gives the name of its user.
        return [replace(named, shard_key=target.owner_key)]
    if target.user_id is None or not target.is_whole_owner:
        return []
    rows = yield from fetch(
        OwnerDirectory(
            namespace=target.namespace,
            user_id=target.user_id,
            after_session_id="",
            limit=MAX_SESSIONS_CHECKED,
        )
    )
    return [identify_session(target.namespace, row.session_id, target.user_id) for row in rows]


def _history(traces: Traces) -> Operation[ReaderCheck]:
    remaining = 0
    for session in traces.sessions:
        remaining += len(
            (
                yield from fetch(
                    History(**session.keys, after_seq=0, page_size=10, page_bytes=HISTORY_PAGE_BYTES)
                )
            )
        )
    return ReaderCheck("history", len(traces.sessions), remaining)


def _get(target: ErasureTarget, traces: Traces) -> Operation[ReaderCheck]:
    """Read as for a prompt; for a session whose user stays, the user's own data does not count."""
    remaining = 0
    for session in traces.sessions:
        rows = yield from fetch(
            Read(
                **session.keys,
                pipelines=[FACTS, SUMMARY, VECTORS],
                tail_rows=10,
                tail_bytes=1_000_000,
                known_through=None,
                known_from=None,
                known_seal=None,
                max_facts=10,
                known_facts=None,
                generation_id=None,
            )
        )
        snapshot = read_snapshot(rows)
        remaining += snapshot.exists + len(snapshot.window) + len(snapshot.tail.messages)
        if target.is_whole_owner:
            remaining += len(snapshot.facts) + len(snapshot.states)
    return ReaderCheck("get", len(traces.sessions), remaining)


def _search(target: ErasureTarget, traces: Traces) -> Operation[ReaderCheck]:
    remaining = 0
    for query in traces.queries if traces.sessions else ():
        request = SearchRequest(
            identity=traces.sessions[0],
            query=query,
            limit=20,
            scope="owner" if target.is_whole_owner else "session",
            embed_query=None,
            kinds=("message", "fact") if target.is_whole_owner else ("message",),
        )
        remaining += len((yield from search_history(request)))
    return ReaderCheck("search", len(traces.queries), remaining)


def _explain(target: ErasureTarget, traces: Traces) -> Operation[ReaderCheck]:
    remaining = 0
    for message_id in traces.message_ids:
        asked = ExplainFindMessages(
            namespace=target.namespace,
            session_id=target.session_id,
            user_id=target.user_id,
            without_user=False,
            message_id=message_id,
        )
        remaining += sum(row.shard_key == target.owner_key for row in (yield from fetch(asked)))
    return ReaderCheck("explain", len(traces.message_ids), remaining)


def _facts(target: ErasureTarget) -> Operation[ReaderCheck]:
    owner = Owner(target.namespace, target.user_id, target.owner_key)
    page = yield from list_facts(owner, PageRequest(1), FactFilter(with_invalidated=True))
    return ReaderCheck("facts", 1, page.total)


def _export(target: ErasureTarget) -> Operation[ReaderCheck]:
    remaining = yield from count_lines(
        ExportTarget(target.namespace, target.owner_key, target.user_id, target.session_key)
    )
    return ReaderCheck("export", 1, remaining)


def _directory(target: ErasureTarget, traces: Traces) -> Operation[ReaderCheck]:
    remaining = 0
    for session in traces.sessions:
        rows = yield from fetch(FindOwner(directory_key=session.directory_key))
        remaining += sum(row.owner_key == target.owner_key for row in rows)
    looked_at = len(traces.sessions)
    if target.is_whole_owner and target.user_id is not None:
        known = yield from fetch(
            UserIsKnown(namespace=target.namespace, user_id=target.user_id, owner_key=target.owner_key)
        )
        remaining, looked_at = remaining + known[0].known, looked_at + 1
    return ReaderCheck("directory", looked_at, remaining)
