-- clear_shared_v1: remove the copies of a range of a session's messages that are not these messages, as they stand.
--
-- p_seqs and p_envelopes are what the session's log holds of the range now; a copy of anything else was taken back or
-- replaced by a correction.  The caller holds the session's row of the scope (lock_shared_session_v1).
CREATE FUNCTION strandline.clear_shared_v1(
    p_shard_key uuid, p_session_key uuid, p_from_seq bigint, p_through_seq bigint, p_seqs bigint[], p_envelopes text[]
) RETURNS void
LANGUAGE plpgsql AS $function$
DECLARE
    stale bigint[];
BEGIN
    WITH gone AS (
        DELETE FROM strandline.shared_message m
        WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key
            AND m.seq BETWEEN p_from_seq AND p_through_seq AND NOT EXISTS (
                SELECT FROM unnest(p_seqs, p_envelopes) AS present (seq, envelope)
                WHERE present.seq = m.seq AND present.envelope = m.envelope::text)
        RETURNING m.seq
    )
    SELECT array_agg(g.seq) INTO stale FROM gone g;
    DELETE FROM strandline.chunk c
        WHERE c.shard_key = p_shard_key AND c.session_key = p_session_key AND c.from_seq = ANY (stale);
END
$function$;
