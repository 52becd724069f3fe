-- give_up_step_v1: give up the step of a session that has removed nothing, and write down which object it may have left
-- in which archive, until that is deleted.
--
-- Returns whether there was one.  The caller holds its row, or the lanes.
CREATE FUNCTION strandline.give_up_step_v1(p_shard_key uuid, p_session_key uuid, p_reason text) RETURNS boolean
LANGUAGE plpgsql AS $function$
BEGIN
    INSERT INTO strandline.given_up_step (
            shard_key, session_key, step_id, from_seq, through_seq, cause, state, archive, object_name, reason)
        SELECT p_shard_key, p_session_key, g.step_id, g.from_seq, g.through_seq, g.cause, g.state, g.archive,
            g.object_name, p_reason
        FROM strandline.retention_step g
        WHERE g.shard_key = p_shard_key AND g.session_key = p_session_key AND g.state <> 'removed'
        FOR UPDATE
        ON CONFLICT DO NOTHING;
    DELETE FROM strandline.retention_step g
        WHERE g.shard_key = p_shard_key AND g.session_key = p_session_key AND g.state <> 'removed';
    RETURN FOUND;
END
$function$;
