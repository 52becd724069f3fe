"""A session's policy: limits, flush size, idle time, tokenizer and pipelines.

The first put stores it on the session's row; flushes, sweeps and other processes use it.  A
change is recorded (``policy_change``) and applies from then on; tokenizer and shared scope cannot change.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Literal, TypedDict, TypeVar, get_args

from strandline.schemas.display.local_time import time_zones
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, InvalidMessageError
from strandline.schemas.values.foreign_values import plain_int, plain_number
from strandline.schemas.values.identity import check_name
from strandline.schemas.values.lanes import OVERFLOW
from strandline.schemas.values.same_named import make_from

T = TypeVar("T")

logger = logging.getLogger("strandline.policy")

DEFAULT_TOKEN_LIMIT = 30_000
DEFAULT_HISTORY_RATIO = 0.7
DEFAULT_FLUSH_SIZE = 3_000
DEFAULT_IDLE_SECONDS = 600
# Tokens do not bound a prompt of many megabytes, or the number of messages that a flush is planned with.
DEFAULT_WINDOW_MESSAGES = 2_000
DEFAULT_WINDOW_BYTES = 16_000_000
FLUSH_SIZE_REPAIR_RATIO = 0.7
MAX_INTEGER = 2**31 - 1
# A message costs about as much besides its text, so even empty ones count.
MIN_MESSAGE_TOKENS = 4


Deliver = Literal["window", "turn"]
DELIVERIES: tuple[Deliver, ...] = get_args(Deliver)


@dataclass(frozen=True, slots=True)
class Policy:
    """The limits and pipelines of a session; its tokenizer counts the tokens.

    Attributes:
        token_limit: maximum tokens of a read, long-term memory included.
        flush_at_tokens: the mark; a put that lifts the short-term tokens above it flushes.
        token_flush_size: minimum tokens of one flush event.
        idle_seconds: a session without puts for this long is flushed; None: never.
        tokenizer: its name, for other processes to see.
        pipelines: the pipelines that its flush events feed; if empty, messages are only archived.
        shared_scope: the scope of its namespace in which its flushed messages are shared; None: not shared.
        max_window_messages: the second mark; a put that lifts the window above this many messages flushes.
        max_window_bytes: the third mark, in bytes as stored.
        message_flush_size: minimum messages of a flush by the second mark; None: a quarter of the mark.
        deliver: ``window``: messages are delivered when they leave the window, or the session is idle;
            ``turn``: also at the end of each turn, without leaving the window.  It makes 8 times as many
            text calls at a turn a second, 46 times where no turn shares a call (docs/models.md).
        time_zone: of messages that name no offset from UTC, an IANA name; None: UTC.
        max_facts: if the owner has more live facts than this, workers condense them; None: no influence.
    """

    token_limit: int
    flush_at_tokens: int
    token_flush_size: int
    idle_seconds: int | None
    tokenizer: str
    pipelines: tuple[str, ...]
    max_facts: int | None = None
    shared_scope: str | None = None
    max_window_messages: int = DEFAULT_WINDOW_MESSAGES
    max_window_bytes: int = DEFAULT_WINDOW_BYTES
    message_flush_size: int | None = None
    deliver: Deliver = "window"
    time_zone: str | None = None


def stored_policy(stored: object) -> Policy:
    """The policy of a row, or of an answer: it was checked when it was stored."""
    policy = make_from(Policy, stored)
    return replace(policy, pipelines=tuple(policy.pipelines))


# The values of a policy that follow from the memory blocks and the tokenizer.
OF_BLOCKS = ("tokenizer", "pipelines", "max_facts")


class PolicyOptions(TypedDict, total=False):
    """The limits of a new session: arguments of ``make_policy`` that ``Memory.from_defaults`` takes."""

    token_limit: int | None
    chat_history_token_ratio: float
    token_flush_size: int
    max_window_messages: int
    max_window_bytes: int
    message_flush_size: int | None
    deliver: Deliver
    time_zone: str | None
    shared_scope: str | None
    idle_seconds: int | None


def make_policy(
    *,
    token_limit: int | None = None,
    chat_history_token_ratio: float = DEFAULT_HISTORY_RATIO,
    token_flush_size: int = DEFAULT_FLUSH_SIZE,
    idle_seconds: int | None = DEFAULT_IDLE_SECONDS,
    tokenizer: str,
    pipelines: tuple[str, ...],
    max_facts: int | None = None,
    shared_scope: str | None = None,
    max_window_messages: int = DEFAULT_WINDOW_MESSAGES,
    max_window_bytes: int = DEFAULT_WINDOW_BYTES,
    message_flush_size: int | None = None,
    deliver: Deliver = "window",
    time_zone: str | None = None,
) -> Policy:
    """Check the limits and derive the mark; ``token_limit`` None: 30,000.

    A flush size above the token limit is set to 0.7 of the limit, as LlamaIndex does; that is logged, unless
    the default does not fit, which is not a mistake.

    Raises:
        ConfigurationError: a limit is not positive, no message fits the token limit, the ratio is not in
            (0, 1], a flush by messages is to take more than the window may hold, or ``deliver`` is neither
            ``window`` nor ``turn``.
        InvalidMessageError: ``shared_scope`` is not a valid name, or there is no such time zone.
    """
    token_limit = _token_limit(DEFAULT_TOKEN_LIMIT if token_limit is None else token_limit)
    token_flush_size = _positive("token_flush_size", token_flush_size)
    max_window_messages = _positive("max_window_messages", max_window_messages)
    max_window_bytes = _positive("max_window_bytes", max_window_bytes)
    if message_flush_size is not None:
        message_flush_size = _message_flush_size(message_flush_size, max_window_messages)
    if idle_seconds is not None:
        idle_seconds = _positive("idle_seconds", idle_seconds)
    if max_facts is not None:
        max_facts = _positive("max_facts", max_facts)
    if deliver not in DELIVERIES:
        raise ConfigurationError(f"deliver is {quote(deliver)}; it must be one of {', '.join(DELIVERIES)}")
    chat_history_token_ratio = _ratio(chat_history_token_ratio)
    if token_flush_size > token_limit:
        token_flush_size = _repaired_flush_size(token_flush_size, token_limit)
    return Policy(
        token_limit=token_limit,
        flush_at_tokens=max(1, int(token_limit * chat_history_token_ratio)),
        token_flush_size=token_flush_size,
        idle_seconds=idle_seconds,
        tokenizer=tokenizer,
        pipelines=pipelines,
        max_facts=max_facts,
        shared_scope=None if shared_scope is None else check_name("shared_scope", shared_scope),
        max_window_messages=max_window_messages,
        max_window_bytes=max_window_bytes,
        message_flush_size=message_flush_size,
        deliver=deliver,
        time_zone=None if time_zone is None else check_time_zone(time_zone),
    )


def check_time_zone(name: object) -> str:
    """The name of a time zone that this machine knows; raises InvalidMessageError."""
    if isinstance(name, str) and name in time_zones():
        return name
    raise InvalidMessageError(
        "time_zone", "must be a name of the IANA time zone database, such as Europe/Lisbon"
    )


class WindowOptions(TypedDict):
    """Arguments of ``Memory.from_defaults`` and ``set_policy`` that bound a window by messages."""

    max_window_messages: int
    message_flush_size: int


def sliding_window(window_size: int) -> WindowOptions:
    """A window of at most the newest ``window_size`` messages.

    Each put beyond it flushes the oldest turn; a whole turn leaves at once, so the window may hold fewer.

    Raises:
        ConfigurationError: ``window_size`` is not a whole number above 0.
    """
    return {"max_window_messages": _positive("window_size", window_size), "message_flush_size": 1}


def summary_window(threshold_messages: int = 50, keep_last: int = 10) -> WindowOptions:
    """A window that is flushed when it has ``threshold_messages``, all but at most the last ``keep_last``.

    With a summary block these messages are then summarised together; until they are, reads show them.

    Raises:
        ConfigurationError: one is not a whole number above 0, or ``keep_last`` is not the smaller one.
    """
    threshold, kept = _positive("threshold_messages", threshold_messages), _positive("keep_last", keep_last)
    if kept >= threshold:
        raise ConfigurationError(f"keep_last is {kept}; it must be below threshold_messages, {threshold}")
    return {"max_window_messages": threshold - 1, "message_flush_size": threshold - kept}


class Unchanged(Enum):
    """Marks a value that stays as it is, where None is a value."""

    UNCHANGED = "unchanged"


class PolicyChanges(TypedDict, total=False):
    """The values of a ``PolicyChange`` that a caller names, as ``set_policy`` takes them."""

    token_limit: int | None
    chat_history_token_ratio: float | None
    token_flush_size: int | None
    max_window_messages: int | None
    max_window_bytes: int | None
    message_flush_size: int | None
    deliver: Deliver | None
    time_zone: str | None
    idle_seconds: int | Unchanged | None


# The values that a caller names as they are stored.
PLAIN_VALUES = [name for name in PolicyChanges.__annotations__ if name in Policy.__slots__]


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """A change of a policy; None (for ``idle_seconds``, ``UNCHANGED``) leaves a value as it is.

    Attributes:
        chat_history_token_ratio: the mark as a share of the limit; a new limit alone does not change it.
        pipelines: the pipelines of blocks that later flushes feed, with the ``max_facts`` of the blocks.
        on_overflow: whether later flushes also go to the overflow handler.
    """

    token_limit: int | None = None
    chat_history_token_ratio: float | None = None
    token_flush_size: int | None = None
    idle_seconds: int | Unchanged | None = Unchanged.UNCHANGED
    pipelines: tuple[str, ...] | None = None
    max_facts: int | None = None
    max_window_messages: int | None = None
    max_window_bytes: int | None = None
    message_flush_size: int | None = None
    deliver: Deliver | None = None
    time_zone: str | None = None
    on_overflow: bool | None = None


def changed_policy(present: Policy, change: PolicyChange) -> Policy:
    """The policy that results from a change.

    Raises:
        ConfigurationError: as ``make_policy`` does.
    """
    limit = _token_limit(_or(change.token_limit, present.token_limit))
    size = _or(change.token_flush_size, present.token_flush_size)
    idle = present.idle_seconds if isinstance(change.idle_seconds, Unchanged) else change.idle_seconds
    fits = change.token_flush_size is not None or size <= limit
    most = _positive("max_window_messages", _or(change.max_window_messages, present.max_window_messages))
    kept_size = present.message_flush_size
    if kept_size is not None:
        kept_size = min(kept_size, most)
    policy = make_policy(
        token_limit=limit,
        chat_history_token_ratio=_or(change.chat_history_token_ratio, DEFAULT_HISTORY_RATIO),
        token_flush_size=size if fits else max(1, int(limit * FLUSH_SIZE_REPAIR_RATIO)),
        idle_seconds=idle,
        tokenizer=present.tokenizer,
        pipelines=_changed_pipelines(present, change),
        max_facts=present.max_facts if change.pipelines is None else change.max_facts,
        shared_scope=present.shared_scope,
        max_window_messages=most,
        max_window_bytes=_or(change.max_window_bytes, present.max_window_bytes),
        message_flush_size=_or(change.message_flush_size, kept_size),
        deliver=_or(change.deliver, present.deliver),
        time_zone=_or(change.time_zone, present.time_zone),
    )
    if change.chat_history_token_ratio is not None:
        return policy
    # In whole numbers: a mark that is not to change stays the same token.
    return replace(policy, flush_at_tokens=max(1, present.flush_at_tokens * limit // present.token_limit))


def with_overflow(pipelines: tuple[str, ...], on_overflow: bool) -> tuple[str, ...]:
    """Pipelines of blocks, sorted, and that of the overflow handler if it is wanted."""
    return tuple(sorted({*pipelines, OVERFLOW} if on_overflow else {*pipelines} - {OVERFLOW}))


def _changed_pipelines(present: Policy, change: PolicyChange) -> tuple[str, ...]:
    is_fed = OVERFLOW in present.pipelines
    on_overflow = is_fed if change.on_overflow is None else change.on_overflow
    pipelines = present.pipelines if change.pipelines is None else change.pipelines
    return pipelines if on_overflow == (OVERFLOW in pipelines) else with_overflow(pipelines, on_overflow)


def overflow_window(max_size: int, keep: float = 0.8) -> WindowOptions:
    """A window of at most ``max_size`` messages, of which the newest ``keep`` stay when it is full.

    The others are flushed together; with ``on_overflow`` the overflow handler gets them.

    Raises:
        ConfigurationError: ``max_size`` is not a whole number above 0, or ``keep`` not a number in (0, 1).
    """
    size = _positive("max_size", max_size)
    share = _ratio(keep, "keep")
    if share == 1:
        raise ConfigurationError("keep is 1; it must be below 1, so that something can leave the window.")
    return {"max_window_messages": size, "message_flush_size": max(1, round(size * (1 - share)))}


def _or(new: T | None, present: T) -> T:
    return present if new is None else new


@lru_cache(maxsize=256)
def _repaired_flush_size(token_flush_size: int, token_limit: int) -> int:
    repaired = max(1, int(token_limit * FLUSH_SIZE_REPAIR_RATIO))
    if token_flush_size != DEFAULT_FLUSH_SIZE:
        logger.warning(
            "token_flush_size %d is above token_limit %d: using %d", token_flush_size, token_limit, repaired
        )
    return repaired


def _ratio(value: object, name: str = "chat_history_token_ratio") -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < plain_number(value) <= 1:
        raise ConfigurationError(f"{name} is {quote(value)}; it must be a number above 0 and at most 1")
    return plain_number(value)


def _token_limit(value: object) -> int:
    limit = _positive("token_limit", value)
    if limit < MIN_MESSAGE_TOKENS:
        raise ConfigurationError(
            f"token_limit is {limit}, which no message fits: the smallest counts {MIN_MESSAGE_TOKENS} tokens;"
            f" it must be at least {MIN_MESSAGE_TOKENS}, and for most chats some thousands"
        )
    return limit


def _message_flush_size(value: object, most: int) -> int:
    size = _positive("message_flush_size", value)
    if size > most:
        raise ConfigurationError(
            f"message_flush_size is {size}, and a window holds at most {most} messages"
            " (max_window_messages); it must not be larger"
        )
    return size


def _positive(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < plain_int(value) <= MAX_INTEGER:
        raise ConfigurationError(
            f"{name} is {quote(value)}; it must be a whole number above 0 and at most {MAX_INTEGER}"
        )
    return plain_int(value)
