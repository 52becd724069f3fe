-- put_v1: accept messages into one session, in one statement.
--
-- Locks the session row first, and only then looks up the ids: each statement of a VOLATILE function
-- sees what was committed before it began, so a retry that waited on the lock finds what its first
-- attempt wrote.  (As one CTE this is as fast and wrong: its snapshot is from before the wait.)
--
-- status: 'ok'; 'unclaimed' (no such session yet, and p_claimed is false); 'conflict' (detail is the
-- id that was used with different content); 'unknown_pipeline' (detail names the pipelines that are not registered);
-- 'erased' (detail is the erasure that keeps the owner or the session away); 'sealed' (the session's content is to be
-- sealed, and this is not, or with a key from before the owner was erased).
-- p_data_key: the number of the owner's data key that it is sealed with; 0: it is in clear.
-- 'full' (detail is the bound of the namespace that is reached; messages that are there already are found all the same).
-- With any other status than 'ok', nothing was stored.
-- to_flush: the input of the flush plan (window_v1) if the put crossed one of the session's marks (tokens, messages,
-- bytes), or ended a turn of a session that delivers each turn; else NULL.
-- p_session ->> 'replaces_prompt': the first message takes the place of the head in reads; 'important': as a message that
-- retention keeps, since what it replaced is not to come back.
-- p_act: the act for the audit trail (append_act_v1), NULL for none; is_recorded: it was appended.
CREATE FUNCTION strandline.put_v1(
    p_shard_key uuid,
    p_session_key uuid,
    p_claimed boolean,
    p_session jsonb,
    p_ids text[],
    p_roles text[],
    p_tokens integer[],
    p_bytes integer[],
    p_digests bytea[],
    p_envelopes text[],
    p_metadata text[],
    p_created_at timestamptz[],
    p_calls text[],
    p_answers text[],
    p_labels text[],
    p_data_key integer,
    p_act jsonb DEFAULT NULL
) RETURNS TABLE (status text, detail text, seqs bigint[], to_flush text, is_recorded boolean)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    s strandline.session%ROWTYPE;
    accepted_at timestamptz;
    known integer;
    added integer;
    crossed boolean;
    is_to_flush boolean;
    head integer := 0;
    head_tokens bigint := 0;
    head_bytes bigint := 0;
    all_tokens bigint;
    all_bytes bigint;
    first_data_key integer;
    first_seq bigint;
    -- First of all: who counts what a namespace has waits for no session.
    full_of CONSTANT text := strandline.look_at_bounds_v1(p_session ->> 'namespace');
