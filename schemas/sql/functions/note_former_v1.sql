-- note_former_v1: note facts that may go, with their words, messages and creation: their successors are found by these,
-- and so are their ids and creation once the same messages give the same words again (add_fact).
--
-- p_generation_id, p_events, p_fact_ids: the sources to note (NULL: any).  p_copies: copies of the events in forks, which
-- give the same from now on (release_forks_v1).
CREATE FUNCTION strandline.note_former_v1(
    p_shard_key uuid, p_generation_id integer, p_events uuid[], p_fact_ids uuid[], p_copies uuid[] DEFAULT '{}'
) RETURNS void
LANGUAGE sql AS $function$
    INSERT INTO strandline.former_fact AS o (shard_key, session_key, fact_id, seqs, fingerprints, created_at)
        SELECT p_shard_key, told.session_key, r.fact_id, array_agg(DISTINCT cited.seq),
            array_agg(DISTINCT words.fingerprint), min(f.created_at)
        FROM strandline.fact_revision r
        JOIN strandline.fact f ON f.shard_key = p_shard_key AND f.generation_id = r.generation_id
            AND f.fact_id = r.fact_id
        CROSS JOIN LATERAL unnest(r.seqs) AS cited (seq)
        CROSS JOIN LATERAL unnest(ARRAY[r.fingerprint, coalesce(r.own_fingerprint, r.fingerprint)])
            AS words (fingerprint)
        CROSS JOIN LATERAL (
            SELECT r.session_key
            UNION ALL
            SELECT n.session_key FROM strandline.flush_event n
            WHERE n.shard_key = p_shard_key AND n.event_id = ANY (p_copies)
                AND n.event_id = md5(r.event_id::text || n.session_key::text)::uuid) AS told
        WHERE r.shard_key = p_shard_key AND r.operation <> 'invalidate' AND r.event_id IS NOT NULL
            AND (p_generation_id IS NULL OR r.generation_id = p_generation_id)
            AND (p_events IS NULL OR r.event_id = ANY (p_events))
            AND (p_fact_ids IS NULL OR r.fact_id = ANY (p_fact_ids))
        GROUP BY told.session_key, r.fact_id
        ON CONFLICT ON CONSTRAINT former_fact_pkey DO UPDATE SET
            seqs = ARRAY(SELECT DISTINCT unnest(o.seqs || excluded.seqs)),
            fingerprints = ARRAY(SELECT DISTINCT unnest(o.fingerprints || excluded.fingerprints)),
            created_at = least(o.created_at, excluded.created_at)
$function$;
