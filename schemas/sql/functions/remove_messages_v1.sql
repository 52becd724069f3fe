-- remove_messages_v1: take the messages of a step out of the log, once they are in the archive and were read back.
--
-- Only as they were archived: if a correction or a pop changed one of them since, or took it, nothing is done, and the
-- step begins again under another id ('changed').  Important messages stay.
-- Derived memory stays, and is the base of later derivations: facts with their revisions, and of ordered lanes
-- the last state that none but removed messages were folded into; the states before it go.  With forget_facts, facts
-- lose what these events gave them.  Pieces that searches read, and answers of batches of which nothing is left, go.
-- The lanes are locked, so that no worker is writing; the session's row comes last, so that a put waits for the commit
-- alone.  Statements see what was committed before they began.
--
-- status: 'removed'; 'changed'; 'waiting' (an event is due again); 'outdated' (acts on retention were recorded since it
-- was planned: it is to be given up); 'none' (another process did it).
-- touched: the facts that have other words now, or are live again, as forget_facts_v1 returns them.
CREATE FUNCTION strandline.remove_messages_v1(
    p_shard_key uuid, p_session_key uuid, p_from_seq bigint, p_step_id uuid
) RETURNS TABLE (status text, removed integer, touched uuid[])
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    step strandline.retention_step%ROWTYPE;
    s strandline.session%ROWTYPE;
    gone bigint[];
    kept bigint[];
    events uuid[];
    lane record;
    state record;
    base bigint;
    moment CONSTANT timestamptz := clock_timestamp();
    new_id CONSTANT uuid := gen_random_uuid();
