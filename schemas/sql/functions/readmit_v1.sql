-- readmit_v1: lift the fence of an owner or of a session: later writes belong to a new life.
--
-- p_erasures: only if one of these set the fence; NULL for whichever did.
-- The fence of a session is another one than its owner's: each is lifted by itself.
-- status: 'ok'; 'missing' (there is no fence); 'running' (its erasure, of this number, is not finished); 'rows' (what was
-- erased by this number is there again, and would be of the new life).
CREATE FUNCTION strandline.readmit_v1(
    p_erasure_id uuid, p_namespace text, p_shard_key uuid, p_scope_key uuid, p_actor text,
    p_user_id text, p_act jsonb, p_erasures uuid[] DEFAULT NULL
) RETURNS TABLE (status text, number integer, readmitted_at timestamptz)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    known strandline.erasure%ROWTYPE;
    moment CONSTANT timestamptz := clock_timestamp();
    given integer;
BEGIN
    PERFORM pg_advisory_xact_lock(@owner_lock(p_shard_key));
    SELECT e.* INTO known FROM strandline.erasure e
        JOIN strandline.erasure_fence f ON f.shard_key = p_shard_key AND f.scope_key = p_scope_key
            AND f.number = e.number AND @stands(f)
        WHERE p_erasures IS NULL OR e.erasure_id = ANY (p_erasures);
    status := CASE WHEN known.number IS NULL THEN 'missing' WHEN known.state = 'running' THEN 'running' ELSE 'ok' END;
    IF status = 'ok' AND EXISTS (
        SELECT FROM strandline.erased_rows_v1(p_shard_key, p_scope_key) AS left_over WHERE left_over.rows > 0)
    THEN
        status := 'rows';
    END IF;
    number := known.number;
    readmitted_at := moment;
    IF status = 'ok' THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('erasures', 0));
        SELECT 1 + max(e.number) INTO given FROM strandline.erasure e;
        number := given;
        INSERT INTO strandline.erasure (
                number, erasure_id, kind, namespace, owner_key, scope_key, ledger_key, state, actor, requested_at,
                updated_at, finished_at)
            VALUES (given, p_erasure_id, 'readmission', p_namespace, p_shard_key, p_scope_key, known.ledger_key, 'done',
                p_actor, moment, moment, moment);
        UPDATE strandline.erasure_fence f SET readmitted_at = moment, number = given
            WHERE f.shard_key = p_shard_key AND f.scope_key = p_scope_key;
        PERFORM strandline.append_act_v1(p_shard_key, true, p_namespace, p_user_id,
            nullif(p_scope_key, p_shard_key), p_act, false);
    END IF;
    RETURN NEXT;
END
$function$;
