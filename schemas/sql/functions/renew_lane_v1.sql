-- renew_lane_v1: a batch is done, and what failed before no longer counts: the next one is begun, with the whole
-- deadline again.
--
-- Or, with p_gives_way, the lane is released where another owner waits for a turn, or live work while it would go
-- on with what was imported; then namespace is NULL, and no batch is begun.
-- Returns the lease with the next batch (begin_batch_v1), a row per event; no row if the lease was taken away.
CREATE FUNCTION strandline.renew_lane_v1(
    p_shard_key uuid,
    p_scope_key uuid,
    p_generation_id integer,
    p_stage text,
    p_lease_epoch bigint,
    p_worker_id uuid,
    p_namespace text,
    p_gives_way boolean,
    p_skipped_generations integer[],
    p_dead_after_seconds double precision,
    p_deadline_seconds double precision,
    p_batch_id uuid,
    p_budget bigint,
    p_max_events integer
) RETURNS TABLE (
    lease_epoch bigint, postponements integer, failures integer, crashes integer, namespace text,
    has_lane_limit boolean, has_budget boolean,
    batch_id uuid, event_id uuid, session_key uuid, incarnation uuid, cause text,
    from_seq bigint, through_seq bigint, message_count integer, tokens bigint, version smallint,
    created_at timestamptz, traceparent text)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    next_precedence smallint;
    is_left boolean := false;
    until timestamptz;
BEGIN
    PERFORM FROM strandline.lane l
        WHERE l.shard_key = p_shard_key AND l.scope_key = p_scope_key AND l.generation_id = p_generation_id
          AND l.stage = p_stage AND l.lease_epoch = p_lease_epoch AND l.holder = p_worker_id
        FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF p_gives_way THEN
        SELECT d.precedence INTO next_precedence FROM strandline.due d
            WHERE d.shard_key = p_shard_key AND d.scope_key = p_scope_key
              AND d.generation_id = p_generation_id AND d.stage = p_stage
            ORDER BY d.created_at LIMIT 1;
        is_left := FOUND AND EXISTS (
            SELECT FROM strandline.next_lane_v1(p_stage, (ARRAY[0, 1])[:next_precedence + 1]::smallint[],
                p_namespace, ARRAY[p_namespace], ARRAY[p_shard_key], p_skipped_generations, p_worker_id,
                p_dead_after_seconds, p_namespace, 64) AS n
            WHERE n.scope_key IS NOT NULL AND (n.shard_key <> p_shard_key OR n.precedence < next_precedence));
    END IF;
    until := clock_timestamp() + make_interval(secs => p_deadline_seconds);
    UPDATE strandline.lane l SET postponements = 0, failures = 0, crashes = 0, last_error = NULL,
            holder = CASE WHEN NOT is_left THEN l.holder END, deadline_at = CASE WHEN NOT is_left THEN until END
        WHERE l.shard_key = p_shard_key AND l.scope_key = p_scope_key AND l.generation_id = p_generation_id
          AND l.stage = p_stage;
    postponements := 0;
    failures := 0;
    crashes := 0;
    lease_epoch := p_lease_epoch;
    namespace := CASE WHEN NOT is_left THEN p_namespace END;
    SELECT coalesce(n.max_lanes, n.max_lanes_per_worker) IS NOT NULL,
            coalesce(n.calls_per_day, n.tokens_per_day, n.usd_per_day) IS NOT NULL
        INTO has_lane_limit, has_budget
        FROM strandline.namespace_limit n WHERE n.namespace = p_namespace;
    has_lane_limit := coalesce(has_lane_limit, false);
    has_budget := coalesce(has_budget, false);
    IF NOT is_left THEN
        FOR batch_id, event_id, session_key, incarnation, cause, from_seq, through_seq, message_count,
            tokens, version, created_at, traceparent
        IN SELECT b.batch_id, b.event_id, b.session_key, b.incarnation, b.cause, b.from_seq,
                b.through_seq, b.message_count, b.tokens, b.version, b.created_at, b.traceparent
            FROM strandline.begin_batch_v1(p_shard_key, p_scope_key, p_generation_id, p_stage, p_lease_epoch,
                p_batch_id, p_budget, p_max_events) AS b
        LOOP
            RETURN NEXT;
        END LOOP;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    RETURN NEXT;
END
$function$;
