-- name_object_v1: write down under which name the messages of a step will be in the archive, before they are.
--
-- Not for an owner or a session that is being erased; until the transaction ends, no fence is set (look_at_fence_v1).
-- Returns whether it was written: another process may have taken the step up.
CREATE FUNCTION strandline.name_object_v1(
    p_shard_key uuid, p_session_key uuid, p_from_seq bigint, p_step_id uuid, p_object_name text
) RETURNS boolean
LANGUAGE plpgsql AS $function$
BEGIN
    IF strandline.look_at_fence_v1(p_shard_key, p_session_key) IS NOT NULL THEN
        RETURN false;
    END IF;
    UPDATE strandline.retention_step g SET object_name = p_object_name
        WHERE g.shard_key = p_shard_key AND g.session_key = p_session_key AND g.from_seq = p_from_seq
          AND g.step_id = p_step_id AND g.state <> 'removed';
    RETURN FOUND;
END
$function$;
