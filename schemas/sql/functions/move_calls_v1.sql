-- move_calls_v1: give a page of an owner's model calls the random key of the erasure: the cost of the namespace stays
-- known, and nothing leads from a call to the owner.
--
-- Returns how many there were; fewer than p_limit: no more are left.
CREATE FUNCTION strandline.move_calls_v1(
    p_number integer, p_shard_key uuid, p_ledger_key uuid, p_limit integer
) RETURNS bigint
LANGUAGE plpgsql AS $function$
DECLARE
    calls uuid[];
    moved bigint;
BEGIN
    @lock_unfinished(p_number);
    SELECT array_agg(p.call_id) INTO calls FROM (
        SELECT m.call_id FROM strandline.model_call m WHERE m.shard_key = p_shard_key
        ORDER BY m.call_id LIMIT p_limit FOR UPDATE) AS p;
    moved := coalesce(cardinality(calls), 0);
    INSERT INTO strandline.model_call (shard_key, call_id, generation_id, stage, batch_id, step, model, prompt_hash,
            input_tokens, output_tokens, seconds, cost_usd, created_at)
        SELECT p_ledger_key, m.call_id, m.generation_id, m.stage, m.batch_id, m.step, m.model, m.prompt_hash,
            m.input_tokens, m.output_tokens, m.seconds, m.cost_usd, m.created_at
        FROM strandline.model_call m WHERE m.shard_key = p_shard_key AND m.call_id = ANY (calls);
    DELETE FROM strandline.model_call m WHERE m.shard_key = p_shard_key AND m.call_id = ANY (calls);
    UPDATE strandline.erasure e SET updated_at = statement_timestamp(), steps = e.steps || jsonb_build_object(
            'model_call', coalesce((e.steps ->> 'model_call')::bigint, 0) + moved)
        WHERE e.number = p_number;
    RETURN moved;
END
$function$;
