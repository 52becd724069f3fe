-- next_lane_v1: the lane whose turn it is in a stage: one with live work and without a holder, of the namespace after
-- the one served last, and in it of the owner after the one served last there.
--
-- Namespaces and owners go round, in the order of the index due_by_turn, which is entered at the current position and
-- never read as a whole; within an owner the oldest work comes first.  A namespace whose owner was not noted begins
-- anywhere, so that workers rarely look at the same lanes.  Work of the first of p_precedences comes before all work
-- of the second (0: live; 1: imported, or derived again).
-- Namespaces that wait for their budget, or have as many lanes at work as they may, get none; a lane of this worker
-- that would be released for another one is not counted in its namespace, p_leaving (NULL without such a lane).
-- The caller locks the lane it gets until its transaction ends, and skips lanes locked by others, so that no worker
-- waits for another here.
-- Lanes that claim_lane_v1 would refuse are skipped, and work that waits for more (@is_ready); a lane is examined once, however much of its work is due.
-- Returns the lane. Without a scope_key: p_looks lanes, or 64 times as many pieces of their work, were examined in
-- vain, and the round continues after this owner. No row: the whole round found nothing.
CREATE FUNCTION strandline.next_lane_v1(
    p_stage text,
    p_precedences smallint[],
    p_after text,
    p_namespaces text[],
    p_owners uuid[],
    p_skipped_generations integer[],
    p_worker_id uuid,
    p_dead_after_seconds double precision,
    p_leaving text,
    p_looks integer
) RETURNS TABLE (namespace text, shard_key uuid, scope_key uuid, generation_id integer, precedence smallint)
LANGUAGE plpgsql
-- A plan cached while little is due would sort all due work.
SET enable_sort TO off
SET enable_bitmapscan TO off
SET plan_cache_mode TO force_generic_plan
AS $function$
#variable_conflict use_column
DECLARE
    lowest CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    highest CONSTANT uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    rank smallint;
    half integer;
    reached text;
    here text;
    from_owner uuid;
    owners_half integer;
    looked integer := 0;
    rows_left integer := p_looks * 64;
    owner uuid;
    passed text[];
    lane text;
    one record;
    moment timestamptz;
    is_free boolean;
BEGIN
    FOREACH rank IN ARRAY p_precedences LOOP
        FOR half IN 1..2 LOOP
            reached := CASE half WHEN 1 THEN p_after ELSE '' END;
            LOOP
                SELECT d.namespace INTO here FROM strandline.due d
                WHERE d.stage = p_stage AND d.precedence = rank AND d.ring_at < 'infinity'
                    AND d.namespace > reached
                ORDER BY d.namespace LIMIT 1;
                EXIT WHEN here IS NULL OR (half = 2 AND here > p_after COLLATE "C");
                reached := here;
                CONTINUE WHEN NOT strandline.may_start_v1(here, p_worker_id, p_dead_after_seconds,
                    (here IS NOT DISTINCT FROM p_leaving)::integer);
                from_owner := coalesce(p_owners[array_position(p_namespaces, here)], gen_random_uuid());
                FOR owners_half IN 1..2 LOOP
                    FOR one IN
                        SELECT d.shard_key, d.scope_key, d.generation_id, d.ready_at, d.created_at
                        FROM strandline.due d
                        WHERE d.stage = p_stage AND d.precedence = rank AND d.ring_at < 'infinity'
                            AND d.namespace = here
                            AND d.shard_key > CASE owners_half WHEN 1 THEN from_owner ELSE lowest END
                            AND d.shard_key <= CASE owners_half WHEN 1 THEN highest ELSE from_owner END
                        ORDER BY d.shard_key, d.created_at
                    LOOP
                        lane := one.scope_key || ' ' || one.generation_id;
                        IF owner IS DISTINCT FROM one.shard_key THEN
                            owner := one.shard_key;
                            passed := '{}';
                        END IF;
                        rows_left := rows_left - 1;
                        moment := clock_timestamp();
                        IF @is_ready(one, moment) AND lane <> ALL (passed) THEN
                            is_free := one.generation_id <> ALL (p_skipped_generations) AND NOT EXISTS (
                                SELECT FROM strandline.lane l
                                WHERE l.shard_key = one.shard_key AND l.scope_key = one.scope_key
                                    AND l.generation_id = one.generation_id AND l.stage = p_stage
                                    AND @is_taken(l, moment, p_dead_after_seconds));
                            IF is_free
                                AND strandline.may_derive_v1(one.shard_key, one.generation_id, p_stage)
                                AND pg_try_advisory_xact_lock(hashtextextended(
                                    one.scope_key::text || p_stage, one.generation_id))
                            THEN
                                RETURN QUERY SELECT here, one.shard_key, one.scope_key, one.generation_id, rank;
                                RETURN;
                            END IF;
                            passed := passed || lane;
                            looked := looked + 1;
                        END IF;
                        IF looked >= p_looks OR rows_left <= 0 THEN
                            RETURN QUERY SELECT here, one.shard_key, NULL::uuid, NULL::integer, rank;
                            RETURN;
                        END IF;
                    END LOOP;
                END LOOP;
            END LOOP;
        END LOOP;
    END LOOP;
END
$function$;
