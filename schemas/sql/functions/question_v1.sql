-- question_v1: the user's messages before a window that its first turn answers, oldest first: the newest eight of those
-- with no answer between them.
--
-- An agent that goes on by itself behind its answer keeps its last task.  The answer ends it where a person speaks next,
-- or where all has left with it.
-- p_known: what this returned for the session's present window, so that only messages since are looked at; NULL if
-- that is not known, or messages before the window may have changed.
-- Returns NULL if an answer ended the turn.
CREATE FUNCTION strandline.question_v1(
    p_shard_key uuid, p_session_key uuid, p_window_from bigint, p_known bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $function$
DECLARE
    since bigint;
    asked bigint;
    answered bigint;
BEGIN
    SELECT CASE WHEN p_known IS NULL THEN t.log_start_seq ELSE t.window_from END INTO since
        FROM strandline.session t WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key;
    SELECT m.seq INTO asked FROM strandline.message m
        WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq >= since AND m.seq < p_window_from
          AND @is_asked(m) ORDER BY m.seq DESC LIMIT 1;
    asked := coalesce(asked, p_known[cardinality(p_known)]);
    IF asked IS NULL THEN
        RETURN '{}';
    END IF;
    IF coalesce((
            SELECT @is_asked(m) FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq >= p_window_from
            ORDER BY m.seq LIMIT 1), (
            SELECT @is_answer(m) FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq < p_window_from
            ORDER BY m.seq DESC LIMIT 1))
        AND EXISTS (
            SELECT FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq > asked
              AND m.seq < p_window_from AND @is_answer(m)) THEN
        RETURN NULL;
    END IF;
    SELECT m.seq INTO answered FROM strandline.message m
        WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key
          AND m.seq >= least(since, p_known[cardinality(p_known)]) AND m.seq < asked AND @is_answer(m)
        ORDER BY m.seq DESC LIMIT 1;
    RETURN (
        SELECT array_agg(u.seq ORDER BY u.seq) FROM (
            SELECT m.seq FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key
              AND m.seq BETWEEN coalesce(answered + 1, since) AND asked AND @is_asked(m)
            UNION
            SELECT k.seq FROM unnest(p_known) AS k (seq) WHERE answered IS NULL
            ORDER BY seq DESC LIMIT 8) AS u);
END
$function$;
