-- erase_shared_v1: delete a page of the copies that an owner, or one of its sessions (p_session_key), shared with a scope.
--
-- Of one session in one scope at a time: copies, their pieces in each derivation, and in the end the rows that name the
-- session's lives there.  After the fence no worker copies any more, so no row has to stay to keep one away.
-- Returns how many rows went; 0: nothing is left.
CREATE FUNCTION strandline.erase_shared_v1(
    p_number integer, p_owner_key uuid, p_session_key uuid, p_limit integer
) RETURNS bigint
LANGUAGE plpgsql AS $function$
DECLARE
    here uuid;
    session uuid;
    derived integer;
    page bigint;
    copies bigint := 0;
    pieces bigint := 0;
    lives bigint := 0;
BEGIN
    @lock_unfinished(p_number);
    SELECT s.shard_key, s.session_key INTO here, session FROM strandline.shared_session s
        WHERE s.owner_key = p_owner_key AND (p_session_key IS NULL OR s.session_key = p_session_key)
        ORDER BY s.shard_key, s.session_key LIMIT 1;
    IF here IS NULL THEN
        RETURN 0;
    END IF;
    FOR derived IN SELECT g.generation_id FROM strandline.generation g WHERE g.pipeline = 'vectors' LOOP
        DELETE FROM strandline.chunk c USING (
                SELECT o.from_seq, o.piece FROM strandline.chunk o
                WHERE o.shard_key = here AND o.generation_id = derived AND o.session_key = session
                LIMIT p_limit) AS p
            WHERE c.shard_key = here AND c.generation_id = derived AND c.session_key = session
              AND c.from_seq = p.from_seq AND c.piece = p.piece;
        GET DIAGNOSTICS page = ROW_COUNT;
        pieces := pieces + page;
    END LOOP;
    DELETE FROM strandline.shared_message m USING (
            SELECT o.seq FROM strandline.shared_message o WHERE o.shard_key = here AND o.session_key = session
            LIMIT p_limit) AS p
        WHERE m.shard_key = here AND m.session_key = session AND m.seq = p.seq;
    GET DIAGNOSTICS copies = ROW_COUNT;
    IF copies + pieces = 0 THEN
        DELETE FROM strandline.shared_session s WHERE s.shard_key = here AND s.session_key = session
            AND s.owner_key = p_owner_key;
        GET DIAGNOSTICS lives = ROW_COUNT;
    END IF;
    UPDATE strandline.erasure e SET rows_erased = e.rows_erased + copies + pieces + lives,
            updated_at = statement_timestamp(), steps = e.steps || jsonb_build_object(
                'shared_message', coalesce((e.steps ->> 'shared_message')::bigint, 0) + copies,
                'shared_chunk', coalesce((e.steps ->> 'shared_chunk')::bigint, 0) + pieces,
                'shared_session', coalesce((e.steps ->> 'shared_session')::bigint, 0) + lives)
        WHERE e.number = p_number;
    RETURN copies + pieces + lives;
END
$function$;
