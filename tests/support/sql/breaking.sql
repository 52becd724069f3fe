-- How each kind of violation comes about, in the history that the tests live through.  Some of these
-- break more than one thing.  Words in braces are filled in: events and the session of anna-1, one of her
-- facts, and an id that does not exist.

-- name: message_missing
DELETE FROM strandline.message WHERE session_key = {session} AND seq IN (3, 4)

-- name: message_stray
INSERT INTO strandline.message (shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest,
    envelope, created_at)
SELECT shard_key, session_key, 999, incarnation, 'stray', role, tokens, bytes, digest, envelope, created_at
FROM strandline.message WHERE session_key = {session} LIMIT 1

-- name: window_tokens_wrong
UPDATE strandline.session SET window_tokens = window_tokens + 1

-- name: window_messages_wrong
UPDATE strandline.session SET window_messages = window_messages + 1

-- name: window_bytes_wrong
UPDATE strandline.session SET window_bytes = window_bytes + 1

-- name: pinned_tokens_wrong
UPDATE strandline.session SET pinned_tokens = pinned_tokens + 1

-- name: marks_out_of_order
ALTER TABLE strandline.session DISABLE TRIGGER session_check;
UPDATE strandline.session SET window_from = flushed_through + 2

-- name: delivered_never
DELETE FROM strandline.flush_event WHERE event_id = {second}

-- name: delivered_twice
UPDATE strandline.flush_event SET through_seq = through_seq + 1 WHERE event_id = {first}

-- name: event_beyond_marks
UPDATE strandline.flush_event SET through_seq = through_seq + 1 WHERE event_id = {last}

-- name: event_without_session
UPDATE strandline.flush_event SET session_key = {other} WHERE event_id = {last}

-- name: event_count_wrong
UPDATE strandline.flush_event SET message_count = message_count + 1 WHERE event_id = {last}

-- name: event_tokens_wrong
UPDATE strandline.flush_event SET tokens = tokens - 1 WHERE event_id = {last}

-- name: work_missing
DELETE FROM strandline.receipt WHERE stage = 'vectors' AND event_id = {first}

-- name: work_ahead
DELETE FROM strandline.receipt WHERE stage = 'extract' AND event_id = {first}

-- name: due_without_event
UPDATE strandline.due SET event_id = {other} WHERE stage = 'summary'

-- name: due_and_received
INSERT INTO strandline.receipt SELECT shard_key, event_id, generation_id, stage, 'void' FROM strandline.due

-- name: receipt_without_event
UPDATE strandline.receipt SET event_id = {other} WHERE stage = 'summary' AND event_id = {first}

-- name: applied_without_batch
UPDATE strandline.batch SET state = 'void' WHERE stage = 'summary' AND state = 'applied' AND event_ids @>
    ARRAY[{first}]

-- name: dead_without_letter
DELETE FROM strandline.dead_letter

-- name: void_without_reset
UPDATE strandline.receipt SET outcome = 'void', batch_id = NULL WHERE stage = 'vectors' AND event_id =
    {first}

-- name: letter_without_receipt
DELETE FROM strandline.receipt WHERE outcome = 'dead'

-- name: context_wrong
UPDATE strandline.batch SET context_seqs = context_seqs[2:] WHERE stage = 'extract' AND context_seqs <> '{}'

-- name: open_batch_without_event
UPDATE strandline.batch SET state = 'open', event_ids = ARRAY[{other}] WHERE stage = 'summary' AND state = 'applied'
    AND event_ids @> ARRAY[{first}]

-- name: open_batch_not_due
UPDATE strandline.batch SET state = 'open' WHERE stage = 'summary' AND state = 'applied' AND event_ids @>
    ARRAY[{first}]

-- name: applied_batch_without_receipt
INSERT INTO strandline.batch SELECT shard_key, gen_random_uuid(), scope_key, generation_id, stage, state,
    lease_epoch, event_ids FROM strandline.batch WHERE stage = 'summary' AND event_ids @> ARRAY[{first}]

-- name: candidate_unreceipted
UPDATE strandline.fact_candidate SET batch_id = {other} WHERE event_id = {first}

-- name: candidate_not_folded
DELETE FROM strandline.fact_revision WHERE event_id = {second}

-- name: candidate_dropped_by_nobody
UPDATE strandline.fact_candidate SET dropped_by = 99 WHERE event_id = {first}

-- name: chunk_unreceipted
INSERT INTO strandline.chunk SELECT shard_key, generation_id, session_key, from_seq, piece + 1, through_seq,
    event_id, {other}, length, lexemes FROM strandline.chunk WHERE event_id = {first}

-- name: chunk_outside_event
UPDATE strandline.chunk SET through_seq = through_seq + 100 WHERE event_id = {first}

-- name: chunk_missing
DELETE FROM strandline.chunk WHERE event_id = {first} AND from_seq = (
    SELECT max(from_seq) FROM strandline.chunk WHERE event_id = {first})

