-- find_condensed_quotes_v1: the condensed facts that hold something of some events, or quote it, and those that hold
-- these, in any generation.
--
-- A sentence quotes them if it was made since then and has a lexeme of what they said which none of its other parts
-- accounts for.  A part of forgetting (forget_facts_v1).
CREATE FUNCTION strandline.find_condensed_quotes_v1(
    p_shard_key uuid, p_events uuid[], p_said text[], p_since timestamptz
) RETURNS uuid[]
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    found_ids uuid[];
BEGIN
    WITH RECURSIVE gone AS (
        SELECT c.fact_id FROM strandline.fact_revision c
        WHERE c.shard_key = p_shard_key AND c.operation = 'condense' AND (
            c.event_id = ANY (p_events) OR c.created_at > p_since AND EXISTS (
                SELECT FROM unnest(c.lexemes) AS l (lexeme) WHERE l.lexeme = ANY (p_said) AND NOT EXISTS (
                    SELECT FROM strandline.fact f JOIN strandline.fact_revision r ON r.shard_key = p_shard_key
                        AND r.generation_id = f.generation_id AND r.fact_id = f.fact_id
                    WHERE f.shard_key = p_shard_key AND f.condensed_into = c.fact_id
                      AND r.operation <> 'invalidate' AND (r.event_id = ANY (p_events)) IS NOT TRUE
                      AND l.lexeme = ANY (coalesce(r.own_lexemes, r.lexemes)))))
        UNION
        SELECT f.condensed_into FROM gone JOIN strandline.fact f
            ON f.shard_key = p_shard_key AND f.fact_id = gone.fact_id AND f.condensed_into IS NOT NULL
    )
    SELECT array_agg(g.fact_id) INTO found_ids FROM gone g;
    RETURN found_ids;
END
$function$;
