"""Whether an item's value fits a filter, as ``fits_condition_v1`` decides it; for values that are sealed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import Any

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
