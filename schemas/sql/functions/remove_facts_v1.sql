-- remove_facts_v1: delete facts because of a person's event.
--
-- Their history and the facts condensed into them are deleted too. Facts that they once replaced stay ended;
-- the candidates they came from count as dropped by the person's event, p_number.
-- The caller holds the owner's lanes.  Returns the facts that are gone, whether each was live, and by which events
-- people had worded them.
CREATE FUNCTION strandline.remove_facts_v1(
    p_shard_key uuid, p_generation_id integer, p_fact_ids uuid[], p_number bigint
) RETURNS TABLE (fact_id uuid, live boolean, worded_by bigint[])
LANGUAGE sql AS $function$
    WITH RECURSIVE part AS (
        SELECT wanted.fact_id FROM unnest(p_fact_ids) AS wanted (fact_id)
        UNION
        SELECT f.fact_id FROM part p JOIN strandline.fact f ON f.shard_key = p_shard_key
            AND f.generation_id = p_generation_id AND f.condensed_into = p.fact_id
    ), gone AS (
        DELETE FROM strandline.fact f USING part p
        WHERE f.shard_key = p_shard_key AND f.generation_id = p_generation_id AND f.fact_id = p.fact_id
        RETURNING f.fact_id, f.live
    ), revised AS (
        DELETE FROM strandline.fact_revision r USING part p
        WHERE r.shard_key = p_shard_key AND r.generation_id = p_generation_id AND r.fact_id = p.fact_id
        RETURNING r.event_id, r.extract_batch_id, r.seqs, r.fact_event
    ), succeeded AS (
        UPDATE strandline.fact f SET invalidated_by = NULL FROM part p
        WHERE f.shard_key = p_shard_key AND f.generation_id = p_generation_id
            AND f.invalidated_by = p.fact_id AND NOT f.fact_id IN (SELECT o.fact_id FROM part o)
    ), dropped AS (
        UPDATE strandline.fact_candidate c SET dropped_by = p_number
        FROM (SELECT DISTINCT v.event_id, v.extract_batch_id, v.seqs FROM revised v) AS r
        WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id
            AND c.event_id = r.event_id AND c.batch_id = r.extract_batch_id AND c.seqs = r.seqs
    )
    SELECT g.fact_id, g.live, coalesce((SELECT array_agg(DISTINCT r.fact_event) FROM revised r
        WHERE r.fact_event IS NOT NULL), '{}')
    FROM gone g
$function$;
