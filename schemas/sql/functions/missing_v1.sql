-- missing_v1: what a derivation has neither done nor due of an owner's flush events, among those it was fed, or is
-- fed now.
--
-- is_known: it is to be derived.  Else it is of the time before a reset, and the derivation that serves does not know
-- it either: it is void, as was_void says that it is already.  scope_key is whose lane it belongs to.
CREATE FUNCTION strandline.missing_v1(p_shard_key uuid, p_generation_id integer, p_last_stage text)
RETURNS TABLE (
    session_key uuid, from_seq bigint, through_seq bigint, event_id uuid, tokens bigint, created_at timestamptz,
    stage text, scope_key uuid, incarnation uuid, namespace text, session_id text, user_id text,
    was_void boolean, is_known boolean)
LANGUAGE sql STABLE AS $function$
    SELECT e.session_key, e.from_seq, e.through_seq, e.event_id, e.tokens, e.created_at, g.entry_stage,
        CASE g.entry_scope WHEN 'owner' THEN e.shard_key ELSE e.session_key END, s.incarnation, s.namespace,
        s.session_id, s.user_id, r.event_id IS NOT NULL, e.incarnation = s.incarnation OR EXISTS (
            SELECT FROM strandline.serving_v1(p_shard_key, ARRAY[g.pipeline]) v
            JOIN strandline.receipt o ON o.shard_key = e.shard_key AND o.event_id = e.event_id
                AND o.generation_id = v.generation_id AND o.stage = p_last_stage AND o.outcome = 'applied')
    FROM strandline.generation g
    JOIN strandline.flush_event e ON e.shard_key = p_shard_key
    JOIN strandline.session s ON s.shard_key = e.shard_key AND s.session_key = e.session_key
        AND (g.pipeline = ANY (s.pipelines)
            OR g.pipeline = ANY (strandline.fed_v1(e.shard_key, e.session_key, e.from_seq)))
    LEFT JOIN strandline.receipt r ON r.shard_key = e.shard_key AND r.event_id = e.event_id
        AND r.generation_id = g.generation_id AND r.stage = g.entry_stage
    WHERE g.generation_id = p_generation_id AND (r.event_id IS NULL OR r.outcome = 'void') AND NOT EXISTS (
        SELECT FROM strandline.due d WHERE d.shard_key = e.shard_key AND d.session_key = e.session_key
            AND d.generation_id = g.generation_id AND d.stage = g.entry_stage AND d.from_seq = e.from_seq)
$function$;
