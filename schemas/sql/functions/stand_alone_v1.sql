-- stand_alone_v1: turn one change of a fact into a separate fact, in the words of its candidate, or of its person.
--
-- It is as live as the fact that it changed, and ended as that did; if another fact has the same words, it becomes
-- another source of that one.  The caller holds the owner's lanes.
-- Returns the fact that has the change now.
CREATE FUNCTION strandline.stand_alone_v1(
    p_shard_key uuid, p_generation_id integer, p_fact_id uuid, p_revision integer
) RETURNS uuid
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    kept uuid;
    last_revision integer;
BEGIN
    INSERT INTO strandline.fact (shard_key, generation_id, fact_id, text, fingerprint, lexemes, topics, said_at,
            valid_from, valid_until, live, invalidated_at, invalidated_by, condensed_into)
        -- The id follows from what it is made of; the number of a revision is given again once it is free.
        SELECT f.shard_key, f.generation_id, md5(concat_ws(' ', f.fact_id, r.event_id, r.extract_batch_id,
                r.seqs, r.fact_event, r.created_at))::uuid,
            coalesce(r.own_text, r.text), coalesce(r.own_fingerprint, r.fingerprint),
            coalesce(r.own_lexemes, r.lexemes), '{}', f.said_at, f.valid_from, f.valid_until, f.live,
            f.invalidated_at, f.invalidated_by, f.condensed_into
        FROM strandline.fact f JOIN strandline.fact_revision r ON r.shard_key = f.shard_key
            AND r.generation_id = f.generation_id AND r.fact_id = f.fact_id AND r.revision = p_revision
        WHERE f.shard_key = p_shard_key AND f.generation_id = p_generation_id AND f.fact_id = p_fact_id
        ON CONFLICT (shard_key, generation_id, fingerprint) WHERE live
            DO UPDATE SET updated_at = excluded.updated_at
        RETURNING fact_id INTO kept;
    SELECT max(r.revision) INTO last_revision FROM strandline.fact_revision r
        WHERE r.shard_key = p_shard_key AND r.generation_id = p_generation_id AND r.fact_id = kept;
    UPDATE strandline.fact_revision r SET fact_id = kept, text = coalesce(r.own_text, r.text),
            fingerprint = coalesce(r.own_fingerprint, r.fingerprint),
            lexemes = coalesce(r.own_lexemes, r.lexemes),
            own_text = NULL, own_fingerprint = NULL, own_lexemes = NULL,
            revision = coalesce(last_revision, 0) + 1,
            operation = CASE WHEN last_revision IS NOT NULL THEN 'duplicate'
                WHEN r.operation IN ('update', 'duplicate') THEN 'add' ELSE r.operation END
        WHERE r.shard_key = p_shard_key AND r.generation_id = p_generation_id
          AND r.fact_id = p_fact_id AND r.revision = p_revision;
    RETURN kept;
END
$function$;
