-- erase_session_v1: set the fence of one session of an owner, and in the same transaction forget it as a forgetting
-- reset does (reset_v1), and delete its row.
--
-- As in fence_v1 the owner's lock is held alone, so nothing that began before is still to come, and what begins later
-- sees the fence.  What remains of the session is deleted in steps.
-- status: as in fence_v1, where 'erased' may be by the owner's erasure; 'owner' (that one, of this number, is not
-- finished: what it was given besides is not known here, so nothing was done); 'missing' (there is no such session:
-- nothing was done, unless p_is_forced).  touched: the facts that forgetting gave other words, or revived, as reset_v1
-- returns them.
CREATE FUNCTION strandline.erase_session_v1(
    p_erasure_id uuid, p_namespace text, p_shard_key uuid, p_session_key uuid, p_directory_key uuid, p_ledger_key uuid,
    p_actor text, p_is_forced boolean, p_user_id text, p_act jsonb
) RETURNS TABLE (status text, number integer, ledger_key uuid, requested_at timestamptz, touched uuid[])
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    rows_before jsonb;
    rows_after jsonb;
    gone jsonb;
    total bigint;
    moment CONSTANT timestamptz := clock_timestamp();
    given integer;
    fenced timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock(@erasing_lock(p_session_key));
    PERFORM pg_advisory_xact_lock(@owner_lock(p_shard_key));
    touched := '{}';
    SELECT 'running', e.number, e.ledger_key, e.requested_at INTO status, number, ledger_key, requested_at
        FROM strandline.erasure e
        WHERE e.owner_key = p_shard_key AND e.scope_key = p_session_key AND e.state = 'running'
        ORDER BY e.number DESC LIMIT 1;
    IF FOUND THEN
        RETURN NEXT;
        RETURN;
    END IF;
    -- The session's own fence says more than its owner's.
    SELECT CASE WHEN f.scope_key = p_shard_key AND e.state = 'running' THEN 'owner' ELSE 'erased' END, f.number
        INTO status, number
        FROM strandline.erasure_fence f LEFT JOIN strandline.erasure e ON e.number = f.number
        WHERE f.shard_key = p_shard_key AND f.scope_key IN (p_shard_key, p_session_key) AND @stands(f)
            AND (NOT p_is_forced OR f.scope_key = p_shard_key AND e.state = 'running')
        ORDER BY f.scope_key = p_shard_key LIMIT 1;
    IF NOT FOUND AND NOT p_is_forced AND NOT EXISTS (
        SELECT FROM strandline.session_owner o WHERE o.shard_key = p_directory_key AND o.owner_key = p_shard_key)
    THEN
        status := 'missing';
    END IF;
    IF status IS NOT NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    -- The reset looks at it, too.
    DELETE FROM strandline.erasure_fence f WHERE f.shard_key = p_shard_key AND f.scope_key = p_session_key;
    -- All that the reset locks, in its order, so that nothing is added or goes between the count and it.
    PERFORM FROM strandline.session_run r
        WHERE r.shard_key = p_shard_key AND r.session_key = p_session_key ORDER BY r.number FOR UPDATE;
    PERFORM strandline.take_lanes_v1(p_shard_key, p_session_key);
    PERFORM FROM strandline.session s WHERE s.shard_key = p_shard_key AND s.session_key = p_session_key FOR UPDATE;
    rows_before := strandline.session_rows_v1(p_shard_key, p_session_key);
    SELECT r.touched INTO touched FROM strandline.reset_v1(p_shard_key, p_session_key, true) AS r;
    touched := coalesce(touched, '{}');
    -- Responses to requests for other sessions may name this one; that they were given stays known.
    UPDATE strandline.kept_response r SET body = NULL WHERE r.shard_key = p_shard_key AND r.body IS NOT NULL;
    DELETE FROM strandline.lane l WHERE l.shard_key = p_shard_key AND l.scope_key = p_session_key;
    DELETE FROM strandline.session s WHERE s.shard_key = p_shard_key AND s.session_key = p_session_key;
    rows_after := strandline.session_rows_v1(p_shard_key, p_session_key);
    SELECT coalesce(jsonb_object_agg(b.key, b.value::bigint - coalesce((rows_after ->> b.key)::bigint, 0)), '{}'),
            coalesce(sum(b.value::bigint - coalesce((rows_after ->> b.key)::bigint, 0)), 0)
        INTO gone, total FROM jsonb_each_text(rows_before) AS b
        WHERE b.value::bigint > coalesce((rows_after ->> b.key)::bigint, 0);
    PERFORM pg_advisory_xact_lock(hashtextextended('erasures', 0));
    fenced := clock_timestamp();
    SELECT 1 + coalesce(max(e.number), 0) INTO given FROM strandline.erasure e;
    status := 'ok';
    number := given;
    ledger_key := p_ledger_key;
    requested_at := moment;
    INSERT INTO strandline.erasure (
            number, erasure_id, kind, namespace, owner_key, scope_key, ledger_key, actor, requested_at, fenced_at,
            rows_erased, steps)
        VALUES (given, p_erasure_id, 'session', p_namespace, p_shard_key, p_session_key, p_ledger_key, p_actor, moment,
            fenced, total, gone);
    PERFORM strandline.append_act_v1(p_shard_key, true, p_namespace, p_user_id, p_session_key, p_act, false);
    INSERT INTO strandline.erasure_fence (shard_key, scope_key, number, fenced_at)
        VALUES (p_shard_key, p_session_key, given, fenced);
    RETURN NEXT;
END
$function$;
