-- restate_facts_v1: let facts say again the rest of their history; where another fact says that, it gets their
-- sources, and they are gone.
--
-- A part of forgetting (forget_facts_v1).  The caller holds the owner's lanes.
-- Returns the facts that got sources of others.
CREATE FUNCTION strandline.restate_facts_v1(p_shard_key uuid, p_fact_ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    fallen record;
    kept uuid;
    last_revision integer;
    touched uuid[] := '{}';
BEGIN
    FOR fallen IN
        SELECT f.generation_id, f.fact_id, f.live, r.text, r.fingerprint, r.lexemes
        FROM strandline.fact f CROSS JOIN LATERAL (
            SELECT v.text, v.fingerprint, v.lexemes FROM strandline.fact_revision v
            WHERE v.shard_key = p_shard_key AND v.generation_id = f.generation_id AND v.fact_id = f.fact_id
              AND v.operation <> 'invalidate'
            ORDER BY v.operation = 'duplicate', v.revision DESC LIMIT 1) AS r
        WHERE f.shard_key = p_shard_key AND f.fact_id = ANY (p_fact_ids) AND r.text <> f.text
        ORDER BY f.generation_id, f.created_at, f.fact_id
    LOOP
        SELECT o.fact_id, (SELECT max(r.revision) FROM strandline.fact_revision r
                WHERE r.shard_key = p_shard_key AND r.generation_id = o.generation_id AND r.fact_id = o.fact_id)
            INTO kept, last_revision FROM strandline.fact o
            WHERE fallen.live AND o.shard_key = p_shard_key AND o.generation_id = fallen.generation_id
              AND o.live AND o.fingerprint = fallen.fingerprint AND o.fact_id <> fallen.fact_id;
        IF NOT FOUND THEN
            UPDATE strandline.fact f SET text = fallen.text, fingerprint = fallen.fingerprint,
                    lexemes = fallen.lexemes, updated_at = moment
                WHERE f.shard_key = p_shard_key AND f.generation_id = fallen.generation_id
                  AND f.fact_id = fallen.fact_id;
            CONTINUE;
        END IF;
        PERFORM strandline.note_former_v1(p_shard_key, fallen.generation_id, NULL, ARRAY[fallen.fact_id]);
        UPDATE strandline.fact_revision r SET fact_id = kept, revision = last_revision + r.revision,
                operation = CASE r.operation WHEN 'invalidate' THEN r.operation ELSE 'duplicate' END
            WHERE r.shard_key = p_shard_key AND r.generation_id = fallen.generation_id
              AND r.fact_id = fallen.fact_id;
        UPDATE strandline.fact f SET invalidated_by = kept
            WHERE f.shard_key = p_shard_key AND f.generation_id = fallen.generation_id
              AND f.invalidated_by = fallen.fact_id AND f.fact_id <> kept;
        UPDATE strandline.fact f SET doubt_fact_id = kept
            WHERE f.shard_key = p_shard_key AND f.generation_id = fallen.generation_id
              AND f.doubt_fact_id = fallen.fact_id AND f.fact_id <> kept;
        DELETE FROM strandline.fact f WHERE f.shard_key = p_shard_key
            AND f.generation_id = fallen.generation_id AND f.fact_id = fallen.fact_id;
        touched := touched || kept;
    END LOOP;
    UPDATE strandline.fact_revision r SET text = f.text, fingerprint = f.fingerprint, lexemes = f.lexemes
        FROM strandline.fact f
        WHERE r.shard_key = p_shard_key AND r.fact_id = ANY (p_fact_ids || touched) AND r.operation = 'invalidate'
          AND f.shard_key = p_shard_key AND f.generation_id = r.generation_id AND f.fact_id = r.fact_id;
    RETURN touched;
END
$function$;