BEGIN
    touched := '{}';
    removed := 0;
    status := 'none';
    -- First of all, since who sets a fence waits for lanes.
    IF strandline.look_at_fence_v1(p_shard_key, p_session_key) IS NOT NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    @lock_lanes(p_shard_key, p_session_key);
    SELECT * INTO step FROM strandline.retention_step t
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key AND t.from_seq = p_from_seq
          AND t.step_id = p_step_id AND t.state = 'read_back' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NEXT;
        RETURN;
    END IF;
    IF NOT EXISTS (
        SELECT FROM strandline.session t
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key
          AND step.acts = @acts_of(p_shard_key, p_session_key, t.namespace)) THEN
        status := 'outdated';
        RETURN NEXT;
        RETURN;
    END IF;
    IF EXISTS (
        SELECT FROM strandline.due d
        WHERE d.shard_key = p_shard_key AND d.session_key = p_session_key AND d.from_seq <= step.through_seq
          AND d.through_seq >= step.from_seq) THEN
        status := 'waiting';
        RETURN NEXT;
        RETURN;
    END IF;
    IF step.rows_digest <> @rows_digest(p_shard_key, p_session_key, step.from_seq, step.through_seq) THEN
        UPDATE strandline.retention_step t SET state = 'planned', step_id = new_id,
                object_digest = NULL, rows_digest = NULL, archived_at = NULL, read_back_at = NULL,
                -- Nobody works on the new step yet, so it may be begun at once.
                attempted_at = NULL, last_error = 'changed since it was archived'
            WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key AND t.from_seq = p_from_seq;
        status := 'changed';
        RETURN NEXT;
        RETURN;
    END IF;

    SELECT coalesce(array_agg(m.seq) FILTER (WHERE NOT m.is_important), '{}'),
            coalesce(array_agg(m.seq) FILTER (WHERE m.is_important), '{}')
        INTO gone, kept FROM (
            SELECT o.seq, coalesce(o.labels @> ARRAY[(
                    SELECT @important(p_session_key, t.namespace) FROM strandline.session t
                    WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key)], false) AS is_important
            FROM strandline.message o
            WHERE o.shard_key = p_shard_key AND o.session_key = p_session_key
              AND o.seq BETWEEN step.from_seq AND step.through_seq
            ORDER BY o.seq) AS m;
    removed := cardinality(gone);
    UPDATE strandline.retention_step t SET state = 'removed', removed_at = moment, removed = cardinality(gone),
            kept_seqs = kept, last_error = NULL
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key AND t.from_seq = p_from_seq;
    SELECT array_agg(e.event_id) INTO events FROM strandline.flush_event e
        WHERE e.shard_key = p_shard_key AND e.session_key = p_session_key AND e.from_seq <= step.through_seq
          AND e.through_seq >= step.from_seq AND @is_event_removed(e, p_shard_key);
    UPDATE strandline.dead_letter d SET dropped_at = moment
        WHERE d.shard_key = p_shard_key AND d.session_key = p_session_key AND d.event_id = ANY (events)
          AND d.dropped_at IS NULL;
    @note_change(p_shard_key, 'pieces');
    DELETE FROM strandline.chunk c
        WHERE c.shard_key = p_shard_key AND c.session_key = p_session_key AND c.from_seq = ANY (gone)
          AND c.generation_id = ANY (ARRAY(SELECT g.generation_id FROM strandline.generation g));
    IF step.forget_facts THEN
        touched := strandline.forget_facts_v1(p_shard_key, events);
        DELETE FROM strandline.fact_candidate c WHERE c.shard_key = p_shard_key AND c.event_id = ANY (events)
            AND c.generation_id = ANY (ARRAY(SELECT g.generation_id FROM strandline.generation g));
        -- A merge sees what all events of the owner gave, so any of its answers may quote these (as in reset_v1).
        DELETE FROM strandline.answer a USING strandline.batch b
            WHERE b.shard_key = p_shard_key AND b.scope_key = p_shard_key
              AND a.shard_key = p_shard_key AND a.batch_id = b.batch_id;
    END IF;
    DELETE FROM strandline.answer a
        WHERE a.shard_key = p_shard_key AND a.batch_id IN (
            SELECT b.batch_id FROM strandline.batch b
            WHERE b.shard_key = p_shard_key AND b.batch_id IN (
                SELECT r.batch_id FROM strandline.receipt r
                WHERE r.shard_key = p_shard_key AND r.event_id = ANY (events))
              AND NOT EXISTS (
                SELECT FROM strandline.flush_event e
                WHERE e.shard_key = p_shard_key AND e.event_id = ANY (b.event_ids)
                  AND NOT @is_event_removed(e, p_shard_key)));
    FOR lane IN
        SELECT DISTINCT f.scope_key, f.generation_id FROM strandline.block_state f
        WHERE f.shard_key = p_shard_key AND f.scope_key IN (p_session_key, p_shard_key)
    LOOP
        base := NULL;
        FOR state IN
            SELECT f.ordinal, b.event_ids FROM strandline.block_state f
            JOIN strandline.batch b ON b.shard_key = p_shard_key AND b.batch_id = f.batch_id
            WHERE f.shard_key = p_shard_key AND f.scope_key = lane.scope_key AND f.generation_id = lane.generation_id
            ORDER BY f.ordinal
        LOOP
            EXIT WHEN EXISTS (
                SELECT FROM strandline.flush_event e
                WHERE e.shard_key = p_shard_key AND e.event_id = ANY (state.event_ids)
                  AND NOT @is_event_removed(e, p_shard_key));
            base := state.ordinal;
        END LOOP;
        DELETE FROM strandline.block_state f
            WHERE f.shard_key = p_shard_key AND f.scope_key = lane.scope_key AND f.generation_id = lane.generation_id
              AND (f.ordinal < base OR step.forget_facts AND f.ordinal = base AND f.scope_key = p_session_key);
    END LOOP;
    DELETE FROM strandline.message m
        WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq = ANY (gone);

    SELECT * INTO s FROM strandline.session t
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key FOR NO KEY UPDATE;
    IF s.incarnation = step.incarnation AND step.through_seq >= s.window_from THEN
        -- The window begins behind the removed messages.
        SELECT coalesce(sum(m.tokens), 0), count(*), coalesce(sum(m.bytes), 0)
            INTO s.window_tokens, s.window_messages, s.window_bytes FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq > step.through_seq
              AND m.seq < s.next_seq;
        UPDATE strandline.session t SET window_from = step.through_seq + 1, window_tokens = s.window_tokens,
                window_messages = s.window_messages, window_bytes = s.window_bytes, replan_at_tokens = 0, question_seqs = NULL
            WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key;
    END IF;
    status := 'removed';
    RETURN NEXT;
END
$function$;
