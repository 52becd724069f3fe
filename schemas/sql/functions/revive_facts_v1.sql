-- revive_facts_v1: make facts live again that had ended because of a fact that is gone; of the same words only the
-- newest.
--
-- If a person deleted the fact that replaced one, invalidated_by is null, and that one stays ended.
-- The caller holds the owner's lanes.  Returns the facts that are live again.
CREATE FUNCTION strandline.revive_facts_v1(p_shard_key uuid) RETURNS uuid[]
LANGUAGE sql AS $function$
    WITH revived AS (
        UPDATE strandline.fact f SET
            live = true, invalidated_at = NULL, invalidated_by = NULL, condensed_into = NULL, valid_until = NULL
        FROM (
            SELECT DISTINCT ON (d.generation_id, d.fingerprint) d.generation_id, d.fact_id
            FROM strandline.fact d
            WHERE d.shard_key = p_shard_key AND NOT d.live
              AND coalesce(d.invalidated_by, d.condensed_into) IS NOT NULL
              AND NOT EXISTS (
                SELECT FROM strandline.fact o WHERE o.shard_key = p_shard_key
                  AND o.generation_id = d.generation_id
                  AND (o.fact_id = coalesce(d.invalidated_by, d.condensed_into)
                    OR o.live AND o.fingerprint = d.fingerprint))
            ORDER BY d.generation_id, d.fingerprint, d.said_at DESC, d.fact_id
        ) AS r
        WHERE f.shard_key = p_shard_key AND f.generation_id = r.generation_id AND f.fact_id = r.fact_id
        RETURNING f.fact_id
    )
    SELECT coalesce(array_agg(r.fact_id), '{}') FROM revived r
$function$;
