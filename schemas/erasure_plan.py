"""How the erasure of an owner treats each table; a test takes the tables from the catalog.

Name a new table here: in ``ERASED`` if its rows begin with an owner's ``shard_key`` and go with the owner,
else in ``TREATED`` with its treatment, or in ``KEPT`` with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping

# Rows under the owner's key, deleted in this order.  Flush events come first: a replay that makes work of an
# event holds its row, so its rows exist when the later tables come.
ERASED = (
    "flush_event",
    "due",
    "watch",
    "session_run",
    "fact",
    "fact_revision",
    "fact_candidate",
    "fact_event",
    "fact_owner",
    "condensation",
    "block_state",
    "answer",
    "chunk",
    "message",
    "popped",
    "superseded",
    "correction",
    "policy_change",
    "dead_letter",
    "receipt",
    "batch",
    "scope_generation",
    "derived_change",
    "archived_input",
    "expired_life",
    "retention_step",
    "given_up_step",
    "session_retention_act",
    "audit_subject",
    "data_key",
    "kept_response",
)

# Tables that are treated by a step of their own (pipelines/upkeep/erasure), by what becomes of their rows.
TREATED: Mapping[str, str] = {
    "session": "deleted in the transaction that sets the fence, so that no put comes after it",
    "lane": "deleted in the transaction that sets the fence, so that no worker writes after it",
    "session_owner": "deleted: the directory entries of the owner, each under the key of its session's name",
    "shared_session": "deleted, with the copies in shared scopes",
    "shared_message": "deleted: copies in shared scopes; so are their pieces in chunk",
    "model_call": "moved to a random key: the ledger of cost stays, and leads to no name",
    "audit_entry": "unsealed acts are moved to a random key: the trail stays, and leads to no user",
    "capture_act": "deleted: the acts on capturing of the owner; as an actor the user is renamed",
    "store_item": "what an adapter keeps of the user is deleted, and items below paths that the caller names;"
    " others belong to the namespace, and only the application knows which of them concern a user",
    "service_key": "deleted: keys of the HTTP service that open the user alone",
    "replay": "the names of the user and of the sessions in the selection are replaced",
}

# Tables that an erasure leaves alone, by the reason.
KEPT: Mapping[str, str] = {
    "alembic_version": "the version of the tables",
    "audit_chain": "how long the chain of a namespace is",
    "audit_level": "the choice of a namespace",
    "audit_seal": "links of the chain: digests of acts",
    "audit_sealed": "acts under a random pseudonym, without the origins once audit_subject is gone",
    "encryption": "the choice of a namespace, and its wrapped probe",
    "budget_slice": "sums of a namespace, without owners",
    "erasure": "the record of the erasure itself, which holds no name",
    "erasure_fence": "the fence itself: a key, by which the owner is kept away",
    "generation": "recipes of the application, without owners",
    "namespace_limit": "limits of a namespace, without owners",
    "namespace_rule": "sums and choices of a namespace, without owners",
    "retention_act": "the choice of a namespace",
    "retention_run": "passes over all sessions, without names",
    "replay_budget": "allowances of namespaces and of model servers, without owners",
    "worker": "processes of the operator",
}

# Adapters that keep items of users for themselves (``adapter_items_key``).
ADAPTERS_WITH_ITEMS = ("agno_1",)

# The rows of one session that a forgetting reset (reset_v1) leaves, by the column with its key.
SCOPED: Mapping[str, str] = {
    "policy_change": "session_key",
    "session_run": "session_key",
    "watch": "session_key",
    "due": "session_key",
    "message": "session_key",
    "popped": "session_key",
    "superseded": "session_key",
    "correction": "session_key",
    "chunk": "session_key",
    "dead_letter": "session_key",
    "fact_candidate": "session_key",
    "flush_event": "session_key",
    "archived_input": "session_key",
    "expired_life": "session_key",
    "retention_step": "session_key",
    "given_up_step": "session_key",
    "session_retention_act": "session_key",
    "block_state": "scope_key",
    "batch": "scope_key",
    "kept_response": "session_key",
}
