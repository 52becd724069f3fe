-- record_call_v1: write a producer's model call into the ledger: under the owner's key, or under that of the erasure if
-- the owner was erased while the model was asked.
CREATE FUNCTION strandline.record_call_v1(
    p_shard_key uuid, p_call_id uuid, p_purpose text, p_batch_id uuid, p_step text, p_model text, p_prompt_hash text,
    p_input_tokens bigint, p_output_tokens bigint, p_seconds double precision, p_cost_usd numeric
) RETURNS void
LANGUAGE plpgsql AS $function$
DECLARE
    erasure CONSTANT integer := strandline.look_at_fence_v1(p_shard_key, p_shard_key);
    ledger uuid;
BEGIN
    SELECT e.ledger_key INTO ledger FROM strandline.erasure e WHERE e.number = erasure;
    INSERT INTO strandline.model_call (shard_key, call_id, stage, batch_id, step, model, prompt_hash, input_tokens,
            output_tokens, seconds, cost_usd)
        VALUES (coalesce(ledger, p_shard_key), p_call_id, p_purpose, p_batch_id, p_step, p_model, p_prompt_hash,
            p_input_tokens, p_output_tokens, p_seconds, p_cost_usd);
END
$function$;
