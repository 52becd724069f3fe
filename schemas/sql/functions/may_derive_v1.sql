-- may_derive_v1: whether an owner's work in a stage of a derivation may be done now.
--
-- Never in a retired derivation, nor for an owner who was erased. In one that is being filled, an owner's work may begin when all of it is due, so
-- that an ordered lane begins at the beginning; and facts are merged when every event flushed before the derivation
-- began is extracted, so that they are merged in the order of the messages. If an owner is about to be switched, the
-- serving derivation waits until the other one has caught up, for a minute at most (the clock may have stepped back).
CREATE FUNCTION strandline.may_derive_v1(p_shard_key uuid, p_generation_id integer, p_stage text) RETURNS boolean
LANGUAGE plpgsql
-- All look-ups go by keys, so that any plan is good.
SET plan_cache_mode TO force_generic_plan
AS $function$
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
BEGIN
    RETURN EXISTS (
        SELECT FROM strandline.generation g
        WHERE g.generation_id = p_generation_id AND g.state <> 'retired'
            AND (g.backfilled_through IS NULL OR p_shard_key <= g.backfilled_through)
            AND NOT (g.state = 'feeding' AND p_stage <> g.entry_stage AND EXISTS (
                SELECT FROM strandline.due d WHERE d.shard_key = p_shard_key AND d.stage = g.entry_stage
                    AND d.generation_id = g.generation_id AND d.created_at < g.created_at))
            AND NOT @is_fenced(p_shard_key)
            AND NOT EXISTS (
                SELECT FROM strandline.scope_generation s WHERE s.shard_key = p_shard_key
                    AND s.pipeline = g.pipeline AND s.generation_id = g.generation_id
                    AND s.paused_until BETWEEN moment AND moment + interval '1 minute'));
END
$function$;
