-- The vacuum after an erasure.  Written by `make queries` from schemas/tables.
-- name: vacuum_erased
-- Make the space of deleted rows free to be used again, in tables and indexes, one table after the other; and take new
--     samples. A table that another vacuum works on is passed over.
VACUUM (ANALYZE, INDEX_CLEANUP ON, SKIP_LOCKED) strandline.flush_event, strandline.answer, strandline.archived_input,
    strandline.audit_entry, strandline.audit_subject, strandline.batch, strandline.block_state, strandline.capture_act,
    strandline.chunk, strandline.condensation, strandline.correction, strandline.dead_letter, strandline.due,
    strandline.expired_life, strandline.fact, strandline.fact_candidate, strandline.fact_event, strandline.fact_owner,
    strandline.fact_revision, strandline.former_fact, strandline.given_up_step, strandline.kept_response,
    strandline.lane, strandline.message, strandline.model_call, strandline.policy_change, strandline.popped,
    strandline.receipt, strandline.replay, strandline.retention_step, strandline.scope_generation,
    strandline.service_key, strandline.session, strandline.session_owner, strandline.session_retention_act,
    strandline.session_run, strandline.shared_message, strandline.shared_session, strandline.store_item,
    strandline.superseded, strandline.watch, strandline.data_key, strandline.derived_change
