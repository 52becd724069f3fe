-- read_session_words_v1: what one session gave the facts of its owner: which facts it had a part in, the lexemes of
-- all that it said, and since when a wording may have been made beside something of it.
--
-- A part of forgetting (forget_facts_v1).  Returns one row; none if the session had a part in no fact.
CREATE FUNCTION strandline.read_session_words_v1(p_shard_key uuid, p_session_key uuid)
RETURNS TABLE (fact_ids uuid[], said text[], since timestamptz)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
BEGIN
    SELECT min(r.created_at), array_agg(DISTINCT r.fact_id) INTO since, fact_ids
        FROM strandline.fact_revision r
        WHERE r.shard_key = p_shard_key AND r.session_key = p_session_key;
    IF since IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(DISTINCT l.lexeme) INTO said
        FROM strandline.fact_revision r CROSS JOIN LATERAL unnest(r.lexemes || r.own_lexemes) AS l (lexeme)
        WHERE r.shard_key = p_shard_key AND r.session_key = p_session_key
          AND r.operation NOT IN ('invalidate', 'condense');
    -- Of one batch, all candidates are shown beside each other.
    SELECT least(since, min(b.created_at)) INTO since FROM strandline.batch b
        WHERE b.shard_key = p_shard_key AND b.batch_id IN (
            SELECT r.merge_batch_id FROM strandline.fact_revision r
            WHERE r.shard_key = p_shard_key AND r.session_key = p_session_key);
    RETURN NEXT;
END
$function$;
