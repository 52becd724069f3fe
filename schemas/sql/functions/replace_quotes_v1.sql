-- replace_quotes_v1: give the wordings of other events that quote some events the words that they had by themselves.
--
-- An addition to a fact that stays stands alone then, as it does where a merge may not reword a fact; it ended as that
-- fact did.  A part of forgetting (forget_facts_v1), which says what a quote is.  The caller holds the owner's lanes.
-- Returns the facts whose history has other words now, and those that have what stands alone.
CREATE FUNCTION strandline.replace_quotes_v1(
    p_shard_key uuid, p_events uuid[], p_said text[], p_since timestamptz
) RETURNS uuid[]
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    quoting record;
    kept uuid;
    touched uuid[] := '{}';
BEGIN
    FOR quoting IN
        WITH ended AS MATERIALIZED (
            SELECT f.generation_id, f.fact_id, f.invalidated_by FROM strandline.fact f
            WHERE f.shard_key = p_shard_key AND f.invalidated_by IS NOT NULL
        )
        SELECT v.generation_id, v.fact_id, v.revision,
            v.operation = 'update' AND EXISTS (
                SELECT FROM strandline.fact_revision e WHERE e.shard_key = p_shard_key
                  AND e.generation_id = v.generation_id AND e.fact_id = v.fact_id AND e.revision < v.revision
                  AND (e.event_id = ANY (p_events)) IS NOT TRUE
                  AND e.operation NOT IN ('invalidate', 'duplicate')) AS stands_alone
        FROM strandline.fact_revision v
        CROSS JOIN LATERAL (
            SELECT bool_or(o.event_id = ANY (p_events)) AS shared,
                array_agg(l.lexeme) FILTER (WHERE (o.event_id = ANY (p_events)) IS NOT TRUE) AS words
            FROM (
                SELECT e.* FROM strandline.fact_revision e WHERE e.shard_key = p_shard_key
                  AND e.generation_id = v.generation_id AND e.fact_id = v.fact_id AND e.revision < v.revision
                UNION ALL
                SELECT e.* FROM ended d JOIN strandline.fact_revision e ON e.shard_key = p_shard_key
                  AND e.generation_id = d.generation_id AND e.fact_id = d.fact_id
                WHERE d.generation_id = v.generation_id AND d.invalidated_by = v.fact_id
            ) AS o
            CROSS JOIN LATERAL unnest(coalesce(o.own_lexemes, o.lexemes)) AS l (lexeme)
            WHERE o.operation <> 'invalidate'
        ) AS made_of
        WHERE v.shard_key = p_shard_key AND v.event_id <> ALL (p_events) AND v.own_text IS NOT NULL
          AND v.created_at > p_since AND EXISTS (
            SELECT FROM unnest(v.lexemes) AS l (lexeme)
            WHERE l.lexeme <> ALL (v.own_lexemes || coalesce(made_of.words, '{}'))
              AND (made_of.shared OR l.lexeme = ANY (p_said)))
        ORDER BY v.generation_id, v.fact_id, v.revision
    LOOP
        kept := quoting.fact_id;
        IF quoting.stands_alone THEN
            kept := strandline.stand_alone_v1(
                p_shard_key, quoting.generation_id, quoting.fact_id, quoting.revision);
        ELSE
            UPDATE strandline.fact_revision r SET text = r.own_text, fingerprint = r.own_fingerprint,
                    lexemes = r.own_lexemes, own_text = NULL, own_fingerprint = NULL, own_lexemes = NULL,
                    operation = CASE r.operation WHEN 'update' THEN 'add' ELSE r.operation END
                WHERE r.shard_key = p_shard_key AND r.generation_id = quoting.generation_id
                  AND r.fact_id = quoting.fact_id AND r.revision = quoting.revision;
        END IF;
        touched := touched || quoting.fact_id || kept;
    END LOOP;
    RETURN touched;
END
$function$;
