-- pop_v1: remove the newest message from a session's log, unless it was delivered.
--
-- The session row is locked first, as in put_v1.  p_seq is the message that the caller read as the newest
-- one; p_pop_id names this attempt, so that an attempt whose answer was lost can be sent again without removing
-- another message.  The seq is not used again: next_seq stays, and popped keeps the number, without content.
--
-- Returns 'ok'; 'changed' (another message is the newest); 'delivered' (the pipelines have it).
-- p_act: the act for the audit trail (append_act_v1), NULL for none.
CREATE FUNCTION strandline.pop_v1(
    p_shard_key uuid, p_session_key uuid, p_seq bigint, p_pop_id uuid, p_act jsonb DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql AS $function$
DECLARE
    s strandline.session%ROWTYPE;
    newest bigint;
    freed integer;
    freed_bytes integer;
BEGIN
    SELECT * INTO s FROM strandline.session t
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key FOR NO KEY UPDATE;
    IF EXISTS (
        SELECT FROM strandline.popped p WHERE p.shard_key = p_shard_key AND p.session_key = p_session_key
          AND p.seq = p_seq AND p.pop_id = p_pop_id) THEN
        RETURN 'ok';
    END IF;
    SELECT m.seq, m.tokens, m.bytes INTO newest, freed, freed_bytes FROM strandline.message m
        WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq >= s.log_start_seq
        ORDER BY m.seq DESC LIMIT 1;
    IF newest IS DISTINCT FROM p_seq THEN
        RETURN 'changed';
    END IF;
    IF newest > s.pinned_through AND newest <= s.flushed_through THEN
        RETURN 'delivered';
    END IF;

    DELETE FROM strandline.message m
        WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq = newest;
    INSERT INTO strandline.popped (shard_key, session_key, seq, pop_id)
        VALUES (p_shard_key, p_session_key, newest, p_pop_id);
    IF newest > s.pinned_through THEN
        s.window_tokens := s.window_tokens - freed;
        s.window_messages := s.window_messages - 1;
        s.window_bytes := s.window_bytes - freed_bytes;
    ELSE
        s.pinned_tokens := s.pinned_tokens - freed;
    END IF;
    -- Where nothing but the head is left, the head ends at the last number given, so that it can grow again.
    IF s.flushed_through = s.pinned_through AND NOT EXISTS (
        SELECT FROM strandline.message m
        WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq > s.pinned_through) THEN
        s.pinned_through := s.next_seq - 1;
        s.flushed_through := s.next_seq - 1;
        s.window_from := s.next_seq;
    END IF;
    IF s.window_messages = 0 THEN
        s.question_seqs := strandline.question_v1(p_shard_key, p_session_key, s.window_from, s.question_seqs);
    END IF;
    UPDATE strandline.session t SET
            window_tokens = s.window_tokens, window_messages = s.window_messages,
            window_bytes = s.window_bytes, pinned_tokens = s.pinned_tokens, replan_at_tokens = 0,
            pinned_through = s.pinned_through, flushed_through = s.flushed_through,
            window_from = s.window_from, question_seqs = s.question_seqs
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key;
    IF p_act IS NOT NULL THEN
        PERFORM strandline.append_act_v1(
            p_shard_key, true, s.namespace, s.user_id, p_session_key,
            p_act || jsonb_build_object('seq', p_seq, 'count', 1), false);
    END IF;
    RETURN 'ok';
END
$function$;
