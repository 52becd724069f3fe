-- forget_facts_v1: remove the statements of some events from their owner's facts; those of other events stay.
--
-- The events are all of a session that is forgotten, or all of the batches of extract that read a message which was
-- corrected.  A merge words facts next to all known facts of the owner, so a fact from other messages may quote these.
-- Such a wording is replaced by the words that the other candidate had by itself (own_text): extract saw none of these
-- events when it found that.  A wording quotes if it has a lexeme that is in none of the words it was made of and that
-- stay; where these events had a part in the fact, any such lexeme counts, elsewhere those that they said.
-- Each phase is a separate function.  Called by reset_v1 and rederive_v1, which hold the owner's lanes.
-- Returns the facts that have other words now, or are live again, in any generation. A person may have deleted some
-- of them in the meantime; the caller deletes these again.
CREATE FUNCTION strandline.forget_facts_v1(p_shard_key uuid, p_events uuid[]) RETURNS uuid[]
LANGUAGE plpgsql AS $function$
DECLARE
    they_had record;
    apart uuid[];
    touched uuid[];
BEGIN
    SELECT w.fact_ids, w.said, w.since INTO they_had
        FROM strandline.read_event_words_v1(p_shard_key, p_events) AS w;
    IF NOT FOUND THEN
        RETURN '{}';
    END IF;
    @note_change(p_shard_key, 'facts');
    -- Their parts stand again, or ended as they did.
    apart := strandline.find_condensed_quotes_v1(p_shard_key, p_events, they_had.said, they_had.since);
    touched := they_had.fact_ids || strandline.take_apart_v1(p_shard_key, apart, p_events);
    touched := touched
        || strandline.replace_quotes_v1(p_shard_key, p_events, they_had.said, they_had.since);
    PERFORM strandline.drop_unsourced_v1(p_shard_key, p_events, touched || apart);
    touched := touched || strandline.restate_facts_v1(p_shard_key, touched);
    PERFORM strandline.refresh_facts_v1(p_shard_key, touched);
    touched := touched || strandline.revive_facts_v1(p_shard_key);
    RETURN array_remove(touched, NULL);
END
$function$;
