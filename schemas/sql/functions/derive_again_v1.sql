-- derive_again_v1: give up the results of one stage of a derivation for some events, and make them due again.
--
-- Batches that hold one of the events are void, applied or open, with all of their events: their answers spoke of other
-- words.  What they made is deleted; of an ordered lane the states from the first fold of such an event on, or of
-- what comes behind it, as in unfold_v1, which may be of a session that was reset since.  Dead letters of the events
-- are made due too, unless a person dropped them.
-- Where the derivation serves the owner, its work is rung for; else it is left to the replay slots (ring_at: infinity).
-- Events whose messages retention has removed stay as they are, unless they are meant themselves (part_removed_v1).
-- One that is retired gets no work any more.
-- The caller has locked the lane and taken it from its holder.
CREATE FUNCTION strandline.derive_again_v1(
    p_shard_key uuid, p_scope_key uuid, p_generation_id integer, p_stage text, p_events uuid[]
) RETURNS void
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    first_fold bigint;
    is_kept boolean;
    is_live boolean;
    moment CONSTANT timestamptz := clock_timestamp();
BEGIN
    PERFORM strandline.part_removed_v1(p_shard_key, p_scope_key, p_generation_id, p_stage, p_events);
    SELECT g.state <> 'retired', EXISTS (
            SELECT FROM @serving(p_shard_key, ARRAY[g.pipeline]) v WHERE v.generation_id = g.generation_id)
        INTO is_kept, is_live FROM strandline.generation g WHERE g.generation_id = p_generation_id;
    SELECT min(f.ordinal) INTO first_fold FROM strandline.block_state f
        JOIN strandline.batch b ON b.shard_key = p_shard_key AND b.batch_id = f.batch_id
        WHERE f.shard_key = p_shard_key AND f.scope_key = p_scope_key AND f.generation_id = p_generation_id
          AND EXISTS (
            SELECT FROM strandline.flush_event o
            JOIN strandline.flush_event e ON e.shard_key = p_shard_key AND e.event_id = ANY (p_events)
            WHERE o.shard_key = p_shard_key AND o.event_id = ANY (b.event_ids)
              AND CASE WHEN f.scope_key = e.session_key THEN o.from_seq >= e.from_seq
                ELSE (o.created_at, o.session_key, o.from_seq) >= (e.created_at, e.session_key, e.from_seq) END);
    WITH unfolded AS (
        DELETE FROM strandline.block_state t
        WHERE t.shard_key = p_shard_key AND t.scope_key = p_scope_key
            AND t.generation_id = p_generation_id AND t.ordinal >= first_fold
        RETURNING t.batch_id
    ), voided AS (
        UPDATE strandline.batch b SET state = 'void', closed_at = coalesce(b.closed_at, moment)
        WHERE b.shard_key = p_shard_key AND b.scope_key = p_scope_key
            AND b.generation_id = p_generation_id AND b.stage = p_stage
            AND (b.state IN ('open', 'applied') AND b.event_ids && p_events
                OR b.state = 'open' AND first_fold IS NOT NULL
                OR b.batch_id IN (SELECT u.batch_id FROM unfolded u))
        RETURNING b.batch_id, b.event_ids
    ), @noted_change(p_shard_key, 'pieces'), pieces AS (
        DELETE FROM strandline.chunk c USING voided v
        WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id AND c.session_key = p_scope_key
            AND c.batch_id = v.batch_id
    ), candidates AS (
        DELETE FROM strandline.fact_candidate c USING voided v
        WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id AND c.batch_id = v.batch_id
    ), letters AS (
        DELETE FROM strandline.dead_letter d
        WHERE d.shard_key = p_shard_key AND d.generation_id = p_generation_id AND d.stage = p_stage
            AND d.event_id = ANY (p_events) AND d.dropped_at IS NULL
        RETURNING d.event_id
    ), applied AS (
        DELETE FROM strandline.receipt r USING voided v
        WHERE r.shard_key = p_shard_key AND r.event_id = ANY (v.event_ids)
            AND r.generation_id = p_generation_id AND r.stage = p_stage
            AND r.outcome = 'applied' AND r.batch_id = v.batch_id
        RETURNING r.event_id
    ), dead AS (
        DELETE FROM strandline.receipt r USING letters l
        WHERE r.shard_key = p_shard_key AND r.event_id = l.event_id
            AND r.generation_id = p_generation_id AND r.stage = p_stage AND r.outcome = 'dead'
        RETURNING r.event_id
    )
    INSERT INTO strandline.due (shard_key, session_key, generation_id, stage, from_seq, through_seq,
        scope_key, event_id, incarnation, tokens, namespace, precedence, created_at, ring_at, was_applied)
    SELECT e.shard_key, e.session_key, p_generation_id, p_stage, e.from_seq, e.through_seq, p_scope_key,
        e.event_id, CASE WHEN gone.was_applied THEN s.incarnation ELSE e.incarnation END, e.tokens, s.namespace,
        CASE WHEN is_live AND e.cause <> 'import' THEN 0 ELSE 1 END, e.created_at,
        CASE WHEN is_live THEN moment ELSE 'infinity' END, gone.was_applied
    FROM (
        SELECT a.event_id, true AS was_applied FROM applied a
        UNION ALL SELECT d.event_id, false FROM dead d) AS gone
    JOIN strandline.flush_event e ON e.shard_key = p_shard_key AND e.event_id = gone.event_id
    JOIN strandline.session s ON s.shard_key = p_shard_key AND s.session_key = e.session_key
    WHERE is_kept;
    DELETE FROM strandline.answer a USING strandline.batch b
        WHERE b.shard_key = p_shard_key AND b.scope_key = p_scope_key
          AND b.generation_id = p_generation_id AND b.stage = p_stage
          AND (b.state = 'void' OR b.event_ids && p_events)
          AND a.shard_key = p_shard_key AND a.batch_id = b.batch_id;
END
$function$;
