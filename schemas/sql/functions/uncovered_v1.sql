-- uncovered_v1: what keeps a derivation from taking over an owner.
--
-- The events that the derivation that serves the owner has applied to the end, and this one has not.  An event
-- that it could not apply is none of them once somebody gave it up (a dropped dead letter).
CREATE FUNCTION strandline.uncovered_v1(p_shard_key uuid, p_generation_id integer, p_last_stage text)
RETURNS SETOF uuid
LANGUAGE sql STABLE AS $function$
    SELECT o.event_id
    FROM strandline.generation n
    CROSS JOIN strandline.serving_v1(p_shard_key, ARRAY[n.pipeline]) v
    JOIN strandline.receipt o ON o.shard_key = p_shard_key AND o.generation_id = v.generation_id
        AND o.stage = p_last_stage AND o.outcome = 'applied'
    WHERE n.generation_id = p_generation_id AND v.generation_id <> p_generation_id
        AND NOT EXISTS (
            SELECT FROM strandline.receipt r WHERE r.shard_key = o.shard_key AND r.event_id = o.event_id
                AND r.generation_id = p_generation_id AND r.stage = p_last_stage AND r.outcome = 'applied')
        AND NOT EXISTS (
            SELECT FROM strandline.dead_letter d WHERE d.shard_key = o.shard_key
                AND d.generation_id = p_generation_id AND d.event_id = o.event_id AND d.dropped_at IS NOT NULL)
$function$;
