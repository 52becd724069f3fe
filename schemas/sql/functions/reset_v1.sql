-- reset_v1: begin a session's log anew, and with p_derived forget what was derived from it.
--
-- The incarnation changes, so that whatever is pending or in flight from before is void; the workers
-- clear it away.  With
-- p_derived the lanes are taken away from their holders first: a worker that is just writing commits
-- before (and is deleted here) or finds its lease gone.  The session row is locked last, so that no put
-- waits while this waits for a worker.
-- Returns the number of messages that were in the log; no row if there is no such session.
CREATE FUNCTION strandline.reset_v1(p_shard_key uuid, p_session_key uuid, p_derived boolean)
RETURNS TABLE (messages bigint)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    gone uuid[];
BEGIN
    IF p_derived THEN
        PERFORM FROM strandline.lane l
            WHERE l.shard_key = p_shard_key AND l.scope_key IN (p_session_key, p_shard_key)
            ORDER BY l.scope_key, l.generation_id, l.stage FOR UPDATE;
        UPDATE strandline.lane l SET lease_epoch = l.lease_epoch + 1, holder = NULL
            WHERE l.shard_key = p_shard_key AND l.scope_key IN (p_session_key, p_shard_key);
    END IF;
    UPDATE strandline.session t SET
            incarnation = gen_random_uuid(), log_start_seq = t.next_seq,
            pinned_through = t.next_seq - 1, window_from = t.next_seq,
            flushed_through = t.next_seq - 1, pinned_tokens = 0, window_tokens = 0,
            replan_at_tokens = 0, watched_until = NULL, overdue_at = NULL
        FROM strandline.session old
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key
          AND old.shard_key = t.shard_key AND old.session_key = t.session_key
        RETURNING t.next_seq - old.log_start_seq INTO messages;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF p_derived THEN
        DELETE FROM strandline.due d
            WHERE d.shard_key = p_shard_key AND d.session_key = p_session_key;
        DELETE FROM strandline.watch w
            WHERE w.shard_key = p_shard_key AND w.session_key = p_session_key;
        DELETE FROM strandline.chunk c
            WHERE c.shard_key = p_shard_key AND c.session_key = p_session_key;
        DELETE FROM strandline.block_state b
            WHERE b.shard_key = p_shard_key AND b.scope_key = p_session_key;
        DELETE FROM strandline.fact_candidate c
            WHERE c.shard_key = p_shard_key AND c.session_key = p_session_key;
        DELETE FROM strandline.dead_letter d
            WHERE d.shard_key = p_shard_key AND d.session_key = p_session_key;
        DELETE FROM strandline.fact_revision r
            WHERE r.shard_key = p_shard_key AND r.session_key = p_session_key;
        DELETE FROM strandline.fact f
            WHERE f.shard_key = p_shard_key AND NOT EXISTS (
                SELECT FROM strandline.fact_revision r
                WHERE r.shard_key = f.shard_key AND r.generation_id = f.generation_id
                  AND r.fact_id = f.fact_id);
        -- A fact that other sessions had a part in goes back to what those said of it.
        UPDATE strandline.fact f SET
                text = r.text, fingerprint = r.fingerprint, lexemes = r.lexemes, updated_at = clock_timestamp()
            FROM (
                SELECT DISTINCT ON (l.generation_id, l.fact_id) l.* FROM strandline.fact_revision l
                WHERE l.shard_key = p_shard_key AND l.operation <> 'invalidate'
                ORDER BY l.generation_id, l.fact_id, l.operation = 'duplicate', l.revision DESC
            ) AS r
            WHERE f.shard_key = p_shard_key AND r.generation_id = f.generation_id
              AND r.fact_id = f.fact_id AND r.text <> f.text
              AND NOT EXISTS (
                SELECT FROM strandline.fact o WHERE o.shard_key = p_shard_key AND o.live
                  AND o.generation_id = f.generation_id AND o.fingerprint = r.fingerprint);
        UPDATE strandline.fact f SET live = true, invalidated_at = NULL, invalidated_by = NULL
            WHERE f.shard_key = p_shard_key AND NOT f.live
              AND NOT EXISTS (
                SELECT FROM strandline.fact o WHERE o.shard_key = p_shard_key
                  AND o.generation_id = f.generation_id
                  AND (o.fact_id = f.invalidated_by OR (o.live AND o.fingerprint = f.fingerprint)));
        WITH events AS (
            DELETE FROM strandline.flush_event e
                WHERE e.shard_key = p_shard_key AND e.session_key = p_session_key
                RETURNING e.event_id
        ), receipts AS (
            DELETE FROM strandline.receipt r USING events e
                WHERE r.shard_key = p_shard_key AND r.event_id = e.event_id
                RETURNING r.batch_id
        ), batches AS (
            DELETE FROM strandline.batch b
                WHERE b.shard_key = p_shard_key AND b.scope_key = p_session_key
                RETURNING b.batch_id
        )
        SELECT array_agg(DISTINCT batch_id) INTO gone FROM (
            SELECT batch_id FROM receipts UNION SELECT batch_id FROM batches) AS touched;
        DELETE FROM strandline.answer a WHERE a.shard_key = p_shard_key AND a.batch_id = ANY (gone);
        DELETE FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key;
    END IF;
    RETURN NEXT;
END
$function$;
