-- open_fact_lanes_v1: insert the rows of an owner's merge lanes, for every derivation that is kept, so that they can be
-- locked.
--
-- erasure: the one that keeps the owner away, and then nothing was written; NULL if none does.
-- first_data_key: of the owner's present life.
CREATE FUNCTION strandline.open_fact_lanes_v1(
    p_shard_key uuid, p_stage text
) RETURNS TABLE (erasure integer, first_data_key integer)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
BEGIN
    erasure := strandline.look_at_fence_v1(p_shard_key, p_shard_key);
    first_data_key := @first_data_key(p_shard_key);
    IF erasure IS NULL THEN
        INSERT INTO strandline.lane (shard_key, scope_key, generation_id, stage)
            SELECT p_shard_key, p_shard_key, g.generation_id, p_stage
            FROM strandline.generation g WHERE g.pipeline = 'facts' AND g.state <> 'retired'
            ORDER BY g.generation_id
            ON CONFLICT DO NOTHING;
    END IF;
    RETURN NEXT;
END
$function$;
