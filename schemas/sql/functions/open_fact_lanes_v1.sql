-- open_fact_lanes_v1: insert the rows of an owner's merge lanes, for every derivation that is kept, so that they can be
-- locked.
--
-- Returns the erasure that keeps the owner away, and then nothing was written; NULL if none does.
CREATE FUNCTION strandline.open_fact_lanes_v1(p_shard_key uuid, p_stage text) RETURNS integer
LANGUAGE plpgsql AS $function$
DECLARE
    erasure CONSTANT integer := strandline.look_at_fence_v1(p_shard_key, p_shard_key);
BEGIN
    IF erasure IS NULL THEN
        INSERT INTO strandline.lane (shard_key, scope_key, generation_id, stage)
            SELECT p_shard_key, p_shard_key, g.generation_id, p_stage
            FROM strandline.generation g WHERE g.pipeline = 'facts' AND g.state <> 'retired'
            ORDER BY g.generation_id
            ON CONFLICT DO NOTHING;
    END IF;
    RETURN erasure;
END
$function$;
