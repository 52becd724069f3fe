-- store_answer_v1: store a raw answer and its cost, if the lease still holds; an answer already there stays.
--
-- On the disk when it returns, also on a connection that does not wait for that: it was paid for.
-- Returns whether it is the first answer to its question; no row if the lease was taken away, or the batch is over.
CREATE FUNCTION strandline.store_answer_v1(
    p_shard_key uuid,
    p_scope_key uuid,
    p_generation_id integer,
    p_stage text,
    p_lease_epoch bigint,
    p_worker_id uuid,
    p_batch_id uuid,
    p_step text,
    p_model text,
    p_prompt_hash text,
    p_body bytea,
    p_input_tokens bigint,
    p_output_tokens bigint,
    p_seconds double precision,
    p_cost_usd numeric
) RETURNS TABLE (is_first boolean)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    this_call CONSTANT uuid := gen_random_uuid();
BEGIN
    PERFORM FROM strandline.lane l
        WHERE l.shard_key = p_shard_key AND l.scope_key = p_scope_key AND l.generation_id = p_generation_id
          AND l.stage = p_stage AND l.lease_epoch = p_lease_epoch AND l.holder = p_worker_id
          AND EXISTS (
            SELECT FROM strandline.batch b
            WHERE b.shard_key = p_shard_key AND b.batch_id = p_batch_id AND b.state = 'open')
        FOR UPDATE OF l;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM set_config('synchronous_commit', 'on', true);
    INSERT INTO strandline.answer (shard_key, batch_id, step, model, prompt_hash, body)
        VALUES (p_shard_key, p_batch_id, p_step, p_model, p_prompt_hash, p_body)
        ON CONFLICT DO NOTHING;
    is_first := FOUND;
    INSERT INTO strandline.model_call (shard_key, call_id, generation_id, stage, batch_id, step, model, prompt_hash,
            input_tokens, output_tokens, seconds, cost_usd)
        VALUES (p_shard_key, this_call, p_generation_id, p_stage, p_batch_id, p_step, p_model, p_prompt_hash,
            p_input_tokens, p_output_tokens, p_seconds, p_cost_usd);
    RETURN NEXT;
END
$function$;
