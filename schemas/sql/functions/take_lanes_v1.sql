-- take_lanes_v1: lock all lanes of a session and its owner, and take them from their holders.  For those who then give
-- up what was derived from the session.
--
-- With the lanes that no worker has opened yet: one that opened a lane in the meantime would hold it, with what it had loaded,
-- and leave a batch of events that are gone.  These come after the others, since an edit that holds the others may be
-- making the same row, and would wait for it.
-- A replay that makes work of an event holds its row until it commits, a worker that is just applying holds that of
-- what is due.  Both are waited for here, before a put would have to wait as well.
CREATE FUNCTION strandline.take_lanes_v1(p_shard_key uuid, p_session_key uuid) RETURNS void
LANGUAGE plpgsql AS $function$
BEGIN
    @lock_lanes(p_shard_key, p_session_key);
    INSERT INTO strandline.lane (shard_key, scope_key, generation_id, stage)
        SELECT p_shard_key, opened.scope_key, opened.generation_id, opened.stage FROM (
            SELECT CASE g.entry_scope WHEN 'owner' THEN p_shard_key ELSE p_session_key END AS scope_key,
                g.generation_id, g.entry_stage AS stage
            FROM strandline.generation g
            WHERE g.state <> 'retired'
              AND (g.entry_scope = 'owner' OR g.pipeline = ANY (@ever_fed(p_shard_key, p_session_key)))
            UNION ALL
            SELECT p_shard_key, g.generation_id, 'merge' FROM strandline.generation g
            WHERE g.state <> 'retired' AND g.pipeline = 'facts'
        ) AS opened
        WHERE EXISTS (
            SELECT FROM strandline.session s WHERE s.shard_key = p_shard_key AND s.session_key = p_session_key)
        ORDER BY opened.scope_key, opened.generation_id, opened.stage
        ON CONFLICT DO NOTHING;
    @lock_lanes(p_shard_key, p_session_key);
    UPDATE strandline.lane l SET lease_epoch = l.lease_epoch + 1, holder = NULL
        WHERE l.shard_key = p_shard_key AND l.scope_key IN (p_session_key, p_shard_key);
    PERFORM FROM strandline.flush_event e
        WHERE e.shard_key = p_shard_key AND e.session_key = p_session_key ORDER BY e.from_seq FOR UPDATE;
    PERFORM FROM strandline.due d
        WHERE d.shard_key = p_shard_key AND d.session_key = p_session_key
        ORDER BY d.generation_id, d.stage, d.from_seq FOR UPDATE;
END
$function$;
