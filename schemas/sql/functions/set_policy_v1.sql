-- set_policy_v1: change a session's policy, from the next put and the next flush on, and record who did it.
--
-- A compare-and-set under the session's lock, which puts and flushes take as well: p_before is the policy that
-- p_after was made from.  Earlier flushes stay with the pipelines that they were fed to.
-- status: 'ok'; 'changed' (another caller changed it in the meantime); 'unknown_pipeline' (detail names the pipelines that
-- are not registered); no row if there is no such session.  over: the window is above the mark now, or its turns are delivered
-- from now on, and the caller flushes; the watch is for the case that it dies before it does.
-- p_act: the act for the audit trail (append_act_v1), NULL for none.
CREATE FUNCTION strandline.set_policy_v1(
    p_shard_key uuid,
    p_session_key uuid,
    p_before jsonb,
    p_after jsonb,
    p_actor text,
    p_act jsonb DEFAULT NULL
) RETURNS TABLE (status text, detail text, over boolean)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    s strandline.session%ROWTYPE;
    changed_at timestamptz;
BEGIN
    SELECT * INTO s FROM strandline.session t
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    changed_at := clock_timestamp();
    over := false;
    IF p_before <> jsonb_build_object(
            'token_limit', s.token_limit, 'flush_at_tokens', s.flush_at_tokens,
            'token_flush_size', s.token_flush_size, 'idle_seconds', s.idle_seconds,
            'pipelines', to_jsonb(s.pipelines), 'max_facts', s.max_facts,
            'max_window_messages', s.max_window_messages, 'max_window_bytes', s.max_window_bytes,
            'message_flush_size', s.message_flush_size, 'deliver', s.deliver,
            'time_zone', s.time_zone) THEN
        status := 'changed';
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT string_agg(wanted.name, ', ') INTO detail
        FROM jsonb_array_elements_text(p_after -> 'pipelines') AS wanted (name)
        WHERE wanted.name <> ALL (s.pipelines) AND NOT EXISTS (
            SELECT FROM strandline.generation g WHERE g.pipeline = wanted.name AND g.state = 'serving');
    IF detail IS NOT NULL THEN
        status := 'unknown_pipeline';
        RETURN NEXT;
        RETURN;
    END IF;
    INSERT INTO strandline.policy_change (
            shard_key, session_key, number, before, after, flushed_through, actor, created_at)
        SELECT p_shard_key, p_session_key, 1 + coalesce(max(c.number), 0), p_before, p_after,
            s.flushed_through, p_actor, changed_at
        FROM strandline.policy_change c
        WHERE c.shard_key = p_shard_key AND c.session_key = p_session_key;
    s.idle_seconds := (p_after ->> 'idle_seconds')::integer;
    s.flush_at_tokens := (p_after ->> 'flush_at_tokens')::integer;
    IF s.idle_seconds IS NOT NULL AND p_before -> 'idle_seconds' <> p_after -> 'idle_seconds' THEN
        s.watched_until := s.last_put_at + make_interval(secs => s.idle_seconds);
        INSERT INTO strandline.watch (shard_key, session_key, cause, check_at)
            VALUES (p_shard_key, p_session_key, 'idle', s.watched_until);
    END IF;
    s.max_window_messages := (p_after ->> 'max_window_messages')::integer;
    s.max_window_bytes := (p_after ->> 'max_window_bytes')::integer;
    over := s.pinned_tokens + s.window_tokens > s.flush_at_tokens
        OR s.window_messages > s.max_window_messages OR s.window_bytes > s.max_window_bytes
        OR p_after ->> 'deliver' = 'turn' AND s.deliver <> 'turn';
    IF over THEN
        s.overdue_at := changed_at + interval '4 seconds';
        INSERT INTO strandline.watch (shard_key, session_key, cause, check_at)
            VALUES (p_shard_key, p_session_key, 'overdue', s.overdue_at);
    END IF;
    UPDATE strandline.session t SET
            token_limit = (p_after ->> 'token_limit')::integer, flush_at_tokens = s.flush_at_tokens,
            token_flush_size = (p_after ->> 'token_flush_size')::integer, idle_seconds = s.idle_seconds,
            pipelines = ARRAY(SELECT jsonb_array_elements_text(p_after -> 'pipelines')),
            max_facts = (p_after ->> 'max_facts')::integer,
            max_window_messages = s.max_window_messages, max_window_bytes = s.max_window_bytes,
            message_flush_size = (p_after ->> 'message_flush_size')::integer, deliver = p_after ->> 'deliver',
            time_zone = p_after ->> 'time_zone', replan_at_tokens = 0,
            watched_until = s.watched_until, overdue_at = s.overdue_at
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key;
    IF p_act IS NOT NULL THEN
        PERFORM strandline.append_act_v1(
            p_shard_key, true, s.namespace, s.user_id, p_session_key, p_act, false);
    END IF;
    status := 'ok';
    RETURN NEXT;
END
$function$;
