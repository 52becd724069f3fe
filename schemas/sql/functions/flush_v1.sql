-- flush_v1: move a session's marks by compare-and-set, record the events, and make the work due.
--
-- All or nothing, in one statement: the marks move only if they, the incarnation and the number of corrections are
-- still what the plan was made from.  No row comes back if another flush, a reset, a correction, or a pop of a planned
-- message was first.
-- The work is due in every generation that is kept. The generation that serves this owner is rung for; work in the
-- others waits for the workers' replay slots (ring_at: infinity). p_lazily: the commit, which is this statement's
-- own, need not wait for the disk.  A crash then loses the flush as a whole, with all that was derived from it: the
-- session is over its mark again.
-- p_delay_seconds: the work that is rung for waits so long for what may share its model call; 0: not at all.
-- Returns the lanes to ring for: the session's, or the owner's, as the generation says.
CREATE FUNCTION strandline.flush_v1(
    p_shard_key uuid,
    p_session_key uuid,
    p_incarnation uuid,
    p_corrections integer,
    p_old_window_from bigint,
    p_old_flushed_through bigint,
    p_window_from bigint,
    p_flushed_through bigint,
    p_tokens_out bigint,
    p_messages_out integer,
    p_bytes_out bigint,
    p_cause text,
    p_event_ids uuid[],
    p_from_seqs bigint[],
    p_through_seqs bigint[],
    p_tokens bigint[],
    p_messages integer[],
    p_version smallint,
    p_lazily boolean,
    p_delay_seconds double precision,
    p_traceparent text
) RETURNS TABLE (generation_id integer, stage text, scope_key uuid)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    fed text[];
    tenant text;
    asked bigint[];
    rung_at timestamptz;
    ready_at timestamptz;
BEGIN
    IF p_lazily THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    SELECT t.question_seqs INTO asked FROM strandline.session t
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key
          AND t.incarnation = p_incarnation AND t.corrections = p_corrections
          AND t.window_from = p_old_window_from AND t.flushed_through = p_old_flushed_through
        FOR NO KEY UPDATE;
    -- A pop takes the newest message first, so if the last one planned is there, all of them are.
    IF NOT FOUND OR (cardinality(p_event_ids) > 0 AND NOT EXISTS (
        SELECT FROM strandline.message m WHERE m.shard_key = p_shard_key
          AND m.session_key = p_session_key AND m.seq = p_flushed_through)) THEN
        RETURN;
    END IF;
    IF p_window_from <> p_old_window_from THEN
        asked := strandline.question_v1(p_shard_key, p_session_key, p_window_from, asked);
    END IF;
    UPDATE strandline.session t SET
            window_from = p_window_from, flushed_through = p_flushed_through, question_seqs = asked,
            window_tokens = t.window_tokens - p_tokens_out,
            window_messages = t.window_messages - p_messages_out,
            window_bytes = t.window_bytes - p_bytes_out, replan_at_tokens = 0
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key
        RETURNING t.pipelines, t.namespace INTO fed, tenant;
    INSERT INTO strandline.flush_event (
            shard_key, session_key, from_seq, through_seq, event_id, incarnation, cause,
            message_count, tokens, version, traceparent)
        SELECT p_shard_key, p_session_key, e.from_seq, e.through_seq, e.event_id, p_incarnation,
            p_cause, e.messages, e.tokens, p_version, p_traceparent
        FROM unnest(p_event_ids, p_from_seqs, p_through_seqs, p_tokens, p_messages)
            AS e (event_id, from_seq, through_seq, tokens, messages);
    rung_at := clock_timestamp() + interval '2 seconds';
    IF p_delay_seconds > 0 THEN
        ready_at := clock_timestamp() + make_interval(secs => p_delay_seconds);
        rung_at := ready_at;
    END IF;
    INSERT INTO strandline.due (
            shard_key, session_key, generation_id, stage, from_seq, through_seq, scope_key, event_id,
            incarnation, tokens, namespace, precedence, ring_at, ready_at)
        SELECT p_shard_key, p_session_key, g.generation_id, g.entry_stage, e.from_seq, e.through_seq,
            CASE g.entry_scope WHEN 'owner' THEN p_shard_key ELSE p_session_key END,
            e.event_id, p_incarnation, e.tokens, tenant, CASE p_cause WHEN 'import' THEN 1 ELSE 0 END,
            CASE WHEN v.generation_id IS NULL THEN 'infinity' ELSE rung_at END,
            CASE WHEN v.generation_id IS NOT NULL THEN ready_at END
        FROM unnest(p_event_ids, p_from_seqs, p_through_seqs, p_tokens)
            AS e (event_id, from_seq, through_seq, tokens)
        CROSS JOIN strandline.generation g
        LEFT JOIN @serving(p_shard_key, fed) v ON v.generation_id = g.generation_id
        WHERE g.pipeline = ANY (fed) AND g.state <> 'retired';
    RETURN QUERY
        SELECT g.generation_id, g.entry_stage,
            CASE g.entry_scope WHEN 'owner' THEN p_shard_key ELSE p_session_key END
        FROM @serving(p_shard_key, fed) v
        JOIN strandline.generation g ON g.generation_id = v.generation_id
        WHERE cardinality(p_event_ids) > 0;
    IF NOT FOUND THEN
        -- Won, with nothing to ring: say so with one empty row.
        RETURN QUERY SELECT NULL::integer, NULL::text, NULL::uuid;
    END IF;
END
$function$;
