-- refresh_facts_v1: give facts the topics, day, speaker and times of the candidates, and of the people, that are left
-- in their history.
--
-- A part of forgetting (forget_facts_v1).  The caller holds the owner's lanes.
CREATE FUNCTION strandline.refresh_facts_v1(p_shard_key uuid, p_fact_ids uuid[]) RETURNS void
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
BEGIN
    UPDATE strandline.fact f SET topics = coalesce(s.topics, '{}'), said_by = s.said_by,
            about_date = s.about_date, said_at = s.said_at, valid_from = s.valid_from
        FROM (
            SELECT r.generation_id, r.fact_id, array_agg(DISTINCT t.topic) FILTER (WHERE t.topic IS NOT NULL) AS topics,
                (array_agg(c.said_by ORDER BY r.revision))[1] AS said_by,
                (array_agg(coalesce(c.about_date, (e.payload->>'about_date')::date) ORDER BY r.revision DESC)
                    FILTER (WHERE c.about_date IS NOT NULL OR e.payload->>'about_date' IS NOT NULL))[1]
                    AS about_date,
                max(coalesce(c.said_at, e.created_at)) AS said_at,
                min(coalesce(c.said_at, (e.payload->>'valid_from')::timestamptz, e.created_at)) AS valid_from
            FROM strandline.fact_revision r
            LEFT JOIN strandline.fact_candidate c ON c.shard_key = p_shard_key
                AND c.generation_id = r.generation_id AND c.event_id = r.event_id
                AND c.batch_id = r.extract_batch_id AND c.seqs = r.seqs
                -- Of two texts that are sealed, the same words are seen by these.
                AND c.fingerprint = coalesce(r.own_fingerprint, r.fingerprint)
            LEFT JOIN strandline.fact_event e ON e.shard_key = p_shard_key AND e.number = r.fact_event
            LEFT JOIN LATERAL (
                SELECT unnest(c.topics)
                UNION ALL SELECT json_array_elements_text(e.payload->'topics')) AS t (topic) ON true
            WHERE r.shard_key = p_shard_key AND r.fact_id = ANY (p_fact_ids)
              AND r.operation NOT IN ('invalidate', 'condense')
            GROUP BY r.generation_id, r.fact_id
        ) AS s
        WHERE f.shard_key = p_shard_key AND f.generation_id = s.generation_id AND f.fact_id = s.fact_id
          AND s.said_at IS NOT NULL;
END
$function$;
