-- correct_v1: take back a session's messages from p_from_seq on ('rewind'), or give one other content ('replace').
--
-- p_correction_id names the correction, so that it can be sent again: the same one again changes nothing.  p_content is
-- a digest of what a replacement was asked for, by which a correction with the same id is known to be the same.
-- p_newest, p_corrections: only if that is the newest message, and the number of corrections (NULL: whatever is).
-- p_expected is the digest of the message that the replacement was made from; the other values are the new row's.
-- Where something superseded was delivered, the lanes of the session and its owner are locked first and taken from
-- their holders (take_lanes_v1), and what was derived is given up (rederive_v1); the session row is locked last.
--
-- status: 'ok'; 'repeated' (it was made before: the row tells which it is); 'conflict' (the id is that of another
-- correction); 'again' (a flush delivered something in the meantime: nothing was done, to be called again); 'changed' (the
-- message has other content, or another one is the newest, or a correction came between); 'missing' (no such message); 'head' (it is in the
-- pinned head, behind which something was delivered); 'removed' (retention has removed messages from there on); 'full' (it
-- would add to a namespace that has as many bytes as it may); 'large' (or to what each read holds).  No row if there is no such session.  Where nothing was done,
-- the other values mean nothing.
-- is_shared: the session has copies in a scope, of which the caller removes those that are no longer right
-- (clear_shared_v1).  p_act: the act for the audit trail (append_act_v1), NULL for none.  touched: the facts that have other words now, or are live again, as forget_facts_v1 returns them.
CREATE FUNCTION strandline.correct_v1(
    p_shard_key uuid,
    p_session_key uuid,
    p_correction_id uuid,
    p_kind text,
    p_from_seq bigint,
    p_newest bigint,
    p_corrections integer,
    p_content bytea,
    p_actor text,
    p_expected bytea,
    p_digest bytea,
    p_envelope text,
    p_tokens integer,
    p_bytes integer,
    p_act jsonb DEFAULT NULL
) RETURNS TABLE (
    status text, number integer, from_seq bigint, through_seq bigint, seqs bigint[], created_at timestamptz,
    is_shared boolean, touched uuid[])
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    s strandline.session%ROWTYPE;
    known strandline.correction%ROWTYPE;
    delivered_before bigint;
    is_delivered boolean;
    delivered bigint[];
    present bytea;
    present_bytes integer;
    full_of text;
    old strandline.message%ROWTYPE;
