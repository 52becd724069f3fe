-- find_window_v1: where a window of whole turns that ends with the newest message may begin.
--
-- As many turns as a flush leaves in a window: within the mark less the flush size, and three quarters of the messages
-- and bytes that it may hold; one turn may have all of the window.  A turn begins with a user message, and no later
-- message answers a call from before it.  For a rewind that took the window away; the messages were delivered, and are
-- shown again.
-- Returns NULL if no turn fits.
CREATE FUNCTION strandline.find_window_v1(p_shard_key uuid, p_session_key uuid) RETURNS bigint
LANGUAGE sql AS $function$
    WITH s AS MATERIALIZED (
        SELECT t.* FROM strandline.session t WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key
    ), newest AS MATERIALIZED (
        SELECT m.seq, m.role, m.calls, m.answers,
            sum(m.tokens) OVER newer + s.pinned_tokens AS tokens, count(*) OVER newer AS messages,
            sum(m.bytes) OVER newer AS bytes
        FROM s CROSS JOIN LATERAL (
            SELECT * FROM strandline.message n
            WHERE n.shard_key = p_shard_key AND n.session_key = p_session_key
              AND n.seq > s.pinned_through AND n.seq < s.next_seq
            ORDER BY n.seq DESC LIMIT s.max_window_messages) AS m
        WINDOW newer AS (ORDER BY m.seq DESC)
    ), answered AS MATERIALIZED (
        SELECT t.seq, (
            SELECT max(c.seq) FROM newest c CROSS JOIN LATERAL json_array_elements_text(c.calls) AS opened (call)
            WHERE c.seq < t.seq AND opened.call = closed.call) AS called_at
        FROM newest t CROSS JOIN LATERAL json_array_elements_text(t.answers) AS closed (call)
    ), turns AS (
        SELECT n.seq, n.tokens <= s.flush_at_tokens - s.token_flush_size
                AND n.messages <= s.max_window_messages * 3 / 4
                AND n.bytes <= s.max_window_bytes::bigint * 3 / 4 AS fits
        FROM newest n CROSS JOIN s
        WHERE n.role = 'user' AND n.answers IS NULL AND n.tokens <= s.flush_at_tokens AND n.bytes <= s.max_window_bytes
          AND NOT EXISTS (
            SELECT FROM answered a WHERE a.seq > n.seq AND coalesce(a.called_at, 0) < n.seq)
    )
    SELECT coalesce(min(t.seq) FILTER (WHERE t.fits), max(t.seq)) FROM turns t
$function$;