-- name: shared_without_consent
INSERT INTO strandline.shared_session (shard_key, session_key, incarnation, owner_key)
SELECT md5('team')::uuid, session_key, incarnation, shard_key FROM strandline.session
WHERE session_key = {session};
INSERT INTO strandline.shared_message (shard_key, session_key, seq, incarnation, id, role, tokens, envelope,
    created_at)
SELECT md5('team')::uuid, session_key, seq, incarnation, id, role, tokens, envelope, created_at
FROM strandline.message WHERE session_key = {session};
INSERT INTO strandline.chunk SELECT md5('team')::uuid, generation_id, session_key, from_seq, piece, through_seq,
    event_id, batch_id, length, lexemes FROM strandline.chunk WHERE session_key = {session}

-- name: shared_forgotten
UPDATE strandline.session SET shared_scope = 'team', shared_key = md5('team')::uuid
WHERE session_key = {session};
INSERT INTO strandline.shared_session (shard_key, session_key, incarnation, owner_key)
SELECT md5('team')::uuid, session_key, incarnation, shard_key FROM strandline.session
WHERE session_key = {session};
INSERT INTO strandline.shared_message (shard_key, session_key, seq, incarnation, id, role, tokens, envelope,
    created_at)
SELECT md5('team')::uuid, session_key, seq, incarnation, id, role, tokens, envelope, created_at
FROM strandline.message WHERE session_key = {session};
INSERT INTO strandline.chunk SELECT md5('team')::uuid, generation_id, session_key, from_seq, piece, through_seq,
    event_id, batch_id, length, lexemes FROM strandline.chunk WHERE session_key = {session};
UPDATE strandline.shared_session SET gone_at = now()

-- name: shared_outside_event
UPDATE strandline.session SET shared_scope = 'team', shared_key = md5('team')::uuid
WHERE session_key = {session};
INSERT INTO strandline.shared_session (shard_key, session_key, incarnation, owner_key)
SELECT md5('team')::uuid, session_key, incarnation, shard_key FROM strandline.session
WHERE session_key = {session};
INSERT INTO strandline.shared_message (shard_key, session_key, seq, incarnation, id, role, tokens, envelope,
    created_at)
SELECT md5('team')::uuid, session_key, seq, incarnation, id, role, tokens, envelope, created_at
FROM strandline.message WHERE session_key = {session};
INSERT INTO strandline.chunk SELECT md5('team')::uuid, generation_id, session_key, from_seq, piece, through_seq,
    event_id, batch_id, length, lexemes FROM strandline.chunk WHERE session_key = {session};
UPDATE strandline.chunk SET event_id = {other} WHERE shard_key = md5('team')::uuid

-- name: shared_missing
UPDATE strandline.session SET shared_scope = 'team', shared_key = md5('team')::uuid
WHERE session_key = {session}

-- name: state_unreceipted
UPDATE strandline.block_state SET batch_id = {other} WHERE scope_key = {session}

-- name: state_doubled
DROP INDEX strandline.block_state_by_batch;
INSERT INTO strandline.block_state SELECT shard_key, scope_key, generation_id, ordinal + 100, through_seq,
    state, batch_id FROM strandline.block_state WHERE scope_key = {session}

-- name: fact_without_source
DELETE FROM strandline.fact_revision WHERE fact_id = {fact} AND revision = 1

-- name: fact_text_differs
UPDATE strandline.fact SET fingerprint = '\x00' WHERE fact_id = {fact}

-- name: fact_ended_by_nothing
UPDATE strandline.fact SET invalidated_by = {other} WHERE NOT live

-- name: fact_deleted_lives
INSERT INTO strandline.fact_event (shard_key, number, kind, fact_id) SELECT shard_key, 1, 'delete', fact_id
    FROM strandline.fact WHERE fact_id = {fact}

-- name: fact_doubled
DROP INDEX strandline.fact_fingerprint;
INSERT INTO strandline.fact SELECT shard_key, generation_id, {other}, text, fingerprint, lexemes, topics,
    said_by, about_date, said_at FROM strandline.fact WHERE fact_id = {fact}

-- name: fact_fingerprint_wrong
UPDATE strandline.fact SET text = 'I keep wasps' WHERE fact_id = {fact}

-- name: revision_without_fact
DELETE FROM strandline.fact WHERE fact_id = {fact}

-- name: revision_without_event
UPDATE strandline.fact_revision SET event_id = {other} WHERE fact_id = {fact}

-- name: revision_without_message
UPDATE strandline.fact_revision SET seqs = ARRAY[999] WHERE fact_id = {fact}

-- name: revision_without_person
INSERT INTO strandline.fact_revision (shard_key, generation_id, fact_id, revision, operation, text,
    fingerprint, lexemes, seqs, fact_event) SELECT shard_key, generation_id, fact_id, 9, 'duplicate', text,
    fingerprint, lexemes, '{}', 99 FROM strandline.fact WHERE fact_id = {fact}