BEGIN
    SELECT t.* INTO s FROM strandline.session t
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key;
    -- As in reset_v1.
    IF NOT FOUND OR strandline.look_at_fence_v1(p_shard_key, p_session_key) IS NOT NULL THEN
        RETURN;
    END IF;
    IF p_kind = 'replace' THEN
        full_of := strandline.look_at_bounds_v1(s.namespace);
    END IF;
    delivered_before := s.flushed_through;
    number := s.corrections;
    from_seq := p_from_seq;
    through_seq := p_from_seq;
    seqs := '{}';
    touched := '{}';
    is_shared := s.shared_key IS NOT NULL;
    created_at := clock_timestamp();
    SELECT c.* INTO known FROM strandline.correction c
        WHERE c.shard_key = p_shard_key AND c.correction_id = p_correction_id;
    is_delivered := NOT FOUND AND EXISTS (
        SELECT FROM strandline.message m
        WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq > s.pinned_through
          AND m.seq >= p_from_seq AND m.seq <= s.flushed_through AND (p_kind = 'rewind' OR m.seq = p_from_seq));
    IF is_delivered THEN
        PERFORM strandline.take_lanes_v1(p_shard_key, p_session_key);
    END IF;
    SELECT t.* INTO s FROM strandline.session t
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key FOR NO KEY UPDATE;
    SELECT c.* INTO known FROM strandline.correction c
        WHERE c.shard_key = p_shard_key AND c.correction_id = p_correction_id;
    IF FOUND THEN
        status := CASE WHEN known.session_key = p_session_key AND known.kind = p_kind AND known.from_seq = p_from_seq
            AND known.digest IS NOT DISTINCT FROM p_content THEN 'repeated' ELSE 'conflict' END;
        number := known.number;
        from_seq := known.from_seq;
        through_seq := known.through_seq;
        created_at := known.created_at;
        SELECT coalesce(array_agg(u.seq ORDER BY u.seq), '{}') INTO seqs FROM strandline.superseded u
            WHERE u.shard_key = p_shard_key AND u.session_key = p_session_key AND u.number = known.number;
        RETURN NEXT;
        RETURN;
    END IF;
    IF s.flushed_through <> delivered_before THEN
        status := 'again';
        RETURN NEXT;
        RETURN;
    END IF;
    IF p_kind = 'replace' THEN
        SELECT m.digest, m.bytes INTO present, present_bytes FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq = p_from_seq
              AND m.seq >= s.log_start_seq;
    END IF;
    status := CASE
        WHEN p_from_seq < s.log_start_seq OR p_from_seq >= s.next_seq THEN 'missing'
        WHEN @is_expired(s, p_shard_key, p_session_key) THEN 'missing'
        WHEN (p_kind = 'rewind' OR present IS NULL) AND EXISTS (
            SELECT FROM strandline.retention_step g
            WHERE g.shard_key = p_shard_key AND g.session_key = p_session_key AND g.state = 'removed'
              AND g.from_seq >= s.log_start_seq AND g.through_seq >= p_from_seq) THEN 'removed'
        WHEN p_kind = 'replace' AND present IS NULL THEN 'missing'
        WHEN p_kind = 'replace' AND present <> p_expected THEN 'changed'
        WHEN p_newest IS NOT NULL AND p_newest IS DISTINCT FROM (
            SELECT max(m.seq) FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key) THEN 'changed'
        WHEN p_corrections <> s.corrections THEN 'changed'
        WHEN p_kind = 'rewind' AND p_from_seq <= s.pinned_through AND s.flushed_through > s.pinned_through THEN 'head'
        WHEN p_bytes > present_bytes AND full_of = 'bytes' THEN 'full'
        WHEN p_bytes > present_bytes AND (p_from_seq <= s.pinned_through OR p_from_seq >= s.window_from)
            AND greatest(s.max_window_bytes, @max_shown_bytes()) < p_bytes - present_bytes + (
                SELECT sum(m.bytes) FROM strandline.message m
                WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key
                  AND (m.seq BETWEEN s.log_start_seq AND s.pinned_through OR m.seq >= s.window_from)) THEN 'large'
        ELSE 'ok' END;
    IF status <> 'ok' THEN
        RETURN NEXT;
        RETURN;
    END IF;

    number := s.corrections + 1;
    IF p_kind = 'rewind' THEN
        through_seq := s.next_seq - 1;
        -- As in reset_v1: what was popped behind that place goes with the rest.
        UPDATE strandline.kept_response r SET body = NULL
            WHERE r.shard_key = p_shard_key AND r.session_key = p_session_key AND r.body IS NOT NULL;
    END IF;
    created_at := clock_timestamp();
    INSERT INTO strandline.correction (
            shard_key, session_key, number, correction_id, incarnation, kind, from_seq, through_seq, digest, actor,
            created_at)
        VALUES (
            p_shard_key, p_session_key, number, p_correction_id, s.incarnation, p_kind, p_from_seq, through_seq,
            p_content, p_actor, created_at);
    WITH noted AS (
        INSERT INTO strandline.superseded (shard_key, session_key, seq, number, tokens, was_delivered)
        SELECT p_shard_key, p_session_key, m.seq, s.corrections + 1, m.tokens,
            m.seq > s.pinned_through AND m.seq <= s.flushed_through
        FROM strandline.message m
        WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq >= p_from_seq
          AND (p_kind = 'rewind' OR m.seq = p_from_seq)
        RETURNING seq
    )
    SELECT coalesce(array_agg(n.seq ORDER BY n.seq), '{}') INTO seqs FROM noted n;
    IF is_delivered THEN
        SELECT array_agg(u.seq) INTO delivered FROM strandline.superseded u
            WHERE u.shard_key = p_shard_key AND u.session_key = p_session_key AND u.number = s.corrections + 1
              AND u.was_delivered;
        touched := strandline.rederive_v1(p_shard_key, p_session_key, delivered);
    END IF;
    IF p_kind = 'rewind' THEN
        IF is_delivered THEN
            PERFORM strandline.forget_traces_v1(p_shard_key, p_session_key, seqs);
        END IF;
        DELETE FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq >= p_from_seq;
        INSERT INTO strandline.popped (shard_key, session_key, seq, pop_id)
            SELECT p_shard_key, p_session_key, taken.seq, p_correction_id FROM unnest(seqs) AS taken (seq);
        -- Where nothing but the head is left, the head ends at the last number given, so that it can grow again.
        IF s.flushed_through = s.pinned_through AND (p_from_seq <= s.pinned_through OR NOT EXISTS (
            SELECT FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq > s.pinned_through)) THEN
            s.pinned_through := s.next_seq - 1;
            s.flushed_through := s.next_seq - 1;
            s.window_from := s.next_seq;
        ELSIF p_from_seq <= s.window_from THEN
            s.window_from := coalesce(strandline.find_window_v1(p_shard_key, p_session_key), s.window_from);
        END IF;
        s.question_seqs := strandline.question_v1(p_shard_key, p_session_key, s.window_from, NULL);
    ELSE
        DELETE FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq = p_from_seq
            RETURNING m.* INTO old;
        INSERT INTO strandline.message (
                shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest, envelope, metadata, calls,
                answers, created_at, labels)
            VALUES (
                p_shard_key, p_session_key, p_from_seq, old.incarnation, old.id, old.role, p_tokens, p_bytes, p_digest,
                p_envelope::json, old.metadata, old.calls, old.answers, old.created_at, old.labels);
    END IF;
    SELECT coalesce(sum(m.tokens), 0), count(*), coalesce(sum(m.bytes), 0)
        INTO s.window_tokens, s.window_messages, s.window_bytes FROM strandline.message m
        WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq >= s.window_from;
    SELECT coalesce(sum(m.tokens), 0) INTO s.pinned_tokens FROM strandline.message m
        WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key
          AND m.seq BETWEEN s.log_start_seq AND s.pinned_through;
    UPDATE strandline.session t SET
            corrections = number, pinned_through = s.pinned_through, flushed_through = s.flushed_through,
            window_from = s.window_from, pinned_tokens = s.pinned_tokens, window_tokens = s.window_tokens,
            window_messages = s.window_messages, window_bytes = s.window_bytes, replan_at_tokens = 0,
            question_seqs = s.question_seqs
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key;
    IF p_act IS NOT NULL THEN
        PERFORM strandline.append_act_v1(
            p_shard_key, true, s.namespace, s.user_id, p_session_key,
            p_act || jsonb_build_object('seq', p_from_seq, 'count', cardinality(seqs)), false);
    END IF;
    RETURN NEXT;
END
$function$;
