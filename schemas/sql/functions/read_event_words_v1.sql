-- read_event_words_v1: what some events gave the facts of their owner: which facts they had a part in, the lexemes of
-- all that they said, and since when a wording may have been made next to something of them.
--
-- A part of forgetting (forget_facts_v1).  Returns one row; none if they had a part in no fact.
CREATE FUNCTION strandline.read_event_words_v1(p_shard_key uuid, p_events uuid[])
RETURNS TABLE (fact_ids uuid[], said text[], since timestamptz)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
BEGIN
    SELECT min(r.created_at), array_agg(DISTINCT r.fact_id) INTO since, fact_ids
        FROM strandline.fact_revision r
        WHERE r.shard_key = p_shard_key AND r.event_id = ANY (p_events);
    IF since IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(DISTINCT l.lexeme) INTO said
        FROM strandline.fact_revision r CROSS JOIN LATERAL unnest(r.lexemes || r.own_lexemes) AS l (lexeme)
        WHERE r.shard_key = p_shard_key AND r.event_id = ANY (p_events)
          AND r.operation NOT IN ('invalidate', 'condense');
    -- Of one batch, all candidates are shown next to each other.
    SELECT least(since, min(b.created_at)) INTO since FROM strandline.batch b
        WHERE b.shard_key = p_shard_key AND b.batch_id IN (
            SELECT r.merge_batch_id FROM strandline.fact_revision r
            WHERE r.shard_key = p_shard_key AND r.event_id = ANY (p_events));
    RETURN NEXT;
END
$function$;