BEGIN
    SELECT * INTO s FROM strandline.session t
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        -- First of all, so that a refused put claims nothing.
        SELECT string_agg(wanted.name, ', ') INTO detail
            FROM jsonb_array_elements_text(p_session -> 'pipelines') AS wanted (name)
            WHERE NOT EXISTS (
                SELECT FROM strandline.generation g WHERE g.pipeline = wanted.name AND g.state = 'serving');
        IF detail IS NOT NULL THEN
            status := 'unknown_pipeline';
            RETURN NEXT;
            RETURN;
        END IF;
        IF NOT p_claimed THEN
            status := 'unclaimed';
            RETURN NEXT;
            RETURN;
        END IF;
        detail := strandline.look_at_fence_v1(p_shard_key, p_session_key);
        IF detail IS NOT NULL THEN
            status := 'erased';
            RETURN NEXT;
            RETURN;
        END IF;
        -- What the claim said may have changed since; once there is a row, it says it itself.
        first_data_key := CASE WHEN p_data_key > 0 OR EXISTS (
                SELECT FROM strandline.encryption e WHERE e.namespace = p_session ->> 'namespace')
            THEN @first_data_key(p_shard_key) ELSE 0 END;
        IF p_data_key < first_data_key THEN
            status := 'sealed';
            RETURN NEXT;
            RETURN;
        END IF;
        -- After what there is of a session whose row was lost: no read shows it, and `verify` names it.
        first_seq := 1 + coalesce(greatest((
                SELECT max(m.seq) FROM strandline.message m
                WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key), (
                SELECT max(o.seq) FROM strandline.popped o
                WHERE o.shard_key = p_shard_key AND o.session_key = p_session_key)), 0);
        INSERT INTO strandline.session (
            shard_key, session_key, namespace, session_id, user_id, token_limit, flush_at_tokens,
            token_flush_size, max_window_messages, max_window_bytes, message_flush_size, idle_seconds, tokenizer,
            pipelines, max_facts, shared_scope, shared_key, deliver, time_zone, first_data_key, next_seq, log_start_seq,
            pinned_through, window_from, flushed_through)
        SELECT p_shard_key, p_session_key, n.namespace, n.session_id, n.user_id, n.token_limit,
            n.flush_at_tokens, n.token_flush_size, n.max_window_messages, n.max_window_bytes,
            n.message_flush_size, n.idle_seconds, n.tokenizer, n.pipelines, n.max_facts, n.shared_scope,
            n.shared_key, n.deliver, coalesce(n.time_zone, @owners_zone(p_shard_key)), first_data_key, first_seq, first_seq,
            first_seq - 1, first_seq, first_seq - 1
        FROM jsonb_to_record(p_session) AS n (
            namespace text, session_id text, user_id text, token_limit integer, flush_at_tokens integer,
            token_flush_size integer, max_window_messages integer, max_window_bytes integer,
            message_flush_size integer, idle_seconds integer, tokenizer text, pipelines text[], max_facts integer,
            shared_scope text, shared_key uuid, deliver text, time_zone text)
        ON CONFLICT DO NOTHING;
        SELECT * INTO s FROM strandline.session t
            WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key FOR NO KEY UPDATE;
    END IF;
    IF @is_expired(s, p_shard_key, p_session_key) THEN
        -- It ended before this put: a new life begins, as after a reset, and the ids are free.
        PERFORM strandline.expire_v1(p_shard_key, p_session_key);
        SELECT * INTO s FROM strandline.session t
            WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key;
    END IF;
    accepted_at := clock_timestamp();
    IF p_session ->> 'replaces_prompt' = 'important' THEN
        p_labels := array_prepend(
            (coalesce(p_labels[1], '{}')::bigint[] || @session_number(p_session_key))::text, p_labels[2:]);
    END IF;
    IF p_data_key < s.first_data_key THEN
        status := 'sealed';
        RETURN NEXT;
        RETURN;
    END IF;

    status := 'ok';
    -- One message is by far the most common put, and without the set operations below it takes a third less time.
    IF cardinality(p_ids) = 1 THEN
        SELECT ARRAY[m.seq], CASE WHEN m.digest <> p_digests[1] THEN m.id END INTO seqs, detail
            FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.incarnation = s.incarnation AND m.id = p_ids[1];
        IF FOUND THEN
            status := CASE WHEN detail IS NULL THEN 'ok' ELSE 'conflict' END;
            RETURN NEXT;
            RETURN;
        END IF;
        IF full_of = 'bytes' THEN
            status := 'full';
            detail := full_of;
            RETURN NEXT;
            RETURN;
        END IF;
        INSERT INTO strandline.message (
            shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest, envelope, metadata,
            calls, answers, created_at, labels)
        VALUES (
            p_shard_key, p_session_key, s.next_seq, s.incarnation, p_ids[1], p_roles[1], p_tokens[1],
            p_bytes[1], p_digests[1], p_envelopes[1]::json, p_metadata[1]::json, p_calls[1]::json, p_answers[1]::json,
            coalesce(p_created_at[1], accepted_at), p_labels[1]::bigint[]);
        seqs := ARRAY[s.next_seq];
        added := 1;
        all_tokens := p_tokens[1];
        all_bytes := p_bytes[1];
        IF s.next_seq = s.pinned_through + 1 AND p_roles[1] IN ('system', 'developer') THEN
            head := 1;
            head_tokens := all_tokens;
            head_bytes := all_bytes;
        END IF;
    ELSE
        SELECT array_agg(m.seq ORDER BY given.place), count(m.seq),
               min(given.id) FILTER (WHERE m.digest <> given.digest)
            INTO seqs, known, detail
            FROM unnest(p_ids, p_digests) WITH ORDINALITY AS given (id, digest, place)
            LEFT JOIN LATERAL (
                -- The limit keeps this a look-up per id.
                SELECT k.seq, k.digest FROM strandline.message k
                WHERE k.shard_key = p_shard_key AND k.incarnation = s.incarnation AND k.id = given.id LIMIT 1
            ) AS m ON true;
        IF detail IS NOT NULL THEN
            status := 'conflict';
            RETURN NEXT;
            RETURN;
        END IF;
        added := cardinality(p_ids) - known;
        IF added > 0 AND full_of = 'bytes' THEN
            status := 'full';
            detail := full_of;
        END IF;
        IF added = 0 OR status = 'full' THEN
            RETURN NEXT;
            RETURN;
        END IF;

        WITH fresh AS (
            SELECT given.*, s.next_seq - 1 + row_number() OVER (ORDER BY given.place) AS seq
            FROM unnest(seqs, p_ids, p_roles, p_tokens, p_bytes, p_digests, p_envelopes, p_metadata,
                        p_created_at, p_calls, p_answers, p_labels) WITH ORDINALITY
                AS given (had, id, role, tokens, bytes, digest, envelope, metadata, created_at, calls, answers,
                    labels, place)
            WHERE given.had IS NULL
        ), stored AS (
            INSERT INTO strandline.message (
                shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest, envelope, metadata,
                calls, answers, created_at, labels)
            SELECT p_shard_key, p_session_key, f.seq, s.incarnation, f.id, f.role, f.tokens, f.bytes, f.digest,
                f.envelope::json, f.metadata::json, f.calls::json, f.answers::json,
                coalesce(f.created_at, accepted_at), f.labels::bigint[]
            FROM fresh f
        ), placed AS (
            -- Without a join: the planner does not know their sizes, and would compare all with all.
            SELECT f.place, f.seq FROM fresh f
            UNION ALL
            SELECT given.place, given.had FROM unnest(seqs) WITH ORDINALITY AS given (had, place)
            WHERE given.had IS NOT NULL
        ), opening AS (
            -- Only a session that so far holds nothing but its head can have that head grow.
            SELECT count(*) AS messages, coalesce(sum(f.tokens), 0) AS tokens,
                coalesce(sum(f.bytes), 0) AS bytes FROM fresh f
            WHERE s.next_seq = s.pinned_through + 1
              AND NOT EXISTS (
                SELECT FROM fresh e WHERE e.seq <= f.seq AND e.role NOT IN ('system', 'developer'))
        )
        SELECT (SELECT array_agg(p.seq ORDER BY p.place) FROM placed p),
               (SELECT sum(f.tokens) FROM fresh f), (SELECT sum(f.bytes) FROM fresh f), o.messages, o.tokens,
               o.bytes
            INTO seqs, all_tokens, all_bytes, head, head_tokens, head_bytes
            FROM opening o;
    END IF;

    -- A head that no read could hold ends here: what follows is of the window.
    IF head > 0 AND greatest(s.max_window_bytes, @max_shown_bytes()) < head_bytes + (
        SELECT coalesce(sum(m.bytes), 0) FROM strandline.message m
        WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key
          AND m.seq BETWEEN s.log_start_seq AND s.pinned_through) THEN
        head := 0;
        head_tokens := 0;
        head_bytes := 0;
    END IF;
    s.next_seq := s.next_seq + added;
    s.window_tokens := s.window_tokens + all_tokens - head_tokens;
    s.window_messages := s.window_messages + added - head;
    s.window_bytes := s.window_bytes + all_bytes - head_bytes;
    IF head > 0 THEN
        s.pinned_through := s.pinned_through + head;
        s.pinned_tokens := s.pinned_tokens + head_tokens;
        s.window_from := s.pinned_through + 1;
        s.flushed_through := s.pinned_through;
    END IF;
    -- Those of the window, which no read shows there; and so many can be taken back before the head stands again.
    IF p_session ? 'replaces_prompt' AND seqs[1] > s.pinned_through THEN
        s.prompts := ARRAY(
            SELECT replaced.seq FROM unnest(s.prompts) WITH ORDINALITY AS replaced (seq, place)
            WHERE replaced.seq >= s.window_from OR replaced.place > cardinality(s.prompts) - 15
            ORDER BY replaced.place) || seqs[1];
    END IF;
    -- A new turn, or the result that a call waited for, makes new places to cut at.
    IF p_roles && ARRAY['user', 'tool'] THEN
        s.replan_at_tokens := 0;
    END IF;
    -- Each message counts some tokens, so what cannot be flushed is planned again in time by tokens alone.
    crossed := s.pinned_tokens + s.window_tokens >= s.replan_at_tokens
        AND (s.pinned_tokens + s.window_tokens > s.flush_at_tokens
            OR s.window_messages > s.max_window_messages OR s.window_bytes > s.max_window_bytes);
    is_to_flush := crossed OR @ends_turn(s, p_roles[cardinality(p_roles)], p_calls[cardinality(p_calls)]);

    IF s.idle_seconds IS NOT NULL AND (s.watched_until IS NULL OR s.watched_until < accepted_at) THEN
        s.watched_until := accepted_at + make_interval(secs => s.idle_seconds);
        INSERT INTO strandline.watch (shard_key, session_key, cause, check_at)
            VALUES (p_shard_key, p_session_key, 'idle', s.watched_until);
    END IF;
    IF is_to_flush AND (s.overdue_at IS NULL OR s.overdue_at < accepted_at + interval '1 second') THEN
        -- The caller flushes at once; this is for the case that it dies before it does.  A watch that
        -- is planned already will do, if this put is sure to be seen by then.
        s.overdue_at := accepted_at + interval '4 seconds';
        INSERT INTO strandline.watch (shard_key, session_key, cause, check_at)
            VALUES (p_shard_key, p_session_key, 'overdue', s.overdue_at);
    END IF;
    UPDATE strandline.session t SET
            next_seq = s.next_seq, window_tokens = s.window_tokens, window_messages = s.window_messages,
            window_bytes = s.window_bytes, pinned_through = s.pinned_through, pinned_tokens = s.pinned_tokens, window_from = s.window_from,
            flushed_through = s.flushed_through, replan_at_tokens = s.replan_at_tokens,
            watched_until = s.watched_until, overdue_at = s.overdue_at, last_put_at = accepted_at, prompts = s.prompts
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key;
    IF p_act IS NOT NULL THEN
        is_recorded := strandline.append_act_v1(
            p_shard_key, true, s.namespace, s.user_id, p_session_key,
            p_act || jsonb_build_object('seq', s.next_seq - added, 'count', added), false);
    END IF;
    IF is_to_flush THEN
        to_flush := strandline.window_v1(p_shard_key, p_session_key);
    END IF;
    RETURN NEXT;
END
$function$;
