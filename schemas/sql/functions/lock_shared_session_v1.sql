-- lock_shared_session_v1: note that this life of a session shares, and hold its row until the end of the transaction.
--
-- The transaction is on the disk when it ends, before the receipts of another one say so.
-- Returns whether this life was forgotten, or its owner erased; then no row is made.
CREATE FUNCTION strandline.lock_shared_session_v1(
    p_shard_key uuid, p_session_key uuid, p_incarnation uuid, p_owner_key uuid, p_session_id text
) RETURNS boolean
LANGUAGE plpgsql AS $function$
DECLARE
    is_gone boolean;
BEGIN
    IF strandline.look_at_fence_v1(p_owner_key, p_session_key) IS NOT NULL THEN
        RETURN true;
    END IF;
    PERFORM set_config('synchronous_commit', 'on', true);
    INSERT INTO strandline.shared_session AS s (shard_key, session_key, incarnation, owner_key, session_id)
        VALUES (p_shard_key, p_session_key, p_incarnation, p_owner_key, p_session_id)
        ON CONFLICT (shard_key, session_key, incarnation) DO UPDATE SET owner_key = excluded.owner_key
        RETURNING s.gone_at IS NOT NULL INTO is_gone;
    RETURN is_gone;
END
$function$;
