"""The candidates of a read: what its blocks' searches find, the newest facts, and summaries.

``producers.search.ranking`` ranks; here each search gets its query and its scope, and loses the hits that the
read shows anyway.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from strandline.pipelines.custom.contract import BlockReading
from strandline.pipelines.text.aim import NO_AIM, Aim
from strandline.pipelines.text.weighting import OTHER_DAY
from strandline.producers.blocks.base import (
    BaseMemoryBlock,
    FactExtractionMemoryBlock,
    Material,
    SummaryMemoryBlock,
)
from strandline.producers.blocks.render import fact_line
from strandline.producers.blocks.vector import VectorMemoryBlock
from strandline.producers.reading.context import Omission, sources_of_places
from strandline.producers.reading.contributions import (
    Contribution,
    Measure,
    call_within,
    is_quick,
    problem_of,
    recent_counts,
    render_blocks,
)
from strandline.producers.reading.pieces import (
    FACTS_SHARE,
    SUMMARY_SHARE,
    Candidates,
    FactPiece,
    MessagePiece,
    tokens_of_facts,
)
from strandline.producers.reading.request import ReadRequest
from strandline.producers.reading.snapshot import Snapshot, Tail, newest_that_fit
from strandline.producers.search.hits import MESSAGES_ALONE, Hit, HitFact, Place, Reranker, Utterance
from strandline.producers.search.ranking import (
    ALL_VISIBLE,
    MAX_QUERY_CHARACTERS,
    FactsAlone,
    SearchQuery,
    Target,
    Vectors,
    facts_generation,
    prepare_query,
    rank_hits,
    serving_vectors,
)
from strandline.schemas.display.local_time import in_zone
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.operations import Operation, Run
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.lanes import FACTS, VECTORS
from strandline.schemas.values.message import Message

logger = logging.getLogger("strandline.producers")

# A hit costs the statement and the process as much as a message of the window; more than these seldom fit.
MIN_HITS = 10
MAX_HITS = 100
# A short message, as it is shown.
USUAL_TOKENS = 20

# Where not even the best scores so much, no word of the query was met, and meaning alone is a guess:
# questions about other matters reach 0.1 to 0.3 in real conversations, those about these mostly 0.4 and more.
NOISE_SCORE = 0.2

# Facts that a read looks at because they are new, and because they match.
NEWEST_FACTS = 20
MAX_MATCHING_FACTS = 40


# Of the window, what facts are looked for if nothing is asked: as many as a vector block looks for.
LATEST_MESSAGES = 5
# A hit is shown with the other half of its exchange: a question with its answer.
MESSAGES_BESIDE = 1
# The number of hits that the functions choose from, and the seconds that they may take together.
MAX_CANDIDATES = 20
MAX_SECONDS = 1.0


def find_candidates(request: ReadRequest, snapshot: Snapshot) -> Operation[Candidates]:
    """The memory that a read may show; a failed search is among the omissions."""
    search = yield from _search(request, snapshot)
    material = Material(snapshot.fact_texts, snapshot.states, search.hits, reading_of(request, snapshot))
    blocks = tuple(block for block in request.blocks if block.is_filler)
    newest: list[FactPiece] = []
    matching: list[FactPiece] = []
    if any(isinstance(block, FactExtractionMemoryBlock) for block in blocks):
        shown_as = request.count_text, snapshot.time_zone
        matching = [fact_piece(*one, *shown_as) for one in matching_facts(search.facts)]
        known = {piece.fact_id: piece for piece in matching}
        newest = [
            known.get(fact.fact_id) or fact_piece(fact, 0.0, *shown_as)
            for fact in snapshot.facts[: -NEWEST_FACTS - 1 : -1]
        ]
    window = snapshot.known.window
    is_whole = window.messages is snapshot.window and snapshot.note is None and snapshot.prompt is None
    return Candidates(
        material=material,
        blocks=blocks,
        newest_facts=newest,
        facts=matching,
        messages={
            block.name: message_pieces(search.hits.get(block.name, ()))
            for block in blocks
            if isinstance(block, VectorMemoryBlock)
        },
        summaries={
            block.name: str(text)
            for block in blocks
            if isinstance(block, SummaryMemoryBlock) and (text := block.render(material))
        },
        shown=window.by_place(request.identity.session_key.int)
        if is_whole
        else by_place(request, (*snapshot.pinned, *snapshot.window)),
        known_texts=window.texts if is_whole and any(search.hits.values()) else None,
        time_zone=request.time_zone,
        omitted=search.omitted,
    )


def reading_of(request: ReadRequest, snapshot: Snapshot) -> BlockReading:
    """The request that custom blocks get."""
    query = request.query
    if query is None and request.messages:
        query = request.messages[-1]
    return BlockReading(
        session_id=request.identity.session_id,
        query=query,
        messages=(*snapshot.pinned, *snapshot.window),
        arguments=request.block_arguments,
    )


def by_place(request: ReadRequest, messages: Sequence[Message]) -> dict[Place, Message]:
    session = request.identity.session_key.int
    return {(session, message.seq or 0): message for message in messages}


@dataclass(slots=True)
class _Search:
    """The searches of a read, and their hits.

    Attributes:
        room: tokens that hits may fill.
        hits: by name of the vector block.
        facts: matches of the query.
        queries: each text is embedded once per generation.
    """

    request: ReadRequest
    snapshot: Snapshot
    room: int
    hits: dict[str, tuple[Hit, ...]] = field(default_factory=dict)
    facts: list[Hit] = field(default_factory=list)
    omitted: list[Omission] = field(default_factory=list)
    queries: dict[tuple[str, int | None], SearchQuery] = field(default_factory=dict)

    def query(self, text: str, vectors: Vectors | None) -> Operation[SearchQuery]:
        asked = text, None if vectors is None else vectors.generation_id
        if asked not in self.queries:
            vectors = None if vectors is None else replace(vectors, time_zone=self.request.time_zone)
            # Without vectors only facts are searched for.
            self.queries[asked] = yield from prepare_query(
                text, vectors, self.request.embed_query, with_aim=vectors is not None
            )
        return self.queries[asked]

    def rank(
        self,
        query: SearchQuery,
        vectors: Vectors | None,
        target: Target,
        limit: int,
        *,
        similarity_cutoff: float = 0.0,
        with_facts: bool = True,
    ) -> Operation[list[Hit]]:
        """The hits, without facts found by the same statement, which become ``facts``."""
        facts = None
        if with_facts:
            facts = FactsAlone(self.snapshot.serving[FACTS]["generation_id"], MAX_MATCHING_FACTS)
        hits = yield from rank_hits(
            query,
            vectors,
            target,
            limit=limit,
            similarity_cutoff=similarity_cutoff,
            indexes=self.request.indexes,
            standing=self.snapshot.standing,
            facts=facts,
        )
        if not with_facts:
            return hits
        self.facts = without_noise([hit for hit in hits if hit.fact is not None])
        return [hit for hit in hits if hit.fact is None]


def _search(request: ReadRequest, snapshot: Snapshot) -> Operation[_Search]:
    """Search for each block that searches.

    The facts block needs no statement where a vector block asks the same question: that block's search also
    finds facts, which ``_Search.rank`` keeps apart.  Without such a block, facts are searched alone.
    """
    search = _Search(request, snapshot, max(0, request.token_limit - snapshot.fixed_tokens))
    searching = [block for block in request.blocks if _searches(block, snapshot)]
    if snapshot.facts and _have_room(search):
        searching = [block for block in searching if not isinstance(block, FactExtractionMemoryBlock)]
    if not searching:
        return search
    shown = yield from _shown_anyway(request, snapshot)
    own_facts = next((block for block in searching if isinstance(block, FactExtractionMemoryBlock)), None)
    also_finds_facts = None if own_facts is None else _block_with_facts(searching, request)
    for block in searching:
        text = _query_text(block, request, snapshot)
        if not text or (block is own_facts and also_finds_facts is not None):
            continue
        try:
            if isinstance(block, VectorMemoryBlock):
                yield from _search_for_block(search, block, text, shown, with_facts=block is also_finds_facts)
            else:
                yield from _search_for_facts(search, text)
        except StrandlineError as error:
            if request.in_callers_transaction:
                raise
            names = [block.name, *([own_facts.name] if block is also_finds_facts and own_facts else [])]
            search.omitted += [
                Omission("search_failed", name, f"The search failed: {error}") for name in names
            ]
    return search


def _searches(block: BaseMemoryBlock, snapshot: Snapshot) -> bool:
    if isinstance(block, VectorMemoryBlock):
        return VECTORS in snapshot.serving and (block.scope != "session" or snapshot.has_flushed)
    return isinstance(block, FactExtractionMemoryBlock) and block.is_filler and bool(snapshot.facts)


def _have_room(search: _Search) -> bool:
    """Whether the newest facts are all facts and have room, so that none has to be preferred."""
    facts = search.snapshot.facts
    if len(facts) >= NEWEST_FACTS:
        return False
    shown_as = search.request.count_text, search.snapshot.time_zone
    tokens = tokens_of_facts([fact_piece(fact, 0.0, *shown_as) for fact in facts])
    return tokens <= search.room * (1 - SUMMARY_SHARE) * FACTS_SHARE


def _block_with_facts(searching: Sequence[BaseMemoryBlock], request: ReadRequest) -> VectorMemoryBlock | None:
    """The first block whose search can look for facts in the same statement: by the same query."""
    for block in searching:
        if not isinstance(block, VectorMemoryBlock) or block.scope == "shared":
            continue
        is_same = request.query is not None or block.retrieval_context_window == LATEST_MESSAGES
        if is_same and block.kinds == MESSAGES_ALONE:
            return block
    return None


def _query_text(block: BaseMemoryBlock, request: ReadRequest, snapshot: Snapshot) -> str:
    query = request.query
    if query is not None:
        text = query if isinstance(query, str) else query.shown_text
    else:
        latest = block.retrieval_context_window if isinstance(block, VectorMemoryBlock) else LATEST_MESSAGES
        messages = (request.messages or snapshot.window)[-latest:]
        text = "\n".join(one.shown_text for one in messages if one.shown_text)
    return text[-MAX_QUERY_CHARACTERS:].strip()


def _search_for_facts(search: _Search, text: str) -> Operation[None]:
    serving = search.snapshot.serving.get(VECTORS)
    vectors = None if serving is None else Vectors(serving["generation_id"], serving["config"])
    query = yield from search.query(text, vectors)
    if not query.is_empty:
        target = Target(search.request.identity, "owner", MESSAGES_ALONE, None)
        yield from search.rank(query, vectors, target, 0)


def _search_for_block(
    search: _Search, block: VectorMemoryBlock, text: str, shown: Shown, *, with_facts: bool
) -> Operation[None]:
    request, serving = search.request, search.snapshot.serving
    vectors: Vectors | None
    facts_generation_id = None
    if block.scope == "shared" and request.shared_key is not None:
        vectors = yield from serving_vectors(request.shared_key)
    else:
        vectors = Vectors(serving[VECTORS]["generation_id"], serving[VECTORS]["config"])
        if "fact" in block.kinds:
            facts_generation_id = serving.get(FACTS, {}).get("generation_id")
        if facts_generation_id is None:
            facts_generation_id = yield from facts_generation(block.kinds, request.identity.shard_key)
    if vectors is None:
        return
    query = yield from search.query(text, vectors)
    omitted = [] if query.problem is None else [Omission("search_text_only", block.name, query.problem)]
    hits: tuple[Hit, ...] = ()
    if not query.is_empty:
        target = Target(
            identity=request.identity,
            scope=block.scope,
            kinds=block.kinds,
            shared_key=request.shared_key,
            visible_from=ALL_VISIBLE if block.exclude_current else shown.visible_from,
            facts_generation_id=facts_generation_id,
            facts_shown=[str(fact.fact_id) for fact in shown.facts],
            beside=0 if block.is_filler else MESSAGES_BESIDE,
        )
        most = block.similarity_top_k
        if most is None:
            most = min(MAX_HITS, max(MIN_HITS, search.room // USUAL_TOKENS))
        ranked = yield from search.rank(
            query,
            vectors,
            target,
            MAX_CANDIDATES if block.steps else most,
            similarity_cutoff=block.similarity_cutoff,
            with_facts=with_facts,
        )
        if block.is_filler:
            ranked = without_noise(ranked, query.aim)
        hits = without_shown(ranked, shown)
        if block.steps and hits:
            hits, failures = yield Run(partial(postprocess_hits, block, query.text, hits))
            omitted += failures
        hits = hits[:most]
    search.hits[block.name] = hits
    search.omitted += omitted


@dataclass(frozen=True, slots=True)
class Shown:
    """The facts and messages that the read shows anyway: of this session, ``seqs`` and all messages from
    ``visible_from`` on.
    """

    identity: SessionIdentity
    visible_from: int
    seqs: frozenset[int]
    facts: Sequence[HitFact] = ()

    def holds(self, seq: int) -> bool:
        """Whether the read shows this message of its session."""
        return seq >= self.visible_from or seq in self.seqs


def _shown_anyway(request: ReadRequest, snapshot: Snapshot) -> Operation[Shown]:
    seqs = frozenset([*snapshot.ahead, *(one.seq or 0 for one in snapshot.pinned)])
    if not snapshot.tail.messages:
        return Shown(request.identity, snapshot.window_from, seqs, snapshot.facts)
    always = [block for block in request.blocks if block.priority == 0]
    contributions, _ = yield from render_blocks(
        always, Material(snapshot.fact_texts, snapshot.states, reading=reading_of(request, snapshot))
    )
    room = request.token_limit - snapshot.fixed_tokens
    reserve = partial(reserved_tail, room, contributions, snapshot.tail, request.measure)
    reserved: tuple[Message, ...] = reserve() if is_quick(contributions) else (yield Run(reserve))
    seqs |= {message.seq for message in reserved if message.seq is not None}
    visible_from = snapshot.window_from
    while visible_from - 1 in seqs:
        visible_from -= 1
    return Shown(request.identity, visible_from, seqs, snapshot.facts)


def reserved_tail(
    room: int, contributions: Sequence[Contribution], tail: Tail, measure: Measure
) -> tuple[Message, ...]:
    """The part of the tail that only blocks of priority 0 can displace: at most half the room."""
    if not tail.messages:
        return ()
    always = [c for c in contributions if c.block.priority == 0]
    return newest_that_fit(tail, (room - measure.cost(always)) // 2)


def without_shown(hits: Sequence[Hit], shown: Shown) -> tuple[Hit, ...]:
    """The hits without messages that the read shows anyway; a message stays in its best hit, facts stay."""
    own_session = shown.identity.session_key.int
    seen: set[Place] = set()
    remaining = []
    for hit in hits:
        if hit.utterance is not None:
            place = hit.utterance.place
            if place not in seen and not (place[0] == own_session and shown.holds(place[1])):
                seen.add(place)
                remaining.append(hit)
            continue
        if hit.session_key is None:
            remaining.append(hit)
            continue
        session = hit.session_key.int
        messages = []
        for message in hit.messages:
            place = session, message.seq or 0
            if place not in seen and not (session == own_session and shown.holds(place[1])):
                seen.add(place)
                messages.append(message)
        if messages:
            is_whole = len(messages) == len(hit.messages)
            remaining.append(hit if is_whole else replace(hit, messages=tuple(messages)))
    return tuple(remaining)


def postprocess_hits(
    block: VectorMemoryBlock, query: str, hits: tuple[Hit, ...]
) -> tuple[tuple[Hit, ...], list[Omission]]:
    """The hits after each of the block's functions in order; a failing or late one changes nothing.

    The functions are the application's code, whose failure must not fail the read.
    """
    deadline = time.monotonic() + MAX_SECONDS
    omissions = []
    for keyword, step in block.steps:
        if not hits:
            break
        chosen, problem = _attempt(step, query, hits, deadline - time.monotonic())
        if chosen is not None:
            hits = chosen
            continue
        logger.warning(
            "postprocessor failed", extra={"action": "rerank_failed", "block": block.name, "reason": problem}
        )
        reason = f"Its {keyword}= {problem}; the hits stay as they were."
        omissions.append(Omission("rerank_failed", block.name, reason))
    return hits, omissions


def _attempt(
    step: Reranker, query: str, hits: tuple[Hit, ...], seconds: float
) -> tuple[tuple[Hit, ...] | None, str]:
    """The hits that the function returns, or None and the reason."""
    try:
        chosen = tuple(call_within(max(0.0, seconds), partial(step, query, hits)))
    except Exception as error:  # noqa: BLE001  # the edge to foreign code, see above
        return None, problem_of(error, MAX_SECONDS)
    places = [_index_of(hit, hits) for hit in chosen]
    if None in places:
        return None, "returned something that is not one of the hits"
    return tuple(hits[place] for place in dict.fromkeys(places) if place is not None), ""


def _index_of(hit: object, hits: Sequence[Hit]) -> int | None:
    return next((place for place, other in enumerate(hits) if other is hit), None)


def without_noise(hits: Sequence[Hit], aim: Aim = NO_AIM) -> list[Hit]:
    """The hits; none if even the best says nothing of the question.

    Args:
        aim: of the question, if the hits are messages; the scores of facts do not depend on it.
    """
    least = NOISE_SCORE * OTHER_DAY if aim.days else NOISE_SCORE
    return list(hits) if any(hit.score >= least for hit in hits) else []


def message_pieces(hits: Sequence[Hit]) -> tuple[MessagePiece, ...]:
    """The messages of the hits, each once, best first."""
    pieces: dict[Place, MessagePiece] = {}
    rank = 1.0
    for hit in hits:
        rank = min(rank, hit.score)
        if hit.session_key is None:
            continue
        utterances = (
            [hit.utterance] if hit.utterance else [Utterance(hit.session_key, one) for one in hit.messages]
        )
        for utterance in utterances:
            if utterance.place not in pieces and utterance.text.strip():
                pieces[utterance.place] = MessagePiece.of(utterance, hit.score, rank, hit.similarity)
    return tuple(pieces.values())


def fact_piece(
    fact: HitFact, score: float, count_text: Callable[[str], int], time_zone: str | None
) -> FactPiece:
    """A fact that may be shown; its line, which is counted, and its sources by name are made once."""
    shown = fact.shown.get((count_text, time_zone))
    if shown is None:
        line, day = fact_line(fact.text), in_zone(fact.said_at, time_zone).date().isoformat()
        named = sources_of_places(
            [(name, seq) for (_, seq), name in fact.sources.items() if name is not None]
        )
        fact.shown[count_text, time_zone] = shown = line, day, tokens_of_line(line, count_text), named
    line, day, tokens, named = shown
    return FactPiece(fact.fact_id, fact.text, line, day, fact.said_at, fact.sources, score, tokens, named)


def tokens_of_line(line: str, count_text: Callable[[str], int]) -> int:
    """With the line's end."""
    return recent_counts.count(count_text, line) + 1


def matching_facts(hits: Sequence[Hit]) -> Iterator[tuple[HitFact, float]]:
    """The facts among the hits with their scores, best first."""
    for hit in hits:
        if hit.fact is not None:
            yield hit.fact, hit.score
