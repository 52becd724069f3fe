"""What an erasure deletes, from ``schemas/tables``.  Written by `make queries`."""

from __future__ import annotations

from collections.abc import Mapping

# The tables with an owner's rows, in the order in which they go.
ERASED = (
    "flush_event",
    "answer",
    "archived_input",
    "audit_subject",
    "batch",
    "block_state",
    "chunk",
    "condensation",
    "correction",
    "dead_letter",
    "due",
    "expired_life",
    "fact",
    "fact_candidate",
    "fact_event",
    "fact_owner",
    "fact_revision",
    "former_fact",
    "given_up_step",
    "kept_response",
    "message",
    "policy_change",
    "popped",
    "receipt",
    "retention_step",
    "scope_generation",
    "session_retention_act",
    "session_run",
    "superseded",
    "watch",
    "data_key",
    "derived_change",
)

# Of these, the tables whose rows go with a session, by the column with its key.
SCOPED: Mapping[str, str] = {
    "flush_event": "session_key",
    "archived_input": "session_key",
    "batch": "scope_key",
    "block_state": "scope_key",
    "chunk": "session_key",
    "correction": "session_key",
    "dead_letter": "session_key",
    "due": "session_key",
    "expired_life": "session_key",
    "fact_candidate": "session_key",
    "former_fact": "session_key",
    "given_up_step": "session_key",
    "kept_response": "session_key",
    "message": "session_key",
    "policy_change": "session_key",
    "popped": "session_key",
    "retention_step": "session_key",
    "session_retention_act": "session_key",
    "session_run": "session_key",
    "superseded": "session_key",
    "watch": "session_key",
}
