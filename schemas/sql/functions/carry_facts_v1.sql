-- carry_facts_v1: what some events gave the facts of one derivation, as facts of another (carry_base_v1).
CREATE FUNCTION strandline.carry_facts_v1(
    p_shard_key uuid, p_generation_id integer, p_old_id integer, p_events uuid[]
) RETURNS void
LANGUAGE sql AS $function$
    WITH source AS MATERIALIZED (
        SELECT v.*, row_number() OVER (PARTITION BY v.fact_id ORDER BY v.revision) AS place,
            count(*) OVER (PARTITION BY v.fact_id) AS places
        FROM strandline.fact_revision v
        WHERE v.shard_key = p_shard_key AND v.generation_id = p_old_id AND v.event_id = ANY (p_events)
            AND v.operation IN ('add', 'update', 'duplicate')
    ), worded AS MATERIALIZED (
        -- The words are those of the last of these that gave any.
        SELECT DISTINCT ON (v.fact_id) v.fact_id, v.text, v.fingerprint, v.lexemes FROM source v
        ORDER BY v.fact_id, v.operation = 'duplicate', v.revision DESC
    ), carried AS (
        INSERT INTO strandline.fact (
            shard_key, generation_id, fact_id, text, fingerprint, lexemes, topics, said_by, about_date, said_at,
            valid_from, input, agent_id, team_id, feedback, created_at, updated_at)
        SELECT p_shard_key, p_generation_id, f.fact_id, w.text, w.fingerprint, w.lexemes, f.topics, f.said_by,
            f.about_date, f.said_at, f.valid_from, f.input, f.agent_id, f.team_id, f.feedback, f.created_at, f.updated_at
        FROM worded w
        JOIN strandline.fact f ON f.shard_key = p_shard_key AND f.generation_id = p_old_id AND f.fact_id = w.fact_id
        WHERE (f.live OR f.condensed_into IS NOT NULL OR EXISTS (
                -- Ended by what is derived again.
                SELECT FROM strandline.fact_revision v
                WHERE v.shard_key = p_shard_key AND v.generation_id = p_old_id AND v.fact_id = f.fact_id
                    AND v.operation = 'invalidate' AND v.event_id <> ALL (p_events)))
            AND NOT EXISTS (
                SELECT FROM strandline.fact_revision v
                WHERE v.shard_key = p_shard_key AND v.generation_id = p_old_id AND v.fact_id = f.fact_id
                    AND (v.operation = 'invalidate' AND v.event_id = ANY (p_events) OR v.operation = 'replace'))
            AND NOT EXISTS (
                SELECT FROM strandline.fact k
                WHERE k.shard_key = p_shard_key AND k.generation_id = p_generation_id
                    AND (k.fact_id = f.fact_id OR k.live AND k.fingerprint = w.fingerprint))
        ON CONFLICT DO NOTHING
        RETURNING fact_id
    )
    INSERT INTO strandline.fact_revision (
        shard_key, generation_id, fact_id, revision, operation, text, fingerprint, lexemes, own_text, own_fingerprint,
        own_lexemes, event_id, session_key, seqs, extract_batch_id, merge_batch_id, model, prompt_hash, created_at)
    SELECT p_shard_key, p_generation_id, v.fact_id, v.place, CASE WHEN v.place = 1 THEN 'add' ELSE v.operation END,
        v.text, v.fingerprint, v.lexemes, v.own_text, v.own_fingerprint, v.own_lexemes, v.event_id, v.session_key,
        v.seqs, r.batch_id, r.batch_id, v.model, v.prompt_hash, v.created_at
    FROM source v
    JOIN carried c ON c.fact_id = v.fact_id
    JOIN strandline.receipt r ON r.shard_key = p_shard_key AND r.event_id = v.event_id
        AND r.generation_id = p_generation_id AND r.stage = 'extract'
$function$;
