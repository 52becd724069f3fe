-- fork_v1: begin another session of the same owner with the messages of one, up to p_through_seq (NULL: all).
--
-- Messages keep their numbers, ids and times.  Events that lie before the cut are copied, and count as applied where
-- what they gave is there: facts, and the states of blocks that the owner's sessions share, belong to the owner
-- already, or will (release_forks_v1); chunks are copied, and the newest state of each block of the session that lies
-- before the cut, unless it goes on from an earlier life.  The rest is due.  What a cut event delivered is in the window
-- of the new session, which delivers it again.  It shares with no scope.
-- Each event has a batch of its own, so that a correction of the fork gives up what it concerns and nothing else; only
-- the events of a copied state have one together, since that state is the only one there is of them.
-- The source's row is held, so that no correction or flush comes between.
--
-- p_act: the act for the audit trail (append_act_v1), NULL for none.
-- status: 'ok'; 'missing' (no such message); 'taken' (the new session was put to); 'erased' (the owner or the new
-- session was erased).  No row if there is no such session.
CREATE FUNCTION strandline.fork_v1(
    p_shard_key uuid, p_session_key uuid, p_new_key uuid, p_session_id text, p_through_seq bigint,
    p_act jsonb DEFAULT NULL
) RETURNS TABLE (status text, through_seq bigint, messages bigint)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    s strandline.session%ROWTYPE;
    life CONSTANT uuid := gen_random_uuid();
    last_seq bigint;
    old_window_from bigint;
    derived record;
    state_batch uuid;
    moment timestamptz;
    -- From labels of the one session to those of the other: both hold a number of the session (values/labels.py).
    relabel CONSTANT bigint := @session_number(p_session_key) # @session_number(p_new_key);
