-- clear_shared_v1: remove the copies of some messages of a session, with the pieces that begin with them.
--
-- A correction took them back or replaced them.  The caller holds the session's row of the scope
-- (lock_shared_session_v1), and has compared the copies with the log: they may be sealed under another key than it.
CREATE FUNCTION strandline.clear_shared_v1(p_shard_key uuid, p_session_key uuid, p_seqs bigint[]) RETURNS void
LANGUAGE plpgsql AS $function$
BEGIN
    DELETE FROM strandline.shared_message m
        WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq = ANY (p_seqs);
    DELETE FROM strandline.chunk c
        WHERE c.shard_key = p_shard_key AND c.session_key = p_session_key AND c.from_seq = ANY (p_seqs);
END
$function$;
