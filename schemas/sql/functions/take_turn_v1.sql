-- take_turn_v1: choose the lane whose turn it is in a stage (next_lane_v1), and claim it, in one step.
--
-- If no lane waits for a turn, the lane that the hint names is claimed, if it has work that next_lane_v1 does not
-- look for or that came too late to be seen. Returns the lease; and before it, or alone, without a scope_key, how far
-- the round went in vain: the next call continues there, so that lanes that cannot be claimed now are not met again
-- before all others.
CREATE FUNCTION strandline.take_turn_v1(
    p_stage text,
    p_precedences smallint[],
    p_after text,
    p_namespaces text[],
    p_owners uuid[],
    p_skipped_generations integer[],
    p_hinted_shard_key uuid,
    p_hinted_scope_key uuid,
    p_hinted_generation_id integer,
    p_worker_id uuid,
    p_dead_after_seconds double precision,
    p_deadline_seconds double precision
) RETURNS TABLE (
    shard_key uuid, scope_key uuid, generation_id integer, lease_epoch bigint, postponements integer,
    failures integer, crashes integer, namespace text, has_lane_limit boolean, has_budget boolean)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    after text := p_after;
    namespaces text[] := p_namespaces;
    owners uuid[] := p_owners;
    looks integer := 0;
    one record;
    lease record;
BEGIN
    -- At most twice as many lanes that cannot be claimed are skipped as are examined in one go.
    -- A turn is lost if another worker claimed the lane first, or if the lane has to wait for another reason than its
    -- own row.
    FOR attempt IN 1..8 LOOP
        SELECT n.* INTO one FROM strandline.next_lane_v1(
            p_stage, p_precedences, after, namespaces, owners, p_skipped_generations, p_worker_id, p_dead_after_seconds,
            NULL, 256) AS n;
        EXIT WHEN NOT FOUND;
        IF one.scope_key IS NULL THEN
            RETURN QUERY SELECT one.shard_key, NULL::uuid, NULL::integer, NULL::bigint, NULL::integer,
                NULL::integer, NULL::integer, one.namespace, false, false;
            looks := looks + 1;
            EXIT WHEN looks = 2;
        ELSE
            SELECT c.* INTO lease FROM strandline.claim_lane_v1(one.shard_key, one.scope_key, one.generation_id,
                p_stage, p_worker_id, p_dead_after_seconds, p_deadline_seconds) AS c;
            IF FOUND THEN
                RETURN QUERY SELECT one.shard_key, one.scope_key, one.generation_id, lease.lease_epoch,
                    lease.postponements, lease.failures, lease.crashes, lease.namespace, lease.has_lane_limit,
                    lease.has_budget;
                RETURN;
            END IF;
            RETURN QUERY SELECT one.shard_key, NULL::uuid, NULL::integer, NULL::bigint, NULL::integer,
                NULL::integer, NULL::integer, one.namespace, false, false;
            -- Its lanes at work may be counted under a lock (claim_lane_v1), of which no transaction takes two.
            IF EXISTS (SELECT FROM strandline.namespace_limit n WHERE n.namespace = one.namespace) THEN
                RETURN;
            END IF;
        END IF;
        after := one.namespace;
        namespaces := one.namespace || namespaces;
        owners := one.shard_key || owners;
    END LOOP;
    RETURN QUERY
        SELECT p_hinted_shard_key, p_hinted_scope_key, p_hinted_generation_id, c.lease_epoch, c.postponements,
            c.failures, c.crashes, c.namespace, c.has_lane_limit, c.has_budget
        FROM strandline.claim_lane_v1(p_hinted_shard_key, p_hinted_scope_key, p_hinted_generation_id, p_stage,
            p_worker_id, p_dead_after_seconds, p_deadline_seconds) AS c;
END
$function$;
