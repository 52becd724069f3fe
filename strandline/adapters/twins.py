"""A method and its async twin, made of one act: a generator over functions that have async twins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial, wraps
from inspect import ismethod
from typing import Any, Concatenate, ParamSpec, TypeVar

from strandline.producers.execution import signed, signed_twin

T = TypeVar("T")
F = TypeVar("F")
P = ParamSpec("P")

Step = partial[Any]
Act = Generator[Step, Any, T]


def call(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Act[T]:
    """Call a function, or await its twin: that of the same name behind an ``a``."""
    result: T = yield partial(function, *arguments, **named)
    return result


def twins(
    act: Callable[Concatenate[F, P], Act[T]],
) -> tuple[Callable[Concatenate[F, P], T], Callable[Concatenate[F, P], Coroutine[Any, Any, T]]]:
    """The method of an act, which has its name without the ``_``, and the method's async twin."""
    name = act.__name__.removeprefix("_")
    act.__name__, act.__qualname__ = name, f"{act.__qualname__.removesuffix(act.__name__)}{name}"

    @wraps(act)
    def method(face: F, /, *arguments: P.args, **named: P.kwargs) -> T:
        try:
            _carry_out(act(face, *arguments, **named), _call_now).send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        raise AssertionError("no step of a method waits for an event loop")

    @wraps(act)
    async def twin(face: F, /, *arguments: P.args, **named: P.kwargs) -> T:
        return await _carry_out(act(face, *arguments, **named), _call_twin)

    return signed(method, act), signed_twin(twin, act)


async def _carry_out(steps: Act[T], make: Callable[[Step], Awaitable[Any]]) -> T:
    proceed: Callable[[Any], Step] = steps.send
    outcome: Any = None
    while True:
        try:
            step = proceed(outcome)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        try:
            proceed, outcome = steps.send, await make(step)
        except BaseException as error:  # noqa: BLE001  # the act says what becomes of it
            proceed, outcome = steps.throw, error


async def _call_now(step: Step) -> Any:
    return step()


async def _call_twin(step: Step) -> Any:
    function: Any = step.func
    name = f"a{function.__name__}"
    twin = getattr(function.__self__, name) if ismethod(function) else function.__globals__[name]
    return await twin(*step.args, **step.keywords)
