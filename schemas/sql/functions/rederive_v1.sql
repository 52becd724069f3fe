-- rederive_v1: give up the memory derived from some messages of a session, in each derivation, and make their events due
-- again.  For correct_v1, before it takes the messages out of the log.
--
-- Of facts, batches of extract count that saw one of the messages as context, or would have if nobody had taken it back
-- (@lines_before); and since a batch is void as a whole, every event of it, in each derivation.  These events leave the
-- merges that they were in, which are not repeated, and are merged again once they are extracted.
-- Forks that stand on that memory derive their copies of the events for themselves (release_forks_v1).
-- The caller has locked all lanes of session and owner, and taken them from their holders.
-- Returns the facts that have other words now, or are live again (forget_facts_v1).
CREATE FUNCTION strandline.rederive_v1(p_shard_key uuid, p_session_key uuid, p_seqs bigint[]) RETURNS uuid[]
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    concerned uuid[];
    extracted uuid[];
    wider uuid[];
    derived record;
    copies uuid[];
    released uuid[] := '{}';
    touched uuid[];
BEGIN
    SELECT array_agg(e.event_id) INTO concerned FROM strandline.flush_event e
        WHERE e.shard_key = p_shard_key AND e.session_key = p_session_key AND EXISTS (
            SELECT FROM unnest(p_seqs) AS taken (seq) WHERE taken.seq BETWEEN e.from_seq AND e.through_seq);
    IF concerned IS NULL THEN
        RETURN '{}';
    END IF;
    SELECT concerned || coalesce(array_agg(b.event_ids[1]), '{}') INTO wider
        FROM strandline.batch b
        JOIN strandline.generation g ON g.generation_id = b.generation_id AND g.pipeline = 'facts'
            AND g.entry_stage = b.stage
        JOIN strandline.flush_event e ON e.shard_key = p_shard_key AND e.event_id = b.event_ids[1]
        WHERE b.shard_key = p_shard_key AND b.scope_key = p_session_key AND b.state IN ('open', 'applied')
          AND EXISTS (
            SELECT FROM unnest(p_seqs) AS taken (seq)
            WHERE taken.seq < e.from_seq AND taken.seq >= e.from_seq - 200)
          AND EXISTS (
            SELECT FROM @lines_before(p_shard_key, b.generation_id, b.stage, b.event_ids[1]) AS line
            WHERE line.seq = ANY (p_seqs));
    LOOP
        extracted := wider;
        SELECT array_agg(DISTINCT all_of.event_id) INTO wider FROM (
            SELECT unnest(extracted)
            UNION ALL
            SELECT unnest(b.event_ids) FROM strandline.batch b
            JOIN strandline.generation g ON g.generation_id = b.generation_id AND g.pipeline = 'facts'
                AND g.entry_stage = b.stage
            WHERE b.shard_key = p_shard_key AND b.scope_key = p_session_key AND b.state IN ('open', 'applied')
              AND b.event_ids && extracted) AS all_of (event_id)
            -- What removed messages gave is kept: they cannot be extracted again.
            WHERE all_of.event_id = ANY (concerned) OR NOT EXISTS (
                SELECT FROM strandline.flush_event e WHERE e.shard_key = p_shard_key
                  AND e.event_id = all_of.event_id AND @is_event_removed(e, p_shard_key));
        EXIT WHEN wider <@ extracted;
    END LOOP;
    FOR derived IN
        SELECT g.generation_id, g.entry_stage, g.pipeline = 'facts' AS is_of_facts,
            CASE g.entry_scope WHEN 'owner' THEN p_shard_key ELSE p_session_key END AS scope_key
        FROM strandline.generation g ORDER BY g.generation_id
    LOOP
        copies := '{}';
        IF derived.is_of_facts OR derived.scope_key = p_shard_key THEN
            copies := strandline.release_forks_v1(p_shard_key, derived.generation_id,
                CASE WHEN derived.is_of_facts THEN extracted ELSE concerned END);
            released := released || copies;
        END IF;
        PERFORM strandline.derive_again_v1(p_shard_key, derived.scope_key, derived.generation_id, derived.entry_stage,
            CASE WHEN derived.is_of_facts THEN extracted ELSE concerned || copies END);
    END LOOP;

    DELETE FROM strandline.due d USING strandline.generation g
        WHERE d.shard_key = p_shard_key AND d.session_key = p_session_key AND d.event_id = ANY (extracted)
          AND g.generation_id = d.generation_id AND g.pipeline = 'facts' AND d.stage <> g.entry_stage;
    DELETE FROM strandline.dead_letter d USING strandline.generation g
        WHERE d.shard_key = p_shard_key AND d.session_key = p_session_key AND d.event_id = ANY (extracted)
          AND g.generation_id = d.generation_id AND g.pipeline = 'facts' AND d.stage <> g.entry_stage;
    DELETE FROM strandline.receipt r USING strandline.generation g
        WHERE r.shard_key = p_shard_key AND r.event_id = ANY (extracted)
          AND g.generation_id = r.generation_id AND g.pipeline = 'facts' AND r.stage <> g.entry_stage;
    UPDATE strandline.batch b SET
            state = CASE WHEN b.state = 'open' OR b.event_ids <@ extracted THEN 'void' ELSE b.state END,
            closed_at = coalesce(b.closed_at, statement_timestamp()),
            event_ids = CASE WHEN b.state = 'open' OR b.event_ids <@ extracted THEN b.event_ids ELSE ARRAY(
                SELECT kept.event_id FROM unnest(b.event_ids) WITH ORDINALITY AS kept (event_id, place)
                WHERE kept.event_id <> ALL (extracted) ORDER BY kept.place) END
        FROM strandline.generation g
        WHERE b.shard_key = p_shard_key AND b.scope_key = p_shard_key AND b.state IN ('open', 'applied')
          AND b.event_ids && extracted
          AND g.generation_id = b.generation_id AND g.pipeline = 'facts' AND b.stage <> g.entry_stage;
    PERFORM strandline.note_former_v1(p_shard_key, NULL, extracted, NULL, released);
    touched := strandline.forget_facts_v1(p_shard_key, extracted);
    -- A merge sees what all events of the owner gave, so any of its answers may quote these (as in reset_v1).
    DELETE FROM strandline.answer a USING strandline.batch b
        WHERE b.shard_key = p_shard_key AND b.scope_key = p_shard_key
          AND a.shard_key = p_shard_key AND a.batch_id = b.batch_id;
    RETURN touched;
END
$function$;
