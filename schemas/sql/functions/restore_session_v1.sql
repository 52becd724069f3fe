-- restore_session_v1: put archived messages into a session of their own, as they were stored; one range of them.
--
-- Messages keep their numbers, ids and times.  The session has the policy of the one that they are from (p_policy), but
-- feeds no pipeline, since what they gave is kept; each range is an event without work.  Numbers that no message has count as
-- popped.  A range that is there already stays: an attempt can be repeated.
-- p_event_id: of the range's event; p_before_id: of that of the range before (NULL: there is none), by which a session is
-- known that earlier ranges were brought back to.  Any other session that exists holds something else.
-- p_rows: the messages, as the archive holds them, of the session p_old_key.
-- status: 'ok'; 'taken' (the session holds something else); 'erased' (the owner or the session was erased).
CREATE FUNCTION strandline.restore_session_v1(
    p_shard_key uuid, p_session_key uuid, p_old_key uuid, p_policy jsonb, p_event_id uuid, p_before_id uuid,
    p_from_seq bigint, p_through_seq bigint, p_rows json
) RETURNS TABLE (status text, messages integer)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    n strandline.session%ROWTYPE;
    life CONSTANT uuid := gen_random_uuid();
    is_new boolean;
    relabel CONSTANT bigint := @session_number(p_old_key) # @session_number(p_session_key);
    moment CONSTANT timestamptz := clock_timestamp();
BEGIN
    messages := 0;
    IF strandline.look_at_fence_v1(p_shard_key, p_session_key) IS NOT NULL THEN
        status := 'erased';
        RETURN NEXT;
        RETURN;
    END IF;
    INSERT INTO strandline.session (
            shard_key, session_key, incarnation, next_seq, log_start_seq, pinned_through, window_from,
            flushed_through, namespace, session_id, user_id, token_limit, flush_at_tokens, token_flush_size,
            max_window_messages, max_window_bytes, message_flush_size, deliver, time_zone, tokenizer, pipelines,
            max_facts, last_put_at, first_data_key)
        SELECT p_shard_key, p_session_key, life, p_from_seq, p_from_seq, p_from_seq - 1, p_from_seq,
            p_from_seq - 1, s.namespace, s.session_id, s.user_id, s.token_limit, s.flush_at_tokens,
            s.token_flush_size, s.max_window_messages, s.max_window_bytes, s.message_flush_size, s.deliver,
            s.time_zone, s.tokenizer, '{}', s.max_facts, moment, CASE WHEN EXISTS (
                SELECT FROM strandline.data_key k WHERE k.shard_key = p_shard_key)
            THEN @first_data_key(p_shard_key) ELSE 0 END
        FROM jsonb_to_record(p_policy) AS s (
            namespace text, session_id text, user_id text, token_limit integer, flush_at_tokens integer,
            token_flush_size integer, max_window_messages integer, max_window_bytes integer,
            message_flush_size integer, deliver text, time_zone text, tokenizer text, max_facts integer)
        ON CONFLICT DO NOTHING;
    is_new := FOUND;
    SELECT t.* INTO n FROM strandline.session t
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key FOR NO KEY UPDATE;
    status := CASE
        WHEN EXISTS (
            SELECT FROM strandline.flush_event e WHERE e.shard_key = p_shard_key AND e.event_id = p_event_id) THEN 'ok'
        WHEN NOT is_new AND NOT EXISTS (
            SELECT FROM strandline.flush_event e WHERE e.shard_key = p_shard_key AND e.event_id = p_before_id)
            OR n.pipelines <> '{}' OR n.next_seq <> n.flushed_through + 1 OR n.next_seq > p_from_seq THEN 'taken'
        END;
    IF status IS NOT NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    INSERT INTO strandline.message (
            shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest, envelope, metadata, calls,
            answers, created_at, labels)
        SELECT p_shard_key, p_session_key, m.seq, n.incarnation, m.id, m.role, m.tokens, m.bytes,
            decode(m.digest, 'hex'), m.envelope::json, m.metadata::json, m.calls::json, m.answers::json, m.created_at,
            CASE WHEN m.labels IS NOT NULL THEN ARRAY(
                SELECT label # relabel FROM unnest(m.labels) AS labelled (label)) END
        FROM json_to_recordset(p_rows) AS m (
            seq bigint, id text, role text, tokens integer, bytes integer, digest text, envelope text, metadata text,
            calls text, answers text, created_at timestamptz, labels bigint[]);
    GET DIAGNOSTICS messages = ROW_COUNT;
    INSERT INTO strandline.popped (shard_key, session_key, seq, pop_id)
        SELECT p_shard_key, p_session_key, gap.seq, p_event_id
        FROM generate_series(n.next_seq, p_through_seq) AS gap (seq)
        WHERE NOT EXISTS (
            SELECT FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq = gap.seq);
    INSERT INTO strandline.flush_event (
            shard_key, session_key, from_seq, through_seq, event_id, incarnation, cause, message_count, tokens, version)
        SELECT p_shard_key, p_session_key, n.next_seq, p_through_seq, p_event_id, n.incarnation, 'import', count(*),
            coalesce(sum(m.tokens), 0), 1
        FROM strandline.message m
        WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq BETWEEN n.next_seq AND p_through_seq;
    UPDATE strandline.session t SET next_seq = p_through_seq + 1, flushed_through = p_through_seq,
            window_from = p_through_seq + 1, last_put_at = moment
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key;
    status := 'ok';
    RETURN NEXT;
END
$function$;
