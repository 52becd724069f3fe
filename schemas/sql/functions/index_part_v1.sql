-- index_part_v1: the next pieces of a scope after one of them, for an index in memory (the fragments next_pieces and
-- index_part).
CREATE FUNCTION strandline.index_part_v1(
    p_shard_key uuid,
    p_generation_id integer,
    p_scope_key uuid,
    p_through_session uuid,
    p_through_seq bigint,
    p_through_piece integer,
    p_since bigint,
    p_at_once bigint
) RETURNS text
LANGUAGE plpgsql STABLE AS $function$
BEGIN
    RETURN (
        WITH pieces AS MATERIALIZED (
            @next_pieces(p_shard_key, p_generation_id, p_scope_key, (p_through_session, p_through_seq, p_through_piece),
                p_since, p_at_once)
        )
        SELECT @index_part(p_shard_key));
END
$function$;
