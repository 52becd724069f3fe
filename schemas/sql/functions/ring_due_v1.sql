-- ring_due_v1: lanes of a stage with work that no worker picked up: postpone the next look, and return them.
--
-- The wait doubles up to 8 seconds, so that a backlog is not rung for again and again.  Work that waits for
-- its namespace's budget is not rung for: its time is set 5,000 years after the end of the wait, where only
-- bring_rings_forward_v1 looks for it.  The limits are locked, so that a change of them finds all work that was put
-- off by the former ones.
-- (The moment is a constant: compared with clock_timestamp(), which is volatile, the index would be read to its end.
-- Row by row: in one statement, a plan made while nothing was due would compare ripe work with all work due later.)
-- Returns a lane once for each piece of its work that is rung for.
CREATE FUNCTION strandline.ring_due_v1(p_stage text, p_limit bigint)
RETURNS TABLE (shard_key uuid, scope_key uuid, generation_id integer, stage text)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    ripe record;
    next_ring timestamptz;
BEGIN
    FOR ripe IN
        SELECT d.shard_key, d.session_key, d.scope_key, d.generation_id, d.stage, d.from_seq, d.rings, (
            SELECT n.waits_until FROM strandline.namespace_limit n
            WHERE n.namespace = d.namespace AND @waits(n, moment) FOR SHARE) AS waits_until
        FROM strandline.due d
        WHERE d.stage = p_stage AND d.ring_at <= moment
        ORDER BY d.ring_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        next_ring := coalesce(ripe.waits_until + interval '5000 years', clock_timestamp()
            + make_interval(secs => least(8, power(2, ripe.rings + 1)) * (0.75 + random() / 2)));
        UPDATE strandline.due d SET rings = d.rings + 1, ring_at = next_ring
            WHERE d.shard_key = ripe.shard_key AND d.session_key = ripe.session_key
              AND d.generation_id = ripe.generation_id AND d.stage = ripe.stage AND d.from_seq = ripe.from_seq;
        IF ripe.waits_until IS NULL THEN
            RETURN QUERY SELECT ripe.shard_key, ripe.scope_key, ripe.generation_id, ripe.stage;
        END IF;
    END LOOP;
END
$function$;
