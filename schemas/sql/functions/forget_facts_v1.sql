-- forget_facts_v1: remove one session's statements from its owner's facts; those of other sessions stay.
--
-- A merge words facts beside all known facts of the owner, so a fact from another session's messages may quote this
-- one. Such a wording is replaced by the words that the other session's candidate had by itself (own_text): extract
-- saw no other session.  A wording quotes if it has a lexeme that is in none of the words it was made of and that
-- stay; where this session had a part in the fact, any such lexeme counts, elsewhere those that this session said.
-- Each phase is a separate function.  Called by reset_v1, which holds the owner's lanes.
-- Returns the facts that have other words now, or are live again, in any generation. A person may have deleted some
-- of them meanwhile; the caller deletes these again.
CREATE FUNCTION strandline.forget_facts_v1(p_shard_key uuid, p_session_key uuid) RETURNS uuid[]
LANGUAGE plpgsql AS $function$
DECLARE
    session_had record;
    apart uuid[];
    touched uuid[];
BEGIN
    SELECT w.fact_ids, w.said, w.since INTO session_had
        FROM strandline.read_session_words_v1(p_shard_key, p_session_key) AS w;
    IF NOT FOUND THEN
        RETURN '{}';
    END IF;
    -- Their parts stand again, or ended as they did.
    apart := strandline.find_condensed_quotes_v1(p_shard_key, p_session_key, session_had.said, session_had.since);
    touched := session_had.fact_ids || strandline.take_apart_v1(p_shard_key, apart, p_session_key);
    touched := touched
        || strandline.replace_quotes_v1(p_shard_key, p_session_key, session_had.said, session_had.since);
    PERFORM strandline.drop_unsourced_v1(p_shard_key, p_session_key, touched || apart);
    touched := touched || strandline.restate_facts_v1(p_shard_key, touched);
    PERFORM strandline.refresh_facts_v1(p_shard_key, touched);
    touched := touched || strandline.revive_facts_v1(p_shard_key);
    RETURN array_remove(touched, NULL);
END
$function$;
