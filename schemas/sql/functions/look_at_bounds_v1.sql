-- look_at_bounds_v1: which of a namespace's bounds on stored data is reached: 'bytes', 'sessions'; NULL: none.
--
-- It goes by the last count.  That is at most ten seconds old, or a hundred times as old as counting took: then one
-- caller counts again, the others do not wait.  So no put has to change a row of its namespace.
CREATE FUNCTION strandline.look_at_bounds_v1(p_namespace text) RETURNS text
LANGUAGE plpgsql AS $function$
DECLARE
    u strandline.namespace_rule%ROWTYPE;
    bound record;
    began CONSTANT timestamptz := clock_timestamp();
    next_at timestamptz;
BEGIN
    SELECT * INTO u FROM strandline.namespace_rule t WHERE t.namespace = p_namespace;
    IF u.count_at IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT l.max_sessions, l.max_bytes INTO bound FROM strandline.namespace_limit l WHERE l.namespace = p_namespace;
    IF u.count_at <= began THEN
        PERFORM FROM strandline.namespace_rule t WHERE t.namespace = p_namespace AND t.count_at <= began
            FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            SELECT count(*) INTO u.sessions FROM strandline.session_owner o WHERE o.namespace = p_namespace;
            SELECT coalesce(sum(m.bytes), 0) INTO u.bytes
                FROM (SELECT DISTINCT o.owner_key FROM strandline.session_owner o WHERE o.namespace = p_namespace) AS owner
                JOIN strandline.message m ON m.shard_key = owner.owner_key;
            next_at := clock_timestamp() + greatest(interval '10 s', 100 * (clock_timestamp() - began));
            UPDATE strandline.namespace_rule t SET sessions = u.sessions, bytes = u.bytes,
                    is_full = coalesce(u.bytes >= bound.max_bytes, false), count_at = next_at
                WHERE t.namespace = p_namespace;
        END IF;
    END IF;
    RETURN CASE WHEN u.bytes >= bound.max_bytes THEN 'bytes' WHEN u.sessions >= bound.max_sessions THEN 'sessions' END;
END
$function$;
