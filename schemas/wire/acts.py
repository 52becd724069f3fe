"""The operations of the service, each with its method, its path, and the effect of a repeated request.

The service answers them, and the client asks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from strandline.schemas.wire.base import Idempotent

WireMethod = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


@dataclass(frozen=True, slots=True)
class WireAct:
    """One operation over HTTP.

    Attributes:
        path: with names of parameters; a colon stands before the kind of a parameter other than text.
        repeats: the effect of a repeated request.
        names_user: whether the header ``Strandline-User`` names the session's user.
        waits: whether a client may say how long it waits (``Prefer: wait=5``).
        goes_on: whether the answer may come before all is done, with a ``Location`` for the rest.
        meets: kinds of problems that only this act, or only some acts like it, may end with.
    """

    method: WireMethod
    path: str
    repeats: Idempotent = "reads"
    names_user: bool = False
    waits: bool = False
    goes_on: bool = False
    meets: tuple[str, ...] = ()


PUT_MESSAGES = WireAct(
    "POST", "/v1/sessions/{session_id}/messages", "own", names_user=True, meets=("idempotency-key-reused",)
)
LIST_MESSAGES = WireAct("GET", "/v1/sessions/{session_id}/messages", names_user=True)
HISTORY = WireAct("POST", "/v1/sessions/{session_id}/history", names_user=True)
CONTEXT_WINDOW = WireAct("GET", "/v1/sessions/{session_id}/context_window", names_user=True)
PUT_RUN = WireAct("PUT", "/v1/sessions/{session_id}/runs/{run_id}", "same", names_user=True)
RUN_HISTORY = WireAct("POST", "/v1/sessions/{session_id}/run-history", names_user=True)

READ_CONTEXT = WireAct("POST", "/v1/sessions/{session_id}/context", names_user=True, waits=True)
GET_CONTEXT = WireAct("GET", "/v1/sessions/{session_id}/context", names_user=True)
SEARCH = WireAct("POST", "/v1/sessions/{session_id}/search", names_user=True)
SUMMARIZE = WireAct("POST", "/v1/sessions/{session_id}/summary", "same", names_user=True, waits=True)
SUMMARIZE_LAST = WireAct(
    "POST", "/v1/sessions/{session_id}/summary/latest", names_user=True, meets=("model-failed",)
)

GET_SESSIONS = WireAct("GET", "/v1/sessions", names_user=True)
GET_SESSION = WireAct("GET", "/v1/sessions/{session_id}", names_user=True)
DELETE_SESSION = WireAct("DELETE", "/v1/sessions/{session_id}", "kept", names_user=True)
RESET_SESSION = WireAct("POST", "/v1/sessions/{session_id}/reset", "kept", names_user=True)
FLUSH_SESSION = WireAct("POST", "/v1/sessions/{session_id}/flush", "kept", names_user=True)
FORK_SESSION = WireAct("POST", "/v1/sessions/{session_id}/fork", "kept", names_user=True)
CHANGE_POLICY = WireAct("PATCH", "/v1/sessions/{session_id}/policy", "same", names_user=True)
GET_RETENTION = WireAct("GET", "/v1/sessions/{session_id}/retention", names_user=True)
PUT_RETENTION = WireAct("PUT", "/v1/sessions/{session_id}/retention", "same", names_user=True)
NAME_SCOPE = WireAct("GET", "/v1/sessions/{session_id}/scopes/{scope}", names_user=True)

POP_MESSAGE = WireAct("DELETE", "/v1/sessions/{session_id}/messages/last", "kept", names_user=True)
REWIND_SESSION = WireAct("POST", "/v1/sessions/{session_id}/rewind", "own", names_user=True)
REPLACE_CONTENT = WireAct("PUT", "/v1/sessions/{session_id}/messages/{seq}/content", "own", names_user=True)

LIST_FACTS = WireAct("GET", "/v1/users/{user}/facts")
ADD_FACT = WireAct("POST", "/v1/users/{user}/facts", "same")
CLEAR_FACTS = WireAct("DELETE", "/v1/users/{user}/facts", "refused")
GET_FACT = WireAct("GET", "/v1/users/{user}/facts/{fact_id:uuid}")
REPLACE_FACT = WireAct("PATCH", "/v1/users/{user}/facts/{fact_id:uuid}", "refused")
DELETE_FACT = WireAct("DELETE", "/v1/users/{user}/facts/{fact_id:uuid}", "same")
JUDGE_FACT = WireAct("PUT", "/v1/users/{user}/facts/{fact_id:uuid}/feedback", "same")
SETTLE_FACT = WireAct("POST", "/v1/users/{user}/facts/{fact_id:uuid}/settle", "refused")
FACT_HISTORY = WireAct("GET", "/v1/users/{user}/facts/{fact_id:uuid}/history")
SEARCH_FACTS = WireAct("POST", "/v1/users/{user}/facts/search")
CHOOSE_FACTS = WireAct("POST", "/v1/users/{user}/facts/choose", meets=("model-failed",))
FACTS_FROM_MESSAGES = WireAct("POST", "/v1/users/{user}/facts/from-messages", "own", waits=True)
INSTRUCT_FACTS = WireAct("POST", "/v1/users/{user}/facts/instruct", "own", waits=True)
OPTIMIZE_FACTS = WireAct("POST", "/v1/users/{user}/facts/optimize", "refused", meets=("model-failed",))
FORGET_SOURCE = WireAct("DELETE", "/v1/users/{user}/sources/{source}", "same")

LIST_USERS = WireAct("GET", "/v1/users")
USER_FIGURES = WireAct("GET", "/v1/users/{user}/figures")
USER_TOPICS = WireAct("GET", "/v1/users/{user}/topics")
GET_CAPTURE = WireAct("GET", "/v1/users/{user}/capture")
SET_CAPTURE = WireAct("PUT", "/v1/users/{user}/capture", "same")

EXPLAIN_MESSAGE = WireAct("GET", "/v1/explain/messages/{message_id}", names_user=True)
EXPLAIN_FACT = WireAct("GET", "/v1/explain/facts/{fact_id:uuid}", names_user=True)

NAMESPACE_EVENTS = WireAct("GET", "/v1/events", names_user=True)
SESSION_EVENTS = WireAct("GET", "/v1/sessions/{session_id}/events", names_user=True)

IMPORT_MESSAGES = WireAct("POST", "/v1/sessions/{session_id}/import", "same", names_user=True)
IMPORT_FACTS = WireAct("POST", "/v1/users/{user}/facts/import", "same")

ERASE_USER = WireAct("POST", "/v1/users/{user}/erasures", "own", waits=True, goes_on=True)
ERASE_SESSION = WireAct(
    "POST", "/v1/sessions/{session_id}/erasures", "own", names_user=True, waits=True, goes_on=True
)
USER_ERASURES = WireAct("GET", "/v1/users/{user}/erasures")
PLAN_USER = WireAct("GET", "/v1/users/{user}/erasures/plan")
PLAN_SESSION = WireAct("GET", "/v1/sessions/{session_id}/erasures/plan", names_user=True)
READMIT_USER = WireAct("POST", "/v1/users/{user}/readmission", "refused")
READMIT_SESSION = WireAct("POST", "/v1/sessions/{session_id}/readmission", "refused", names_user=True)
GET_ERASURES = WireAct("GET", "/v1/erasures")
GET_ERASURE = WireAct("GET", "/v1/erasures/{number}")
GET_RECEIPT = WireAct("GET", "/v1/erasures/{number}/receipt")
VERIFY_ERASURE = WireAct("GET", "/v1/erasures/{number}/verification")

EXPORT_USER = WireAct("GET", "/v1/users/{user}/export")
EXPORT_SESSION = WireAct("GET", "/v1/sessions/{session_id}/export", names_user=True)

WHOAMI = WireAct("GET", "/v1/whoami", names_user=True)
POST_KEY = WireAct("POST", "/v1/admin/keys", "once")
GET_KEYS = WireAct("GET", "/v1/admin/keys")
POST_ROTATION = WireAct("POST", "/v1/admin/keys/{key_id}/rotate", "once")
DELETE_KEY = WireAct("DELETE", "/v1/admin/keys/{key_id}", "same")

GET_STATUS = WireAct("GET", "/v1/status")
GET_WORKERS = WireAct("GET", "/v1/admin/workers")
GET_NAMESPACES = WireAct("GET", "/v1/admin/namespaces")
GET_LIMITS = WireAct("GET", "/v1/admin/namespaces/{namespace}/limits")
PUT_LIMITS = WireAct("PUT", "/v1/admin/namespaces/{namespace}/limits", "same")
GET_LETTERS = WireAct("GET", "/v1/admin/dead-letters")
RETRY_LETTER = WireAct("POST", "/v1/admin/dead-letters/{event_id}/retry", "same")
DROP_LETTER = WireAct("POST", "/v1/admin/dead-letters/{event_id}/drop", "same")
POST_REPLAY = WireAct("POST", "/v1/admin/replays", "refused", goes_on=True)
ESTIMATE_REPLAY = WireAct("POST", "/v1/admin/replays/estimate")
GET_OPERATIONS = WireAct("GET", "/v1/admin/operations")
GET_OPERATION = WireAct("GET", "/v1/admin/operations/{operation_id}")
STOP_OPERATION = WireAct("POST", "/v1/admin/operations/{operation_id}/stop", "same")
GET_GENERATIONS = WireAct("GET", "/v1/admin/generations")
DIFF_GENERATION = WireAct("GET", "/v1/admin/generations/{generation}/diff", meets=("conflict",))
PROMOTE_GENERATION = WireAct("POST", "/v1/admin/generations/{generation}/promote", "refused")
PRUNE_GENERATION = WireAct("DELETE", "/v1/admin/generations/{generation}", "same")
ROLL_PIPELINE_BACK = WireAct("POST", "/v1/admin/pipelines/{pipeline}/rollback", "refused")

GET_ACTS = WireAct("GET", "/v1/admin/audit")
VERIFY_TRAIL = WireAct("GET", "/v1/admin/audit/verification")
GET_LEVEL = WireAct("GET", "/v1/admin/audit/level")
PUT_LEVEL = WireAct("PUT", "/v1/admin/audit/level", "same")
GET_ACT = WireAct("GET", "/v1/admin/audit/acts/{entry_id:uuid}")
