-- ring_due_v1: lanes of a stage with work that nobody picked up: postpone the next look, and say which they are.
--
-- The wait doubles up to 8 seconds, so that a backlog is not rung for again and again.  What waits for its
-- namespace's budget is not rung for: its time lies 5,000 years behind the end of the wait, where only those find it
-- who look for it (bring_rings_forward_v1).  The limits are locked, so that those who set others find all that was put
-- off by the former ones.
-- (A moment of its own: compared with clock_timestamp(), which is volatile, the index would be read to its end.  Row by
-- row: in one statement, a plan made while nothing was due would compare what is ripe with all that is due later.)
-- Returns a lane once per piece of its work that is rung for.
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
