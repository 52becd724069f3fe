-- check_session_v1: refuse a session whose marks, counters or policy contradict each other.
--
-- The trigger session_check calls it for each new session, and for each statement that sets a mark, pinned_tokens, or
-- the policy below.
-- Not a CHECK constraint: Postgres reads the text of each CHECK again in every statement, also for columns that the
-- statement does not set, and a put in the simple case only adds to what was right before.
CREATE FUNCTION strandline.check_session_v1() RETURNS trigger
LANGUAGE plpgsql AS $function$
BEGIN
    IF new.log_start_seq >= 1 AND new.pinned_through >= new.log_start_seq - 1 AND new.window_from > new.pinned_through
            AND new.flushed_through >= new.pinned_through AND new.window_from <= new.flushed_through + 1
            AND new.flushed_through < new.next_seq
            AND least(new.window_tokens, new.pinned_tokens, new.window_messages, new.window_bytes) >= 0
            AND (new.shared_scope IS NULL) = (new.shared_key IS NULL) AND new.deliver IN ('window', 'turn') THEN
        RETURN NULL;
    END IF;
    RAISE check_violation USING CONSTRAINT = 'session_check', TABLE = 'session',
        MESSAGE = 'the marks, counters or policy of a session contradict each other';
END
$function$;
