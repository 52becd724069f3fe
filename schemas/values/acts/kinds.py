"""The acts that the audit trail records, each with the level from which on it is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError

AuditLevel = Literal["off", "changes", "all"]
LEVELS: tuple[AuditLevel, ...] = get_args(AuditLevel)
DEFAULT_LEVEL: AuditLevel = "changes"
RecordedFrom = Literal["changes", "all"]

MAX_FLAGS = 16
MAX_FLAG_BYTES = 100
MAX_DETAIL_BYTES = 2_000


@dataclass(frozen=True, slots=True)
class ActKind:
    """One kind of act: the lowest level at which it is recorded, and the act in a few words."""

    level: RecordedFrom
    meaning: str


def _acts(level: RecordedFrom, **meanings: str) -> dict[str, ActKind]:
    return {key.replace("__", "."): ActKind(level, meaning) for key, meaning in meanings.items()}


ACTS: Mapping[str, ActKind] = MappingProxyType(
    _acts(
        "all",
        put="messages were put into a session",
        read="the memory of a session was read for a prompt",
        history="messages of a session were read",
        search="messages were searched",
        summary__read="a summary was read",
        facts__read="facts of a user were read",
        facts__search="facts of a user were searched",
        items__put="items of an application were written",
        items__read="items of an application were read",
        explain="the origin of a message or a fact was explained",
        directory__read="sessions or users of a namespace were listed",
    )
    | _acts(
        "changes",
        set="a session's history was replaced as a whole",
        pop="the newest message was removed",
        reset="a session's history was started over",
        forget="a session's history was started over, and its derived memory deleted",
        rewind="messages were taken back",
        replace="a message was given other content",
        fork="a session was copied to a new one",
        policy="the policy of a session was changed",
        facts__add="a fact was added by hand",
        facts__replace="a fact was given other words",
        facts__delete="a fact was deleted",
        facts__clear="all facts of a user were deleted",
        facts__feedback="a fact was judged",
        facts__doubt="decisions of a model on known facts were refused, and doubtful facts added",
        facts__settle="a doubtful fact was settled",
        facts__import="facts of another system were added",
        facts__source="messages were given to be made into facts",
        facts__instruct="an instruction to change facts was given",
        facts__obey="facts were changed as a user's instruction asks for",
        facts__optimize="facts of a user were condensed",
        capture="it was changed what is captured as facts",
        items__delete="items of an application were deleted",
        limits="the limits of a namespace were changed",
        replay__start="a replay was started",
        replay__resume="a replay was carried on",
        replay__stop="a running replay was asked to stop",
        generations__serve="a generation began to serve all owners",
        generations__rollback="the generation that served before serves again",
        generations__prune="the rows of a retired generation were deleted",
        dead_letters__retry="dead letters were made due again",
        dead_letters__drop="dead letters were given up",
        erasure="a user's memory was erased",
        readmit="an erased user was admitted again",
        export="the data kept of a user was exported",
        encryption="encryption was switched on or its keys were rotated",
        retention="the retention of a namespace or a session was changed",
        expire="messages were deleted at the end of their retention",
        restore="messages were restored from an archive",
        key__create="a key of the service was made",
        key__revoke="a key of the service was revoked",
        reveal="stored content was shown to an operator",
        audit__level="the level of the audit trail was changed",
        audit__prune="sealed entries at the beginning of the audit trail were deleted",
        audit__read="the audit trail was read",
    )
    | {"import": ActKind("changes", "messages were imported into a session")}
)


def check_level(level: object) -> AuditLevel:
    """Return ``level`` if there is one of this name; raises ConfigurationError."""
    if level not in LEVELS:
        raise ConfigurationError(
            f"{quote(level)} is not a level of the audit trail; use {', '.join(LEVELS)}."
        )
    return level
