-- deliver_expired_v1: record events for what a session's life had not delivered when it expired, and make them due.
--
-- By compare-and-set on the life's mark, so that two callers record them once.  Returns whether this one did.
CREATE FUNCTION strandline.deliver_expired_v1(
    p_shard_key uuid,
    p_session_key uuid,
    p_incarnation uuid,
    p_old_flushed_through bigint,
    p_event_ids uuid[],
    p_from_seqs bigint[],
    p_through_seqs bigint[],
    p_tokens bigint[],
    p_messages integer[],
    p_version smallint
) RETURNS boolean
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    fed text[];
    tenant text;
    rung_at timestamptz;
BEGIN
    IF strandline.look_at_fence_v1(p_shard_key, p_session_key) IS NOT NULL THEN
        RETURN false;
    END IF;
    UPDATE strandline.expired_life l SET flushed_through = l.through_seq
        WHERE l.shard_key = p_shard_key AND l.session_key = p_session_key AND l.incarnation = p_incarnation
          AND l.flushed_through = p_old_flushed_through;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT t.pipelines, t.namespace INTO fed, tenant FROM strandline.session t
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key;
    INSERT INTO strandline.flush_event (
            shard_key, session_key, from_seq, through_seq, event_id, incarnation, cause, message_count, tokens, version)
        SELECT p_shard_key, p_session_key, e.from_seq, e.through_seq, e.event_id, p_incarnation, 'idle', e.messages,
            e.tokens, p_version
        FROM unnest(p_event_ids, p_from_seqs, p_through_seqs, p_tokens, p_messages)
            AS e (event_id, from_seq, through_seq, tokens, messages);
    rung_at := clock_timestamp();
    INSERT INTO strandline.due (
            shard_key, session_key, generation_id, stage, from_seq, through_seq, scope_key, event_id,
            incarnation, tokens, namespace, precedence, ring_at)
        SELECT p_shard_key, p_session_key, g.generation_id, g.entry_stage, e.from_seq, e.through_seq,
            CASE g.entry_scope WHEN 'owner' THEN p_shard_key ELSE p_session_key END,
            e.event_id, p_incarnation, e.tokens, tenant, 1,
            CASE WHEN v.generation_id IS NULL THEN 'infinity' ELSE rung_at END
        FROM unnest(p_event_ids, p_from_seqs, p_through_seqs, p_tokens)
            AS e (event_id, from_seq, through_seq, tokens)
        CROSS JOIN strandline.generation g
        LEFT JOIN @serving(p_shard_key, fed) v ON v.generation_id = g.generation_id
        WHERE g.pipeline = ANY (fed) AND g.state <> 'retired';
    RETURN true;
END
$function$;
