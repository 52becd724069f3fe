"""Filters of items, checked and written as JSON; ``fits_condition_v1`` defines them.

Most filters ask for equal fields.  One comparison with the whole value finds these at a fraction of the cost
of a call for each condition, so it comes first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import Any

from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.message import plain
from strandline.schemas.values.nesting import check_nesting
from strandline.schemas.values.stored_text import check_texts_within

EQUALITIES = frozenset({"$eq", "$ne"})
ORDERS = frozenset({"$gt", "$gte", "$lt", "$lte"})
OPERATORS = EQUALITIES | ORDERS

MAX_FILTER_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class ItemFilter:
    """Conditions on the fields of an item's value, as JSON text: values to equal, and the others."""

    equal: str = "{}"
    conditions: str = "{}"


def check_filter(conditions: Mapping[str, Any] | None) -> ItemFilter:
    """Check a filter: the fields of an item's value, each with the condition that it has to fit.

    Raises:
        ConfigurationError: an operator is unknown, compares values without an order, or the filter is too
            large.
        InvalidMessageError: a part of it is not JSON, or too deep.
    """
    if conditions is None:
        return ItemFilter()
    if not isinstance(conditions, Mapping):
        raise ConfigurationError(f"filter is of the type {quote(type(conditions).__name__)}; give a dict.")
    check_nesting("filter", conditions)
    fields: dict[str, Any] = plain(conditions)
    check_texts_within("filter", fields)
    for field, condition in fields.items():
        _check_condition(f"filter.{field}", condition)
    equal = {
        field: condition["$eq"] if isinstance(condition, Mapping) else condition
        for field, condition in fields.items()
        if _is_equality(condition)
    }
    others = {field: condition for field, condition in fields.items() if field not in equal}
    try:
        texts = [json.dumps(part, ensure_ascii=False, allow_nan=False) for part in (equal, others)]
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"filter cannot be written as JSON: {error}") from None
    if sum(len(text.encode()) for text in texts) > MAX_FILTER_BYTES:
        raise ConfigurationError(f"filter has more than {MAX_FILTER_BYTES:,} bytes as JSON; ask for less.")
    return ItemFilter(*texts)


def _is_equality(condition: object) -> bool:
    """Whether only one value fits a condition, without parts; an absent field fits null as well."""
    if isinstance(condition, Mapping):
        return list(condition) == ["$eq"] and _is_equality_value(condition["$eq"])
    return _is_equality_value(condition)


def _is_equality_value(value: object) -> bool:
    return isinstance(value, (str, bool, int, float))


def _check_condition(where: str, condition: object) -> None:
    if isinstance(condition, Sequence) and not isinstance(condition, str):
        for place, inner in enumerate(condition):
            _check_condition(f"{where}[{place}]", inner)
    if not isinstance(condition, Mapping):
        return
    has_operators = any(name.startswith("$") for name in condition)
    for name, inner in condition.items():
        if not has_operators:
            _check_condition(f"{where}.{name}", inner)
        elif name not in OPERATORS:
            raise ConfigurationError(
                f"{quote(where)} has the operator {quote(name)}; use {', '.join(sorted(OPERATORS))}."
            )
        elif name in ORDERS and (isinstance(inner, bool) or not isinstance(inner, (int, float, str))):
            raise ConfigurationError(
                f"{quote(where)} compares {name} with {quote(inner)}; use a number or text."
            )


_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}


def fits_filter(value: str, conditions: str) -> bool:
    """Whether a value fits a filter, both as JSON text."""
    fields: Any = _read(value)
    return all(
        _fits(fields.get(name) if isinstance(fields, dict) else None, condition)
        for name, condition in _read(conditions).items()
    )


def _read(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def _fits(value: Any, condition: Any) -> bool:
    if isinstance(condition, list):
        is_alike = isinstance(value, list) and len(value) == len(condition)
        return is_alike and all(map(_fits, value, condition))
    if not isinstance(condition, dict):
        return _is_same(value, condition)
    if any(name.startswith("$") for name in condition):
        return all(_holds(value, name, operand) for name, operand in condition.items())
    return isinstance(value, dict) and all(_fits(value.get(name), one) for name, one in condition.items())


def _holds(value: Any, operator: str, operand: Any) -> bool:
    if operator in ("$eq", "$ne"):
        return _is_same(value, operand) == (operator == "$eq")
    compare = _ORDERS.get(operator)
    if compare is None or _kind(value) != _kind(operand) or _kind(value) not in ("number", "text"):
        return False
    if isinstance(value, str):
        return compare(value.encode(), operand.encode())
    return compare(value, operand)


def _is_same(left: Any, right: Any) -> bool:
    """As JSON: ``1`` and ``1.0`` are the same, ``1`` and ``true`` are not."""
    if _kind(left) != _kind(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_is_same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_is_same(left[name], right[name]) for name in left)
    return bool(left == right)


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(type(value).__name__)
    if isinstance(value, (int, Decimal)):
        return "number"
    return "text" if isinstance(value, str) else str(type(value).__name__)
