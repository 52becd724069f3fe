-- drop_unsourced_v1: remove the statements of some events from the history of facts; delete those of the given facts
-- that no other event stated.
--
-- A fact that was ended by a deleted one is now ended by the fact that ended the deleted one.  A part of forgetting
-- (forget_facts_v1).  The caller holds the owner's lanes.
CREATE FUNCTION strandline.drop_unsourced_v1(p_shard_key uuid, p_events uuid[], p_fact_ids uuid[]) RETURNS void
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    lost uuid[];
BEGIN
    SELECT array_agg(f.fact_id) INTO lost FROM strandline.fact f
        WHERE f.shard_key = p_shard_key AND f.fact_id = ANY (p_fact_ids) AND NOT EXISTS (
            SELECT FROM strandline.fact_revision r WHERE r.shard_key = p_shard_key
              AND r.generation_id = f.generation_id AND r.fact_id = f.fact_id
              AND r.operation <> 'invalidate' AND (r.event_id = ANY (p_events)) IS NOT TRUE);
    LOOP
        UPDATE strandline.fact f SET invalidated_by = g.invalidated_by,
                valid_until = greatest(f.valid_from, g.valid_until)
            FROM strandline.fact g
            WHERE f.shard_key = p_shard_key AND g.shard_key = p_shard_key AND g.fact_id = ANY (lost)
              AND g.generation_id = f.generation_id AND g.fact_id = f.invalidated_by
              AND g.invalidated_at IS NOT NULL;
        EXIT WHEN NOT FOUND;
    END LOOP;
    DELETE FROM strandline.fact_revision r WHERE r.shard_key = p_shard_key
        AND (r.event_id = ANY (p_events) OR r.fact_id = ANY (lost));
    DELETE FROM strandline.fact f WHERE f.shard_key = p_shard_key AND f.fact_id = ANY (lost);
END
$function$;
