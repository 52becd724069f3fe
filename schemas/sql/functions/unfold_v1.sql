-- unfold_v1: take an ordered lane back to before its fold number p_ordinal (NULL: to where it is).
--
-- The states from there on go, and what they were made of is due again, with the time of its flush, so that
-- a lane of several sessions takes it up in that order.  The batches are void: their answers, and those of a
-- batch that is open, spoke of a state that is no more.  Dead letters stay what they are.
-- Where the derivation serves the owner, it is due as the flush made it due, and rung for; but if a replay folds
-- again (p_by_replay), or the derivation does not serve, it is left to the replay slots (ring_at: infinity).
-- What was folded is memory, and stays it after a reset that forgets nothing, also one that comes while it is due: it is
-- due in its session's present incarnation, and was_applied.
-- The caller has locked the lane and taken it from its holder.  Returns the events that are due again.
CREATE FUNCTION strandline.unfold_v1(
    p_shard_key uuid, p_scope_key uuid, p_generation_id integer, p_stage text, p_ordinal bigint,
    p_by_replay boolean DEFAULT false
) RETURNS SETOF uuid
LANGUAGE sql AS $function$
    WITH unfolded AS (
        DELETE FROM strandline.block_state t
        WHERE t.shard_key = p_shard_key AND t.scope_key = p_scope_key
            AND t.generation_id = p_generation_id AND t.ordinal >= p_ordinal
        RETURNING t.batch_id
    ), voided AS (
        UPDATE strandline.batch b SET state = 'void', closed_at = coalesce(b.closed_at, statement_timestamp())
        WHERE b.shard_key = p_shard_key AND b.scope_key = p_scope_key
            AND b.generation_id = p_generation_id AND b.stage = p_stage
            AND (b.state = 'open' OR b.batch_id IN (SELECT u.batch_id FROM unfolded u))
        RETURNING b.batch_id, b.event_ids
    ), gone AS (
        DELETE FROM strandline.receipt r USING voided v
        WHERE r.shard_key = p_shard_key AND r.event_id = ANY (v.event_ids)
            AND r.generation_id = p_generation_id AND r.stage = p_stage
            AND r.outcome = 'applied' AND r.batch_id = v.batch_id
        RETURNING r.event_id
    )
    INSERT INTO strandline.due (shard_key, session_key, generation_id, stage, from_seq, through_seq,
        scope_key, event_id, incarnation, tokens, namespace, precedence, created_at, ring_at, was_applied)
    SELECT e.shard_key, e.session_key, p_generation_id, p_stage, e.from_seq, e.through_seq, p_scope_key,
        e.event_id, s.incarnation, e.tokens, s.namespace,
        CASE WHEN is_live.told AND e.cause <> 'import' THEN 0 ELSE 1 END, e.created_at,
        CASE WHEN is_live.told THEN statement_timestamp() ELSE 'infinity' END, true
    FROM gone JOIN strandline.flush_event e ON e.shard_key = p_shard_key AND e.event_id = gone.event_id
    JOIN strandline.session s ON s.shard_key = e.shard_key AND s.session_key = e.session_key
    CROSS JOIN (
        SELECT NOT p_by_replay AND EXISTS (
            SELECT FROM @serving(p_shard_key, NULL) v WHERE v.generation_id = p_generation_id
            ) AS told) AS is_live
    RETURNING event_id
$function$;
