-- drop_unsourced_v1: remove the statements of some events from the history of facts; delete those of the given facts
-- that no other event stated.
--
-- A fact that was ended by a deleted one is now ended by the fact that ended the deleted one.  An id is that of a fact in
-- each derivation of its event, of which another may have other sources; so what is lost is told by both.  A part of
-- forgetting (forget_facts_v1).  The caller holds the owner's lanes.
CREATE FUNCTION strandline.drop_unsourced_v1(p_shard_key uuid, p_events uuid[], p_fact_ids uuid[]) RETURNS void
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    generations integer[];
    lost uuid[];
BEGIN
    SELECT array_agg(f.generation_id), array_agg(f.fact_id) INTO generations, lost FROM strandline.fact f
        WHERE f.shard_key = p_shard_key AND f.fact_id = ANY (p_fact_ids) AND NOT EXISTS (
            SELECT FROM strandline.fact_revision r WHERE r.shard_key = p_shard_key
              AND r.generation_id = f.generation_id AND r.fact_id = f.fact_id
              AND r.operation <> 'invalidate' AND (r.event_id = ANY (p_events)) IS NOT TRUE);
    LOOP
        UPDATE strandline.fact f SET invalidated_by = g.invalidated_by,
                valid_until = greatest(f.valid_from, g.valid_until)
            FROM unnest(generations, lost) AS l (generation_id, fact_id)
            JOIN strandline.fact g ON g.shard_key = p_shard_key AND g.generation_id = l.generation_id
                AND g.fact_id = l.fact_id
            WHERE f.shard_key = p_shard_key AND g.generation_id = f.generation_id AND g.fact_id = f.invalidated_by
              AND g.invalidated_at IS NOT NULL;
        EXIT WHEN NOT FOUND;
    END LOOP;
    DELETE FROM strandline.fact_revision r WHERE r.shard_key = p_shard_key
        AND (r.event_id = ANY (p_events) OR EXISTS (
            SELECT FROM unnest(generations, lost) AS l (generation_id, fact_id)
            WHERE l.generation_id = r.generation_id AND l.fact_id = r.fact_id));
    DELETE FROM strandline.fact f USING unnest(generations, lost) AS l (generation_id, fact_id)
        WHERE f.shard_key = p_shard_key AND f.generation_id = l.generation_id AND f.fact_id = l.fact_id;
END
$function$;
