-- due_in_lane_v1: what a lane has to do, in its order; was_split marks events that failed in company before.
--
-- Plain enough that the planner takes it into the statement that asks.
CREATE FUNCTION strandline.due_in_lane_v1(
    p_shard_key uuid,
    p_scope_key uuid,
    p_generation_id integer,
    p_stage text,
    p_limit integer
) RETURNS TABLE (event_id uuid, tokens bigint, was_split boolean)
LANGUAGE sql STABLE AS $function$
    WITH split AS MATERIALIZED (
        SELECT unnest(b.event_ids) AS event_id FROM strandline.batch b
        WHERE b.shard_key = p_shard_key AND b.scope_key = p_scope_key
            AND b.generation_id = p_generation_id AND b.stage = p_stage AND b.state = 'split'
    )
    SELECT d.event_id, d.tokens, d.event_id IN (SELECT s.event_id FROM split s)
    FROM strandline.due d
    WHERE d.shard_key = p_shard_key AND d.scope_key = p_scope_key
        AND d.generation_id = p_generation_id AND d.stage = p_stage
    ORDER BY CASE WHEN d.scope_key = d.session_key THEN d.from_seq END, d.created_at, d.session_key, d.from_seq
    LIMIT p_limit
$function$;
