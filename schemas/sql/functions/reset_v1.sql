-- reset_v1: begin a session's log anew, and with p_derived forget what was derived from it.
--
-- The incarnation changes, so that whatever is pending or in flight from before is void; the workers
-- clear it away.  With p_derived the lanes are taken away from their holders first: a worker that is just
-- writing commits before (and is deleted here) or finds its lease gone.  The session row is locked last, so
-- that no put waits while this waits for a worker.
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
        -- What several sessions were folded into is folded again without this one.
        PERFORM strandline.unfold_v1(p_shard_key, p_shard_key, f.generation_id, f.stage, f.ordinal)
            FROM (
                SELECT t.generation_id, b.stage, min(t.ordinal) AS ordinal
                FROM strandline.block_state t
                JOIN strandline.batch b ON b.shard_key = t.shard_key AND b.batch_id = t.batch_id
                WHERE t.shard_key = p_shard_key AND t.scope_key = p_shard_key AND EXISTS (
                    SELECT FROM strandline.flush_event e WHERE e.shard_key = p_shard_key
                      AND e.session_key = p_session_key AND e.event_id = ANY (b.event_ids))
                GROUP BY t.generation_id, b.stage
            ) AS f;
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
        -- What was condensed from facts of this session among others is taken apart: its parts stand again,
        -- or ended as it did.
        LOOP
            UPDATE strandline.fact f SET condensed_into = NULL, invalidated_at = c.invalidated_at,
                    invalidated_by = c.invalidated_by, valid_until = c.valid_until
                FROM strandline.fact c
                WHERE f.shard_key = p_shard_key AND c.shard_key = p_shard_key
                  AND c.generation_id = f.generation_id AND c.fact_id = f.condensed_into
                  AND c.invalidated_at IS NOT NULL AND EXISTS (
                    SELECT FROM strandline.fact_revision r WHERE r.shard_key = p_shard_key
                      AND r.generation_id = c.generation_id AND r.fact_id = c.fact_id
                      AND r.operation = 'condense' AND r.session_key = p_session_key);
            EXIT WHEN NOT FOUND;
        END LOOP;
        DELETE FROM strandline.fact_revision r
            WHERE r.shard_key = p_shard_key AND r.operation = 'condense' AND EXISTS (
                SELECT FROM strandline.fact_revision o WHERE o.shard_key = p_shard_key
                  AND o.generation_id = r.generation_id AND o.fact_id = r.fact_id
                  AND o.operation = 'condense' AND o.session_key = p_session_key);
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
        -- (Where a person deleted what took its place, invalidated_by is null, and it stays ended.)
        UPDATE strandline.fact f SET
                live = true, invalidated_at = NULL, invalidated_by = NULL, valid_until = NULL
            WHERE f.shard_key = p_shard_key AND NOT f.live AND f.invalidated_by IS NOT NULL
              AND NOT EXISTS (
                SELECT FROM strandline.fact o WHERE o.shard_key = p_shard_key
                  AND o.generation_id = f.generation_id
                  AND (o.fact_id = f.invalidated_by OR (o.live AND o.fingerprint = f.fingerprint)));
        UPDATE strandline.fact f SET live = true, condensed_into = NULL
            WHERE f.shard_key = p_shard_key AND f.condensed_into IS NOT NULL
              AND NOT EXISTS (
                SELECT FROM strandline.fact_revision r WHERE r.shard_key = p_shard_key
                  AND r.generation_id = f.generation_id AND r.fact_id = f.condensed_into
                  AND r.operation = 'condense')
              AND NOT EXISTS (
                SELECT FROM strandline.fact o WHERE o.shard_key = p_shard_key AND o.live
                  AND o.generation_id = f.generation_id AND o.fingerprint = f.fingerprint);
        -- Tombstones recognise its messages no more, since they are gone; of the words the digests stay.
        UPDATE strandline.fact_event e SET traces = (
                SELECT jsonb_agg(CASE WHEN t.trace->>'session_key' = p_session_key::text
                    THEN jsonb_build_object('fingerprint', t.trace->'fingerprint') ELSE t.trace END)
                FROM jsonb_array_elements(e.traces) AS t (trace))
            WHERE e.shard_key = p_shard_key
              AND e.traces @> jsonb_build_array(jsonb_build_object('session_key', p_session_key));
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
        -- A merge sees what every session of the owner has said, so any of its answers may quote this one.
        -- Those that were applied are needed no more; an open batch asks its model once more.
        DELETE FROM strandline.answer a USING strandline.batch b
            WHERE b.shard_key = p_shard_key AND b.scope_key = p_shard_key
              AND a.shard_key = b.shard_key AND a.batch_id = b.batch_id;
        DELETE FROM strandline.popped p
            WHERE p.shard_key = p_shard_key AND p.session_key = p_session_key;
        DELETE FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key;
    END IF;
    RETURN NEXT;
END
$function$;
