-- claim_lane_v1: claim a lane that has work and is free, or whose holder is dead or past its deadline, or that has no
-- row yet.
--
-- If the holder is in the middle of a transaction, skip the lane. If another worker is inserting the lane's row,
-- wait; that worker gets the lane.
-- Work that a derivation may not do now (may_derive_v1) cannot be claimed.
-- The clock may have stepped back: a heartbeat that lies ahead by more than the time after which a worker counts as
-- dead does not count, and a wait that begins in the future is over.
-- Lanes of a namespace that may have only so many at work are claimed one after the other, so that they are counted.
-- Returns the lease, with the namespace that the lane's work belongs to, and whether that may have only so many lanes
-- at work (has_lane_limit) or has a budget; no row if it cannot be claimed.
CREATE FUNCTION strandline.claim_lane_v1(
    p_shard_key uuid,
    p_scope_key uuid,
    p_generation_id integer,
    p_stage text,
    p_worker_id uuid,
    p_dead_after_seconds double precision,
    p_deadline_seconds double precision
) RETURNS TABLE (
    lease_epoch bigint, postponements integer, failures integer, crashes integer, namespace text,
    has_lane_limit boolean, has_budget boolean)
LANGUAGE plpgsql
-- All look-ups go by keys, so that any plan is good.
SET plan_cache_mode TO force_generic_plan
AS $function$
#variable_conflict use_column
DECLARE
    wanted text;
    limits record;
    moment timestamptz;
BEGIN
    -- No fence is set for the owner until the lane's row is there.  Whoever is setting one is not waited for.
    IF NOT pg_try_advisory_xact_lock_shared(@owner_lock(p_shard_key)) THEN
        RETURN;
    END IF;
    SELECT d.namespace INTO wanted FROM strandline.due d
        WHERE d.shard_key = p_shard_key AND d.scope_key = p_scope_key
            AND d.generation_id = p_generation_id AND d.stage = p_stage AND @is_ready(d, statement_timestamp()) LIMIT 1;
    IF wanted IS NULL OR NOT strandline.may_derive_v1(p_shard_key, p_generation_id, p_stage) THEN
        RETURN;
    END IF;
    SELECT coalesce(n.max_lanes, n.max_lanes_per_worker) IS NOT NULL AS lanes,
        coalesce(n.calls_per_day, n.tokens_per_day, n.usd_per_day) IS NOT NULL AS budget
    INTO limits FROM strandline.namespace_limit n WHERE n.namespace = wanted;
    IF FOUND THEN
        IF limits.lanes THEN
            PERFORM pg_advisory_xact_lock(hashtextextended(wanted, 0));
        END IF;
        IF NOT strandline.may_start_v1(wanted, p_worker_id, p_dead_after_seconds, 0) THEN
            RETURN;
        END IF;
    END IF;
    -- Not before: the lock above may have been waited for.
    moment := clock_timestamp();
    RETURN QUERY
    WITH free AS (
        SELECT l.holder FROM strandline.lane l
        WHERE l.shard_key = p_shard_key AND l.scope_key = p_scope_key
            AND l.generation_id = p_generation_id AND l.stage = p_stage
            AND (l.next_attempt_at <= moment OR l.postponed_at > moment)
            AND (l.holder IS NULL OR l.deadline_at < moment OR NOT @is_held(l, moment, p_dead_after_seconds))
        FOR UPDATE OF l SKIP LOCKED
    ), taken AS (
        UPDATE strandline.lane l SET
            lease_epoch = l.lease_epoch + 1, holder = p_worker_id, leased_at = moment,
            deadline_at = moment + make_interval(secs => p_deadline_seconds),
            crashes = l.crashes + (free.holder IS NOT NULL)::integer, namespace = wanted
        FROM free
        WHERE l.shard_key = p_shard_key AND l.scope_key = p_scope_key
            AND l.generation_id = p_generation_id AND l.stage = p_stage
        RETURNING l.*
    ), opened AS (
        INSERT INTO strandline.lane (
            shard_key, scope_key, generation_id, stage, lease_epoch, holder, leased_at, deadline_at,
            namespace)
        SELECT p_shard_key, p_scope_key, p_generation_id, p_stage, 1, p_worker_id, moment,
            moment + make_interval(secs => p_deadline_seconds), wanted
        WHERE NOT EXISTS (
            SELECT FROM strandline.lane l
            WHERE l.shard_key = p_shard_key AND l.scope_key = p_scope_key
                AND l.generation_id = p_generation_id AND l.stage = p_stage)
        ON CONFLICT DO NOTHING
        RETURNING *
    ), held AS (
        SELECT * FROM taken UNION ALL SELECT * FROM opened
    )
    SELECT h.lease_epoch, h.postponements, h.failures, h.crashes, wanted,
        coalesce(limits.lanes, false), coalesce(limits.budget, false) FROM held h;
END
$function$;
