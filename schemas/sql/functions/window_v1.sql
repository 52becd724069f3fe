-- window_v1: the input of a flush plan, as JSON: the session's marks and policy, and of each message of
-- its window [seq, role, tokens, calls, answers, bytes], oldest first.  All from one snapshot; NULL if there is no
-- such session. A put that crosses the mark returns it, so that planning needs no further round trip.
CREATE FUNCTION strandline.window_v1(p_shard_key uuid, p_session_key uuid) RETURNS text
LANGUAGE sql VOLATILE AS $function$
    SELECT json_build_object(
        'marks', json_build_object(
            'incarnation', s.incarnation, 'corrections', s.corrections, 'window_from', s.window_from,
            'flushed_through', s.flushed_through, 'pinned_tokens', s.pinned_tokens,
            'window_tokens', s.window_tokens, 'flush_at_tokens', s.flush_at_tokens,
            'token_flush_size', s.token_flush_size,
            'window_messages', s.window_messages, 'window_bytes', s.window_bytes,
            'max_window_messages', s.max_window_messages, 'max_window_bytes', s.max_window_bytes,
            'message_flush_size', s.message_flush_size,
            'deliver', s.deliver,
            'idle_for_seconds', extract(epoch FROM statement_timestamp() - s.last_put_at),
            'idle_seconds', s.idle_seconds, 'watched', s.watched_until > statement_timestamp()),
        'entries', (
            SELECT coalesce(json_agg(
                json_build_array(m.seq, m.role, m.tokens, m.calls, m.answers, m.bytes) ORDER BY m.seq), '[]')
            FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key
              AND m.seq >= s.window_from AND m.seq < s.next_seq)
        )::text
    FROM strandline.session s
    WHERE s.shard_key = p_shard_key AND s.session_key = p_session_key
$function$;
