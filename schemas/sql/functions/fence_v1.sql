-- fence_v1: set the fence of an owner, and with it, in one transaction, end all that can write for the owner.
--
-- Alone with the owner's lock: whoever began to write before (a new session, an edit of facts, a fork, a copy for a
-- shared scope) has ended, and whoever begins later sees the fence.  Then the rows go by which the others write: lanes,
-- whose rows a worker locks in each transaction, and sessions, whose rows a put, a flush or a correction locks.  Each is
-- waited for, and finds nothing when it comes again.  What is left can only be read, and is deleted in steps.
-- An erasure of this owner that was not finished goes on, with its number.
--
-- status: 'ok'; 'running' (the erasure goes on); 'erased' (it is done already, by this number, and not p_is_forced).
-- p_act: the act for the audit trail (append_act_v1).
-- Numbers are given one transaction after the other, so that the newest one tells a reader that nothing earlier is to
-- come.
CREATE FUNCTION strandline.fence_v1(
    p_erasure_id uuid, p_kind text, p_namespace text, p_shard_key uuid, p_ledger_key uuid, p_actor text,
    p_is_forced boolean, p_user_id text, p_act jsonb
) RETURNS TABLE (status text, number integer, ledger_key uuid, requested_at timestamptz)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    lanes bigint;
    sessions bigint;
    moment CONSTANT timestamptz := clock_timestamp();
    given integer;
    fenced timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock(@erasing_lock(p_shard_key));
    PERFORM pg_advisory_xact_lock(@owner_lock(p_shard_key));
    SELECT 'running', e.number, e.ledger_key, e.requested_at INTO status, number, ledger_key, requested_at
        FROM strandline.erasure e
        WHERE e.owner_key = p_shard_key AND e.scope_key = p_shard_key AND e.state = 'running'
        ORDER BY e.number DESC LIMIT 1;
    IF NOT FOUND AND NOT p_is_forced THEN
        SELECT 'erased', f.number INTO status, number FROM strandline.erasure_fence f
            WHERE f.shard_key = p_shard_key AND f.scope_key = p_shard_key AND @stands(f);
        IF FOUND THEN
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    PERFORM FROM strandline.lane l WHERE l.shard_key = p_shard_key
        ORDER BY l.scope_key, l.generation_id, l.stage FOR UPDATE;
    DELETE FROM strandline.lane l WHERE l.shard_key = p_shard_key;
    GET DIAGNOSTICS lanes = ROW_COUNT;
    PERFORM FROM strandline.session s WHERE s.shard_key = p_shard_key ORDER BY s.session_key FOR UPDATE;
    DELETE FROM strandline.session s WHERE s.shard_key = p_shard_key;
    GET DIAGNOSTICS sessions = ROW_COUNT;
    IF status IS NULL THEN
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
            VALUES (given, p_erasure_id, p_kind, p_namespace, p_shard_key, p_shard_key, p_ledger_key, p_actor, moment,
                fenced, lanes + sessions, jsonb_build_object('lane', lanes, 'session', sessions));
        -- Under the owner's pseudonym still; the fence comes after it.
        PERFORM strandline.append_act_v1(p_shard_key, true, p_namespace, p_user_id, NULL, p_act, false);
        INSERT INTO strandline.erasure_fence AS f (shard_key, scope_key, number, fenced_at, data_keys)
            VALUES (p_shard_key, p_shard_key, given, fenced, coalesce((
                SELECT max(k.number) FROM strandline.data_key k WHERE k.shard_key = p_shard_key), 0))
            ON CONFLICT (shard_key, scope_key) DO UPDATE SET number = excluded.number, fenced_at = excluded.fenced_at,
                readmitted_at = NULL, data_keys = greatest(f.data_keys, excluded.data_keys);
    END IF;
    RETURN NEXT;
END
$function$;