BEGIN
    -- First of all, since who sets a fence waits for sessions.
    IF strandline.look_at_fence_v1(p_shard_key, p_new_key) IS NOT NULL THEN
        status := 'erased';
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT t.* INTO s FROM strandline.session t
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    moment := clock_timestamp();
    last_seq := coalesce(p_through_seq, s.next_seq - 1);
    through_seq := last_seq;
    messages := 0;
    status := CASE
        WHEN last_seq < s.log_start_seq OR last_seq >= s.next_seq THEN 'missing'
        WHEN @is_expired(s, p_shard_key, p_session_key) THEN 'missing'
        WHEN EXISTS (
            SELECT FROM strandline.session t WHERE t.shard_key = p_shard_key AND t.session_key = p_new_key
            UNION ALL SELECT FROM strandline.message m WHERE m.shard_key = p_shard_key AND m.session_key = p_new_key)
            THEN 'taken'
        ELSE 'ok' END;
    IF status <> 'ok' THEN
        RETURN NEXT;
        RETURN;
    END IF;
    old_window_from := s.window_from;
    s.pinned_through := least(s.pinned_through, last_seq);
    SELECT coalesce(max(e.through_seq), s.pinned_through) INTO s.flushed_through FROM strandline.flush_event e
        WHERE e.shard_key = p_shard_key AND e.session_key = p_session_key AND e.incarnation = s.incarnation
          AND e.through_seq <= last_seq;
    s.window_from := least(s.window_from, s.flushed_through + 1);
    INSERT INTO strandline.session (
            shard_key, session_key, incarnation, next_seq, log_start_seq, pinned_through, window_from,
            flushed_through, namespace, session_id, user_id, token_limit, flush_at_tokens, token_flush_size,
            max_window_messages, max_window_bytes, message_flush_size, deliver, time_zone, idle_seconds, tokenizer, pipelines,
            max_facts, prompts, last_put_at, watched_until, first_data_key)
        VALUES (
            p_shard_key, p_new_key, life, last_seq + 1, s.log_start_seq, s.pinned_through, s.window_from,
            s.flushed_through, s.namespace, p_session_id, s.user_id, s.token_limit, s.flush_at_tokens,
            s.token_flush_size, s.max_window_messages, s.max_window_bytes, s.message_flush_size, s.deliver,
            s.time_zone, s.idle_seconds, s.tokenizer, s.pipelines, s.max_facts,
            (SELECT array_agg(kept ORDER BY kept) FROM unnest(s.prompts) AS replaced (kept) WHERE kept <= last_seq), moment,
            moment + make_interval(secs => s.idle_seconds), s.first_data_key);
    INSERT INTO strandline.watch (shard_key, session_key, cause, check_at)
        SELECT p_shard_key, p_new_key, 'idle', moment + make_interval(secs => s.idle_seconds)
        WHERE s.idle_seconds IS NOT NULL;
    INSERT INTO strandline.message (
            shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest, envelope, metadata, calls,
            answers, created_at, labels)
        SELECT p_shard_key, p_new_key, m.seq, life, m.id, m.role, m.tokens, m.bytes, m.digest, m.envelope,
            m.metadata, m.calls, m.answers, m.created_at, CASE WHEN m.labels IS NOT NULL THEN ARRAY(
                SELECT label # relabel FROM unnest(m.labels) AS labelled (label)) END
        FROM strandline.message m
        WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key
          AND m.seq BETWEEN s.log_start_seq AND last_seq;
    GET DIAGNOSTICS messages = ROW_COUNT;
    INSERT INTO strandline.popped (shard_key, session_key, seq, pop_id, popped_at)
        SELECT p_shard_key, p_new_key, p.seq, p.pop_id, p.popped_at FROM strandline.popped p
        WHERE p.shard_key = p_shard_key AND p.session_key = p_session_key
          AND p.seq BETWEEN s.log_start_seq AND last_seq;
    -- What retention has removed from the source is not there either, and is kept as long.
    INSERT INTO strandline.retention_step (
            shard_key, session_key, from_seq, through_seq, step_id, incarnation, cause, state, archive, object_name,
            object_digest, rows_digest, messages, removed, kept_seqs, planned_at, archived_at, read_back_at, removed_at)
        SELECT p_shard_key, p_new_key, g.from_seq, least(g.through_seq, last_seq), g.step_id, life, g.cause, g.state,
            g.archive, g.object_name, g.object_digest, g.rows_digest, g.messages, least(g.through_seq, last_seq) - g.from_seq + 1 - (
                SELECT count(*) FROM strandline.message m WHERE m.shard_key = p_shard_key AND m.session_key = p_new_key
                  AND m.seq BETWEEN g.from_seq AND least(g.through_seq, last_seq)) - (
                SELECT count(*) FROM strandline.popped p WHERE p.shard_key = p_shard_key AND p.session_key = p_new_key
                  AND p.seq BETWEEN g.from_seq AND least(g.through_seq, last_seq)),
            ARRAY(SELECT k.seq FROM unnest(g.kept_seqs) AS k (seq) WHERE k.seq <= last_seq), g.planned_at, g.archived_at,
            g.read_back_at, g.removed_at
        FROM strandline.retention_step g
        WHERE g.shard_key = p_shard_key AND g.session_key = p_session_key AND g.state = 'removed'
          AND g.from_seq BETWEEN s.log_start_seq AND last_seq;
    INSERT INTO strandline.session_retention_act (
            shard_key, session_key, number, ttl_seconds, max_age_seconds, max_messages, forget_facts, archive, tightened,
            actor)
        SELECT p_shard_key, p_new_key, 1, a.ttl_seconds, a.max_age_seconds, a.max_messages, a.forget_facts, a.archive,
            a.tightened, a.actor
        FROM strandline.session_retention_act a
        WHERE a.shard_key = p_shard_key AND a.session_key = p_session_key ORDER BY a.number DESC LIMIT 1;
    INSERT INTO strandline.session_run (
            shard_key, session_key, run_id, number, status, agent_id, team_id, seqs, digests, created_at, changed_at)
        SELECT p_shard_key, p_new_key, r.run_id, r.number, r.status, r.agent_id, r.team_id, taken.seqs, taken.digests,
            r.created_at, r.changed_at
        FROM strandline.session_run r
        CROSS JOIN LATERAL (
            SELECT array_agg(o.seq ORDER BY o.place) AS seqs, array_agg(o.digest ORDER BY o.place) AS digests
            FROM unnest(r.seqs, r.digests) WITH ORDINALITY AS o (seq, digest, place)
            WHERE o.seq <= last_seq) AS taken
        WHERE r.shard_key = p_shard_key AND r.session_key = p_session_key AND taken.seqs IS NOT NULL;
    INSERT INTO strandline.flush_event (
            shard_key, session_key, from_seq, through_seq, event_id, incarnation, cause, message_count, tokens,
            version, created_at)
        SELECT p_shard_key, p_new_key, e.from_seq, e.through_seq, md5(e.event_id::text || p_new_key::text)::uuid,
            life, e.cause, present.messages, present.tokens, e.version, e.created_at
        FROM strandline.flush_event e
        CROSS JOIN LATERAL (
            SELECT count(*) AS messages, coalesce(sum(m.tokens), 0) AS tokens FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key
              AND m.seq BETWEEN e.from_seq AND e.through_seq) AS present
        WHERE e.shard_key = p_shard_key AND e.session_key = p_session_key AND e.incarnation = s.incarnation
          AND e.through_seq <= last_seq;
    -- What a person took away is recognised in the copies too.
    UPDATE strandline.fact_event e SET traces = e.traces || copied.traces
        FROM (
            SELECT o.number, jsonb_agg(t.trace || jsonb_build_object('session_key', p_new_key)) AS traces
            FROM strandline.fact_event o CROSS JOIN LATERAL jsonb_array_elements(o.traces) AS t (trace)
            WHERE o.shard_key = p_shard_key AND t.trace->>'session_key' = p_session_key::text
              AND (t.trace->'seqs'->>0)::bigint <= last_seq
            GROUP BY o.number) AS copied
        WHERE e.shard_key = p_shard_key AND e.number = copied.number;
    IF last_seq < old_window_from THEN
        s.window_from := least(
            coalesce(strandline.find_window_v1(p_shard_key, p_new_key), s.window_from), s.flushed_through + 1);
    END IF;

    FOR derived IN
        SELECT g.generation_id, g.pipeline, g.entry_stage, g.entry_scope, EXISTS (
                SELECT FROM @serving(p_shard_key, ARRAY[g.pipeline]) v WHERE v.generation_id = g.generation_id
            ) AS is_live
        FROM strandline.generation g
        WHERE g.state <> 'retired' AND g.pipeline = ANY (s.pipelines) ORDER BY g.generation_id
    LOOP
        state_batch := gen_random_uuid();
        IF derived.pipeline = 'vectors' THEN
            @note_change(p_shard_key, 'pieces');
        END IF;
        -- In one statement: what counts as applied and what is copied are of one moment, whatever a replay in place takes
        -- from the source in the meantime.
        WITH twins AS MATERIALIZED (
            SELECT n.*, e.event_id AS source_id FROM strandline.flush_event e
            JOIN strandline.flush_event n ON n.shard_key = p_shard_key AND n.session_key = p_new_key
                AND n.from_seq = e.from_seq
            WHERE e.shard_key = p_shard_key AND e.session_key = p_session_key
        ), newest AS MATERIALIZED (
            SELECT b.through_seq, b.state FROM strandline.block_state b
            WHERE b.shard_key = p_shard_key AND b.scope_key = p_session_key
              AND b.generation_id = derived.generation_id AND b.through_seq > s.pinned_through
              AND b.through_seq <= s.flushed_through
              -- One that goes on from an earlier life, which may be of the same batch, is not that of these messages.
              AND NOT EXISTS (
                SELECT FROM strandline.flush_event o
                JOIN strandline.receipt r ON r.shard_key = p_shard_key AND r.event_id = o.event_id
                    AND r.generation_id = derived.generation_id AND r.stage = derived.entry_stage
                    AND r.outcome = 'applied'
                WHERE o.shard_key = p_shard_key AND o.session_key = p_session_key AND o.incarnation <> s.incarnation)
            ORDER BY b.through_seq DESC, b.ordinal DESC LIMIT 1
        ), done AS MATERIALIZED (
            SELECT t.*, CASE
                WHEN derived.pipeline IN ('facts', 'vectors') OR derived.entry_scope = 'owner'
                    THEN md5(state_batch::text || t.event_id::text)::uuid
                ELSE state_batch END AS new_batch
            FROM twins t WHERE CASE
                WHEN derived.pipeline = 'facts' OR derived.entry_scope = 'owner' THEN true
                WHEN derived.pipeline = 'vectors' THEN EXISTS (
                    SELECT FROM strandline.receipt r WHERE r.shard_key = p_shard_key AND r.event_id = t.source_id
                      AND r.generation_id = derived.generation_id AND r.stage = derived.entry_stage
                      AND r.outcome = 'applied')
                ELSE t.through_seq <= (SELECT f.through_seq FROM newest f) END
        ), applied AS (
            INSERT INTO strandline.batch (
                shard_key, batch_id, scope_key, generation_id, stage, state, lease_epoch, event_ids, closed_at)
            SELECT p_shard_key, d.new_batch, CASE derived.entry_scope WHEN 'owner' THEN p_shard_key ELSE p_new_key END,
                derived.generation_id, derived.entry_stage, 'applied', 0, array_agg(d.event_id ORDER BY d.from_seq),
                moment
            FROM done d GROUP BY d.new_batch
        ), receipts AS (
            INSERT INTO strandline.receipt (shard_key, event_id, generation_id, stage, outcome, batch_id)
            SELECT p_shard_key, d.event_id, derived.generation_id, stages.stage, 'applied', d.new_batch
            FROM done d
            CROSS JOIN (
                SELECT derived.entry_stage AS stage
                UNION ALL SELECT 'merge' WHERE derived.pipeline = 'facts') AS stages
        ), pieces AS (
            INSERT INTO strandline.chunk (
                shard_key, generation_id, session_key, from_seq, piece, through_seq, event_id, batch_id, length,
                lexemes, embedding, role, speaker, tone, said_on)
            SELECT p_shard_key, c.generation_id, p_new_key, c.from_seq, c.piece, c.through_seq, d.event_id, d.new_batch,
                c.length, c.lexemes, c.embedding, c.role, c.speaker, c.tone, c.said_on
            FROM done d
            JOIN strandline.chunk c ON c.shard_key = p_shard_key AND c.generation_id = derived.generation_id
                AND c.session_key = p_session_key AND c.from_seq BETWEEN d.from_seq AND d.through_seq
            WHERE derived.pipeline = 'vectors'
        ), states AS (
            INSERT INTO strandline.block_state (
                shard_key, scope_key, generation_id, ordinal, through_seq, state, batch_id)
            SELECT p_shard_key, p_new_key, derived.generation_id, 1, f.through_seq, f.state, state_batch FROM newest f
        )
        INSERT INTO strandline.due (shard_key, session_key, generation_id, stage, from_seq, through_seq,
            scope_key, event_id, incarnation, tokens, namespace, precedence, created_at, ring_at)
        SELECT p_shard_key, p_new_key, derived.generation_id, derived.entry_stage, t.from_seq, t.through_seq,
            CASE derived.entry_scope WHEN 'owner' THEN p_shard_key ELSE p_new_key END, t.event_id, life, t.tokens,
            s.namespace, CASE WHEN derived.is_live AND t.cause <> 'import' THEN 0 ELSE 1 END, t.created_at,
            CASE WHEN derived.is_live THEN moment ELSE 'infinity' END
        FROM twins t WHERE t.event_id NOT IN (SELECT d.event_id FROM done d);
    END LOOP;

    s.question_seqs := CASE WHEN s.window_from > s.log_start_seq THEN
        strandline.question_v1(p_shard_key, p_new_key, s.window_from, NULL) END;
    UPDATE strandline.session t SET window_from = s.window_from,
            question_seqs = s.question_seqs, window_tokens = shown.tokens,
            window_messages = shown.messages, window_bytes = shown.bytes, pinned_tokens = shown.pinned_tokens
        FROM (
            SELECT coalesce(sum(m.tokens) FILTER (WHERE m.seq >= s.window_from), 0) AS tokens,
                count(*) FILTER (WHERE m.seq >= s.window_from) AS messages,
                coalesce(sum(m.bytes) FILTER (WHERE m.seq >= s.window_from), 0) AS bytes,
                coalesce(sum(m.tokens) FILTER (WHERE m.seq <= s.pinned_through), 0) AS pinned_tokens
            FROM strandline.message m WHERE m.shard_key = p_shard_key AND m.session_key = p_new_key) AS shown
        WHERE t.shard_key = p_shard_key AND t.session_key = p_new_key;
    IF p_act IS NOT NULL THEN
        PERFORM strandline.append_act_v1(
            p_shard_key, true, s.namespace, s.user_id, p_session_key,
            p_act || jsonb_build_object('seq', s.log_start_seq, 'count', messages), false);
    END IF;
    RETURN NEXT;
END
$function$;
