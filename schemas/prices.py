"""The cost of model calls: prices per model, as the settings give them, and the cost of one call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from strandline.schemas.display.shown_text import quote

MILLION = 1_000_000
_EXAMPLE = 'for example {"gpt-4.1-mini": {"input": 0.4, "output": 1.6}}'

Price = Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]


class ModelPrice(BaseModel):
    """US dollars per million tokens that go into a model and come out of it; an embedder has no output."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(min_length=1)
    input: Price
    output: Price = Decimal(0)


def read_prices(value: object) -> object:
    """The JSON object of ``STRANDLINE_MODEL_PRICES`` (model → {input, output}) as a list of prices.

    Raises:
        ValueError: it is not a JSON object of objects.
    """
    if isinstance(value, str):
        value = _read_json(value)
    if isinstance(value, Mapping):
        return [_named_price(model, price) for model, price in value.items()]
    if isinstance(value, tuple):
        return value
    raise ValueError(f"it must be a JSON object; {_EXAMPLE}")


def cost_usd(
    prices: Iterable[ModelPrice], model: str, *, input_tokens: int, output_tokens: int
) -> Decimal | None:
    """The cost of a call in US dollars; None for a model without a price."""
    for price in prices:
        if price.model == model:
            return (price.input * input_tokens + price.output * output_tokens) / MILLION
    return None


def _read_json(text: str) -> object:
    try:
        # As numbers are written: 0.1 dollars are not the binary fraction next to it.
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        raise ValueError(f"it is not JSON; {_EXAMPLE}") from None


def _named_price(model: object, price: object) -> dict[str, Any]:
    if not isinstance(price, Mapping):
        raise ValueError(f"the price of {quote(model)} must be an object with 'input' and 'output'")
    return {**price, "model": model}
