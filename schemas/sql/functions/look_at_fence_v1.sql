-- look_at_fence_v1: the erasure that keeps an owner, or one of its sessions, away; NULL if none does.
--
-- Called first of all in a transaction that begins to write for an owner: until that ends, no fence is set.  The
-- statement after the lock sees a fence that was set while the lock was waited for.
-- p_scope_key: a session; the owner's key again if there is none.
CREATE FUNCTION strandline.look_at_fence_v1(p_shard_key uuid, p_scope_key uuid) RETURNS integer
LANGUAGE plpgsql AS $function$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(@owner_lock(p_shard_key));
    RETURN (
        SELECT max(f.number) FROM strandline.erasure_fence f
        WHERE f.shard_key = p_shard_key AND f.scope_key IN (p_shard_key, p_scope_key) AND @stands(f));
END
$function$;
