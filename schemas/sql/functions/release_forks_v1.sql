-- release_forks_v1: have the forks of a session derive for themselves what one derivation gives up for some of its
-- events.
--
-- A fork's copy of an event counts as applied in facts, and in blocks of the owner's scope, because its source was, or
-- would be (fork_v1).  Once that is given up, nothing stands for the fork's messages any more.  So these copies leave
-- the batch that the fork was made with, and are due; the fork's other events stay as they are.
-- No fork that has copies of these events may come in the meantime: the caller has locked the row of their session, or they
-- are of an earlier life of it.  Returns the copies.
CREATE FUNCTION strandline.release_forks_v1(p_shard_key uuid, p_generation_id integer, p_events uuid[]) RETURNS uuid[]
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    is_live boolean;
    copies uuid[];
BEGIN
    -- Batches that no worker began have the epoch 0.
    WITH forks AS MATERIALIZED (
        SELECT b.batch_id, n.event_id, n.session_key
        FROM strandline.batch b
        CROSS JOIN LATERAL unnest(b.event_ids) AS applied (event_id)
        JOIN strandline.flush_event n ON n.shard_key = p_shard_key AND n.event_id = applied.event_id
        WHERE b.shard_key = p_shard_key AND b.generation_id = p_generation_id AND b.lease_epoch = 0
          AND b.state = 'applied'
    ), twins AS (
        SELECT md5(given.event_id::text || f.session_key::text)::uuid AS event_id
        FROM (SELECT DISTINCT session_key FROM forks) AS f CROSS JOIN unnest(p_events) AS given (event_id)
    )
    SELECT array_agg(f.event_id) INTO copies FROM forks f JOIN twins t ON t.event_id = f.event_id;
    IF copies IS NULL THEN
        RETURN '{}';
    END IF;
    SELECT EXISTS (
            SELECT FROM @serving(p_shard_key, ARRAY[g.pipeline]) v WHERE v.generation_id = g.generation_id)
        INTO is_live FROM strandline.generation g WHERE g.generation_id = p_generation_id;
    -- Corrections and forgetting resets of the forks are waited for; what these gave up is due or gone already.
    PERFORM FROM strandline.flush_event n WHERE n.shard_key = p_shard_key AND n.event_id = ANY (copies)
        ORDER BY n.session_key, n.from_seq FOR KEY SHARE;
    WITH gone AS (
        DELETE FROM strandline.receipt r USING strandline.batch b
        WHERE r.shard_key = p_shard_key AND r.generation_id = p_generation_id AND r.event_id = ANY (copies)
          AND r.outcome = 'applied' AND b.shard_key = p_shard_key AND b.batch_id = r.batch_id AND b.lease_epoch = 0
          AND b.state = 'applied'
        RETURNING r.event_id
    )
    SELECT array_agg(DISTINCT g.event_id) INTO copies FROM gone g;
    IF copies IS NULL THEN
        RETURN '{}';
    END IF;
    UPDATE strandline.batch b SET
            state = CASE WHEN b.event_ids <@ copies THEN 'void' ELSE b.state END,
            event_ids = CASE WHEN b.event_ids <@ copies THEN b.event_ids ELSE ARRAY(
                SELECT kept.event_id FROM unnest(b.event_ids) WITH ORDINALITY AS kept (event_id, place)
                WHERE kept.event_id <> ALL (copies) ORDER BY kept.place) END
        WHERE b.shard_key = p_shard_key AND b.generation_id = p_generation_id AND b.lease_epoch = 0
          AND b.state = 'applied' AND b.event_ids && copies;
    INSERT INTO strandline.due (shard_key, session_key, generation_id, stage, from_seq, through_seq,
        scope_key, event_id, incarnation, tokens, namespace, precedence, created_at, ring_at, was_applied)
    SELECT p_shard_key, n.session_key, g.generation_id, g.entry_stage, n.from_seq, n.through_seq,
        CASE g.entry_scope WHEN 'owner' THEN p_shard_key ELSE n.session_key END, n.event_id, s.incarnation, n.tokens,
        s.namespace, CASE WHEN is_live AND n.cause <> 'import' THEN 0 ELSE 1 END, n.created_at,
        CASE WHEN is_live THEN moment ELSE 'infinity' END, true
    FROM strandline.flush_event n
    JOIN strandline.session s ON s.shard_key = p_shard_key AND s.session_key = n.session_key
    JOIN strandline.generation g ON g.generation_id = p_generation_id AND g.state <> 'retired'
    WHERE n.shard_key = p_shard_key AND n.event_id = ANY (copies)
    ON CONFLICT DO NOTHING;
    RETURN copies;
END
$function$;
