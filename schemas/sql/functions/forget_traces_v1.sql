-- forget_traces_v1: have the tombstones of an owner recognise messages of a session no more, since these are gone; nor do
-- facts that are gone have successors in a session that is.
--
-- p_seqs: traces all of whose messages are among these (NULL: all traces of the session).  Of the words the digests
-- stay, so that what was forgotten is not learnt again from what others say.
CREATE FUNCTION strandline.forget_traces_v1(p_shard_key uuid, p_session_key uuid, p_seqs bigint[]) RETURNS void
LANGUAGE sql AS $function$
    DELETE FROM strandline.former_fact o
        WHERE o.shard_key = p_shard_key AND o.session_key = p_session_key AND p_seqs IS NULL;
    UPDATE strandline.fact_event e SET traces = (
            SELECT jsonb_agg(CASE WHEN t.trace->>'session_key' = p_session_key::text
                    AND (p_seqs IS NULL OR NOT EXISTS (
                        SELECT FROM jsonb_array_elements_text(t.trace->'seqs') AS cited (seq)
                        WHERE cited.seq::bigint <> ALL (p_seqs)))
                THEN jsonb_strip_nulls(jsonb_build_object(
                    'fingerprint', t.trace->'fingerprint', 'of', t.trace->'of')) ELSE t.trace END)
            FROM jsonb_array_elements(e.traces) AS t (trace))
        WHERE e.shard_key = p_shard_key
          AND e.traces @> jsonb_build_array(jsonb_build_object('session_key', p_session_key));
$function$;
