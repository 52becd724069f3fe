-- forget_shared_v1: remove what some incarnations of a session shared with a scope, for good.
--
-- The incarnations are marked first.  A worker that is about to share holds the same rows while it writes: what it
-- wrote before is seen and deleted here, since each statement of a VOLATILE function sees what was committed
-- before it began; one that comes later finds the mark and writes nothing.
CREATE FUNCTION strandline.forget_shared_v1(
    p_shard_key uuid, p_session_key uuid, p_owner_key uuid, p_incarnations uuid[]
) RETURNS void
LANGUAGE plpgsql AS $function$
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
BEGIN
    -- The fence of an erased owner keeps copies away by itself.
    IF strandline.look_at_fence_v1(p_owner_key, p_session_key) IS NULL THEN
        INSERT INTO strandline.shared_session (shard_key, session_key, incarnation, owner_key, gone_at)
            SELECT p_shard_key, p_session_key, gone.incarnation, p_owner_key, moment
            FROM unnest(p_incarnations) AS gone (incarnation) ORDER BY gone.incarnation
            ON CONFLICT (shard_key, session_key, incarnation)
                DO UPDATE SET session_id = NULL, gone_at = coalesce(shared_session.gone_at, excluded.gone_at);
    END IF;
    DELETE FROM strandline.chunk c
        USING strandline.shared_message m
        WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key
          AND m.incarnation = ANY (p_incarnations)
          AND c.shard_key = m.shard_key AND c.session_key = m.session_key AND c.from_seq = m.seq;
    DELETE FROM strandline.shared_message m
        WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key
          AND m.incarnation = ANY (p_incarnations);
END
$function$;
