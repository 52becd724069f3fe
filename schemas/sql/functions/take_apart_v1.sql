-- take_apart_v1: end condensed facts; their parts are live again once these are gone, or ended as they did.
--
-- Additions to such a fact by a merge or a person become separate facts, except those from p_events (NULL: all of
-- them).  The caller holds the owner's lanes, and deletes the condensed facts.
-- Returns the facts that stand alone.
CREATE FUNCTION strandline.take_apart_v1(p_shard_key uuid, p_fact_ids uuid[], p_events uuid[])
RETURNS uuid[]
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    added record;
    alone uuid[] := '{}';
BEGIN
    LOOP
        UPDATE strandline.fact f SET condensed_into = NULL, invalidated_at = c.invalidated_at,
                invalidated_by = c.invalidated_by, valid_until = c.valid_until
            FROM strandline.fact c
            WHERE f.shard_key = p_shard_key AND c.shard_key = p_shard_key AND c.fact_id = ANY (p_fact_ids)
              AND c.generation_id = f.generation_id AND c.fact_id = f.condensed_into
              AND c.invalidated_at IS NOT NULL;
        EXIT WHEN NOT FOUND;
    END LOOP;
    FOR added IN
        SELECT v.generation_id, v.fact_id, v.revision FROM strandline.fact_revision v
        WHERE v.shard_key = p_shard_key AND v.fact_id = ANY (p_fact_ids)
          AND v.operation NOT IN ('condense', 'invalidate')
          AND (v.event_id = ANY (p_events)) IS NOT TRUE
        ORDER BY v.generation_id, v.fact_id, v.revision
    LOOP
        alone := alone || strandline.stand_alone_v1(
            p_shard_key, added.generation_id, added.fact_id, added.revision);
    END LOOP;
    DELETE FROM strandline.fact_revision r WHERE r.shard_key = p_shard_key AND r.fact_id = ANY (p_fact_ids)
        AND (r.operation IN ('condense', 'invalidate') OR r.event_id = ANY (p_events));
    RETURN alone;
END
$function$;
