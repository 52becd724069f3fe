"""Turns operations of LangGraph's store into requests about items, and answers into LangGraph's results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import assert_never, cast

from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from strandline.adapters.langgraph.vector_index import VectorIndex, Vectors
from strandline.producers.arguments import check_count
from strandline.producers.items.filters import check_filter
from strandline.producers.items.operations import Answer, Request, StoredItem
from strandline.producers.items.requests import (
    MAX_LABELS,
    STOP,
    ItemGet,
    ItemPut,
    ItemSearch,
    PathList,
    check_key,
    check_ttl,
    path_of,
    prefix_pattern,
    range_below,
    range_of_prefixes,
    suffix_pattern,
    value_json,
)
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError

MAX_OPERATIONS = 10_000
MAX_CONDITIONS = 100


class Batch:
    """Operations of one call, checked before anything is sent.

    Args:
        index: the store's semantic index; None: there is none, and queries are not compared.
        max_value_bytes: the bound of an item's value, as JSON.

    Raises:
        InvalidNamespaceError: a label of a namespace cannot be used.
        StrandlineError: another part of an operation cannot be used; the sentence names it.
    """

    def __init__(self, ops: Iterable[Op], index: VectorIndex | None, max_value_bytes: int) -> None:
        self.ops = _list_operations(ops)
        self._index = index
        self._max_value_bytes = max_value_bytes
        self._requests = [self._request(op) for op in self.ops]
        self._texts = [self._texts_of(op) for op in self.ops]

    @property
    def texts(self) -> list[str]:
        """The texts that get vectors: of several puts of one item, those of the last."""
        last = {(op.namespace, op.key): place for place, op in enumerate(self.ops) if isinstance(op, PutOp)}
        return list(dict.fromkeys(text for place in last.values() for text in self._texts[place]))

    @property
    def queries(self) -> list[str]:
        """The queries that are compared by their vectors."""
        queries = [op.query for op in self.ops if self._index is not None and isinstance(op, SearchOp)]
        return list(dict.fromkeys(query for query in queries if query))

    def requests(self, vectors: Vectors) -> list[Request]:
        """The operations as requests, with their vectors."""
        return [self._with_vectors(place, request, vectors) for place, request in enumerate(self._requests)]

    def results(self, answers: Sequence[Answer]) -> list[Result]:
        """The answers as LangGraph's results."""
        return [_result(op, answer) for op, answer in zip(self.ops, answers, strict=True)]

    def _texts_of(self, op: Op) -> list[str]:
        if self._index is None or not isinstance(op, PutOp) or op.value is None:
            return []
        return self._index.texts_of(op.value, op.index)

    def _with_vectors(self, place: int, request: Request, vectors: Vectors) -> Request:
        op = self.ops[place]
        if isinstance(request, ItemPut):
            texts = self._texts[place]
            return replace(
                request, vectors=tuple(vectors.of_texts[text] for text in texts if text in vectors.of_texts)
            )
        if isinstance(request, ItemSearch) and isinstance(op, SearchOp):
            return replace(request, vector=vectors.of_queries.get(op.query or ""))
        return request

    def _request(self, op: Op) -> Request:
        if isinstance(op, GetOp):
            return ItemGet(path_of(_labels(op.namespace)), check_key(op.key), bool(op.refresh_ttl))
        if isinstance(op, PutOp):
            return self._put(op)
        if isinstance(op, SearchOp):
            return self._search(op)
        if isinstance(op, ListNamespacesOp):
            return _path_list(op)
        assert_never(op)

    def _put(self, op: PutOp) -> ItemPut:
        labels = _labels(op.namespace)
        if not labels:
            raise InvalidNamespaceError("The namespace of an item is empty; give it at least one label.")
        value = None if op.value is None else value_json(op.value, self._max_value_bytes)
        return ItemPut(path_of(labels), check_key(op.key), value, ttl_minutes=check_ttl(op.ttl))

    def _search(self, op: SearchOp) -> ItemSearch:
        return ItemSearch(
            range_below(_labels(op.namespace_prefix)),
            check_filter(op.filter),
            check_count("limit", op.limit),
            check_count("offset", op.offset),
            bool(op.refresh_ttl),
            distance="cosine" if self._index is None else self._index.distance,
        )


def _list_operations(ops: Iterable[Op]) -> list[Op]:
    listed = list(ops)
    if len(listed) > MAX_OPERATIONS:
        raise ConfigurationError(
            f"A batch has {len(listed):,} operations, over the limit of {MAX_OPERATIONS:,}; send several."
        )
    for op in listed:
        if not isinstance(op, (GetOp, PutOp, SearchOp, ListNamespacesOp)):
            raise ConfigurationError(f"A batch has {quote(op)} in it, which is not an operation of a store.")
    return listed


def _labels(namespace: Iterable[object]) -> tuple[str, ...]:
    if isinstance(namespace, str):
        raise InvalidNamespaceError(f"The namespace {quote(namespace)} is text; give a tuple of labels.")
    labels = tuple(namespace)
    for label in labels:
        if not isinstance(label, str):
            raise InvalidNamespaceError(f"The label {quote(label)} of a namespace is not a string.")
        if not label or STOP in label or "\x00" in label:
            raise InvalidNamespaceError(
                f"The label {quote(label)} of a namespace is empty, or holds a full stop or NUL; use another."
            )
    return cast("tuple[str, ...]", labels)


def _path_list(op: ListNamespacesOp) -> PathList:
    conditions = list(op.match_conditions or ())
    if len(conditions) > MAX_CONDITIONS:
        raise ConfigurationError(
            f"list_namespaces has {len(conditions)} conditions, over the limit of {MAX_CONDITIONS}."
        )
    depth = MAX_LABELS if op.max_depth is None else check_count("max_depth", op.max_depth, least=1)
    prefixes = [_labels(one.path) for one in conditions if one.match_type == "prefix"]
    return PathList(
        range_of_prefixes(prefixes),
        tuple(_patterns(conditions)),
        depth,
        check_count("limit", op.limit),
        check_count("offset", op.offset),
    )


def _patterns(conditions: Iterable[MatchCondition]) -> Iterator[str]:
    for condition in conditions:
        labels = _labels(condition.path)
        path_of(labels)
        if condition.match_type not in ("prefix", "suffix"):
            raise ConfigurationError(
                f"list_namespaces has a condition of the type {quote(condition.match_type)};"
                " it must be prefix or suffix."
            )
        if labels:
            yield prefix_pattern(labels) if condition.match_type == "prefix" else suffix_pattern(labels)


def _result(op: Op, answer: Answer) -> Result:
    if isinstance(answer, StoredItem):
        return Item(
            value=answer.value,
            key=answer.key,
            namespace=answer.labels,
            created_at=answer.created_at,
            updated_at=answer.updated_at,
        )
    if isinstance(op, SearchOp):
        return [_search_item(item) for item in cast("list[StoredItem]", answer)]
    return cast("list[tuple[str, ...]] | None", answer)


def _search_item(item: StoredItem) -> SearchItem:
    return SearchItem(item.labels, item.key, item.value, item.created_at, item.updated_at, item.score)
