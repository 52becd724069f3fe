-- expire_v1: end the life of a session to which nobody put for as long as it is kept.
--
-- The log begins again, as after a reset; but its work is not void, what was not delivered will be, and its important
-- messages stay in the history (first_kept).  The rest is shown by no read, and retention removes it.
-- Locks the session's row.  Returns whether it had expired: another call may have been first, or a put.
CREATE FUNCTION strandline.expire_v1(p_shard_key uuid, p_session_key uuid) RETURNS boolean
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    s strandline.session%ROWTYPE;
    new_life CONSTANT uuid := gen_random_uuid();
BEGIN
    SELECT * INTO s FROM strandline.session t
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key FOR NO KEY UPDATE;
    IF NOT FOUND OR NOT @is_expired(s, p_shard_key, p_session_key) THEN
        RETURN false;
    END IF;
    INSERT INTO strandline.expired_life (
            shard_key, session_key, incarnation, from_seq, through_seq, pinned_through, flushed_through)
        VALUES (
            p_shard_key, p_session_key, s.incarnation, s.log_start_seq, s.next_seq - 1, s.pinned_through,
            s.flushed_through);
    UPDATE strandline.session t SET
            incarnation = new_life, first_kept = coalesce(t.first_kept, t.log_start_seq), log_start_seq = t.next_seq,
            pinned_through = t.next_seq - 1, window_from = t.next_seq, flushed_through = t.next_seq - 1,
            pinned_tokens = 0, window_tokens = 0, window_messages = 0, window_bytes = 0, replan_at_tokens = 0,
            watched_until = NULL, overdue_at = NULL, question_seqs = NULL
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key;
    RETURN true;
END
$function$;