-- name: revision_not_condensed
UPDATE strandline.fact_revision SET operation = 'condense', condense_batch_id = {other} WHERE fact_id = {fact}

-- name: revision_unreceipted
UPDATE strandline.fact_revision SET merge_batch_id = {other} WHERE fact_id = {fact}

-- name: revision_outside_event
UPDATE strandline.fact_revision SET seqs = ARRAY[7] WHERE fact_id = {fact}

-- name: work_of_no_pipeline
UPDATE strandline.session SET pipelines = ARRAY['facts']

-- name: served_by_none
INSERT INTO strandline.scope_generation (shard_key, pipeline, generation_id)
SELECT shard_key, 'facts', 99 FROM strandline.session LIMIT 1

-- name: served_by_nobody
UPDATE strandline.generation SET state = 'feeding' WHERE pipeline = 'summary'

-- name: candidate_withheld_by_nobody
UPDATE strandline.fact_candidate SET withheld_by = 99 WHERE event_id = {first}

-- name: capture_wrong
UPDATE strandline.batch SET capture_number = 99, capture_hash = 'other' WHERE {first} = ANY (event_ids)

-- name: correction_missing
UPDATE strandline.session SET corrections = 3 WHERE session_id = 'anna-1'

-- name: superseded_stray
INSERT INTO strandline.superseded
SELECT shard_key, session_key, 2, 1, 4, false FROM strandline.session WHERE session_id = 'anna-1'

-- name: superseded_shown
INSERT INTO strandline.correction (
    shard_key, session_key, number, correction_id, incarnation, kind, from_seq, through_seq)
SELECT shard_key, session_key, 1, {other}, incarnation, 'rewind', 2, 7
FROM strandline.session WHERE session_id = 'anna-1';
INSERT INTO strandline.superseded
SELECT shard_key, session_key, 2, 1, 4, false FROM strandline.session WHERE session_id = 'anna-1'

-- name: superseded_derived
INSERT INTO strandline.correction (
    shard_key, session_key, number, correction_id, incarnation, kind, from_seq, through_seq, digest)
SELECT shard_key, session_key, 1, {other}, incarnation, 'replace', 2, 2, ''
FROM strandline.session WHERE session_id = 'anna-1';
INSERT INTO strandline.superseded
SELECT shard_key, session_key, 2, 1, 4, true FROM strandline.session WHERE session_id = 'anna-1'

-- name: shared_superseded
INSERT INTO strandline.shared_session (shard_key, session_key, incarnation, owner_key, session_id)
SELECT {other}, session_key, incarnation, shard_key, session_id FROM strandline.session WHERE session_id = 'anna-1';
INSERT INTO strandline.shared_message (shard_key, session_key, seq, incarnation, id, role, tokens, envelope, created_at)
SELECT l.shard_key, l.session_key, 2, l.incarnation, 'old', 'user', 4, '{"content": "old words"}', now()
FROM strandline.shared_session l;
INSERT INTO strandline.superseded
SELECT shard_key, session_key, 2, 1, 4, false FROM strandline.session WHERE session_id = 'anna-1'

-- name: removed_present
INSERT INTO strandline.retention_step (shard_key, session_key, from_seq, through_seq, step_id, incarnation, cause, state,
    archive, messages, removed, removed_at)
SELECT shard_key, session_key, 3, 4, gen_random_uuid(), incarnation, 'age', 'removed', NULL, 1, 1, now()
FROM strandline.session WHERE session_key = {session}

-- name: removed_unarchived
INSERT INTO strandline.retention_step (shard_key, session_key, from_seq, through_seq, step_id, incarnation, cause, state,
    archive, messages, removed, removed_at)
SELECT shard_key, session_key, 3, 4, gen_random_uuid(), incarnation, 'age', 'removed', 'file:///archive', 1, 1, now()
FROM strandline.session WHERE session_key = {session}

-- name: removed_out_of_order
INSERT INTO strandline.retention_step (shard_key, session_key, from_seq, through_seq, step_id, incarnation, cause, state,
    archive, messages, removed, removed_at)
SELECT shard_key, session_key, 5, 6, gen_random_uuid(), incarnation, 'age', 'removed', NULL, 1, 1, now()
FROM strandline.session WHERE session_key = {session}

-- name: erased_row
INSERT INTO strandline.erasure (number, erasure_id, kind, namespace, owner_key, scope_key, ledger_key, requested_at,
    fenced_at, state, finished_at)
SELECT 1, gen_random_uuid(), 'user', 'default', shard_key, shard_key, gen_random_uuid(), now(), now(), 'done', now()
FROM strandline.session WHERE session_key = {session};
INSERT INTO strandline.erasure_fence (shard_key, scope_key, number, fenced_at)
SELECT shard_key, shard_key, 1, now() FROM strandline.session WHERE session_key = {session}
