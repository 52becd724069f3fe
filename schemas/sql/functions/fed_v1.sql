-- fed_v1: the pipelines that a session's flush events feed.
--
-- p_from_seq: those that an event from there on was fed to, as the session's policy was when it was flushed;
-- NULL: all that any of them was ever fed to, or is fed to now.
CREATE FUNCTION strandline.fed_v1(p_shard_key uuid, p_session_key uuid, p_from_seq bigint) RETURNS text[]
LANGUAGE sql STABLE AS $function$
    SELECT CASE WHEN p_from_seq IS NULL THEN ARRAY(
        SELECT unnest(s.pipelines) UNION
        SELECT jsonb_array_elements_text(x.policy -> 'pipelines') FROM strandline.policy_change c
        CROSS JOIN LATERAL (VALUES (c.before), (c.after)) AS x (policy)
        WHERE c.shard_key = p_shard_key AND c.session_key = p_session_key)
    ELSE coalesce((
        SELECT ARRAY(SELECT jsonb_array_elements_text(c.before -> 'pipelines')) FROM strandline.policy_change c
        WHERE c.shard_key = p_shard_key AND c.session_key = p_session_key AND c.flushed_through >= p_from_seq
        ORDER BY c.number LIMIT 1), s.pipelines) END
    FROM strandline.session s
    WHERE s.shard_key = p_shard_key AND s.session_key = p_session_key
$function$;
