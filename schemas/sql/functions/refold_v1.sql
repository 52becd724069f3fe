-- refold_v1: take an ordered lane back to before the first of its folds that holds what comes behind an event: behind
-- it in the conversation, or, where a lane serves several sessions, flushed after it.
--
-- The caller has locked the lane and taken it from its holder.  Returns the events that are due again (unfold_v1).
CREATE FUNCTION strandline.refold_v1(
    p_shard_key uuid, p_scope_key uuid, p_generation_id integer, p_stage text, p_event_id uuid
) RETURNS SETOF uuid
LANGUAGE plpgsql AS $function$
DECLARE
    first_fold bigint;
BEGIN
    SELECT min(f.ordinal) INTO first_fold FROM strandline.block_state f
        JOIN strandline.batch b ON b.shard_key = f.shard_key AND b.batch_id = f.batch_id
        JOIN strandline.flush_event e ON e.shard_key = f.shard_key AND e.event_id = p_event_id
        WHERE f.shard_key = p_shard_key AND f.scope_key = p_scope_key AND f.generation_id = p_generation_id
          AND EXISTS (
            SELECT FROM strandline.flush_event o
            WHERE o.shard_key = p_shard_key AND o.event_id = ANY (b.event_ids)
              AND CASE WHEN f.scope_key = e.session_key THEN o.from_seq > e.from_seq
                ELSE (o.created_at, o.session_key, o.from_seq) > (e.created_at, e.session_key, e.from_seq) END);
    RETURN QUERY SELECT strandline.unfold_v1(p_shard_key, p_scope_key, p_generation_id, p_stage, first_fold);
END
$function$;
