-- uncondense_v1: take apart the condensed facts that hold some others, so that each of their parts stands for itself.
--
-- For what people do to one part; what a condensed fact took the place of stays ended.  A part of a fact that is
-- itself among p_fact_ids stays where it is, and so does one of a fact that a person gave other words, which
-- replaced all its parts.  The caller holds the owner's lanes.
-- Returns the facts that are live again, or stand alone.
CREATE FUNCTION strandline.uncondense_v1(p_shard_key uuid, p_generation_id integer, p_fact_ids uuid[])
RETURNS uuid[]
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    holders uuid[];
    touched uuid[];
BEGIN
    WITH RECURSIVE holder AS (
        SELECT f.fact_id AS part, f.condensed_into AS fact_id FROM strandline.fact f
        WHERE f.shard_key = p_shard_key AND f.generation_id = p_generation_id
          AND f.fact_id = ANY (p_fact_ids) AND f.condensed_into IS NOT NULL
        UNION
        SELECT h.part, f.condensed_into FROM holder h JOIN strandline.fact f ON f.shard_key = p_shard_key
            AND f.generation_id = p_generation_id AND f.fact_id = h.fact_id
            AND f.condensed_into IS NOT NULL
    )
    SELECT array_agg(DISTINCT h.fact_id) INTO holders FROM holder h
        WHERE NOT EXISTS (
            SELECT FROM holder o WHERE o.part = h.part AND (o.fact_id = ANY (p_fact_ids) OR EXISTS (
                SELECT FROM strandline.fact_revision r WHERE r.shard_key = p_shard_key
                  AND r.generation_id = p_generation_id AND r.fact_id = o.fact_id
                  AND r.operation = 'replace')));
    IF holders IS NULL THEN
        RETURN '{}';
    END IF;
    -- Another source of just the same sentence is to stand alone, and not to find the one that goes.
    UPDATE strandline.fact f SET fingerprint = uuid_send(f.fact_id)
        WHERE f.shard_key = p_shard_key AND f.generation_id = p_generation_id AND f.fact_id = ANY (holders);
    touched := strandline.take_apart_v1(p_shard_key, holders, NULL);
    UPDATE strandline.fact f SET invalidated_by = NULL
        WHERE f.shard_key = p_shard_key AND f.generation_id = p_generation_id
          AND f.invalidated_by = ANY (holders);
    DELETE FROM strandline.fact f WHERE f.shard_key = p_shard_key AND f.generation_id = p_generation_id
        AND f.fact_id = ANY (holders);
    RETURN touched || strandline.revive_facts_v1(p_shard_key);
END
$function$;
