-- add_data_key_v1: give an owner its first keys, or a further one, unless another process has, or the owner was erased.
--
-- p_number: of the further one; NULL for the first, whose number follows those from before an erasure.
-- The namespace's row of encryption is locked to the end of the transaction, so that a change of its key waits, and
-- then finds what this one wrapped.  Returns false if another key is to wrap, and then nothing was written.
-- With its first keys an owner without any rows has nothing to be sealed.
CREATE FUNCTION strandline.add_data_key_v1(
    p_shard_key uuid, p_number integer, p_namespace text, p_kek_id text, p_wrapped bytea
) RETURNS boolean
LANGUAGE plpgsql AS $function$
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
BEGIN
    IF strandline.look_at_fence_v1(p_shard_key, p_shard_key) IS NOT NULL THEN
        RETURN true;
    END IF;
    PERFORM FROM strandline.encryption e WHERE e.namespace = p_namespace AND e.kek_id = p_kek_id FOR SHARE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO strandline.data_key (shard_key, number, namespace, kek_id, wrapped, settled_at)
        SELECT p_shard_key, coalesce(p_number, @first_data_key(p_shard_key)), p_namespace, p_kek_id, p_wrapped,
            CASE WHEN p_number IS NULL AND NOT EXISTS (
                SELECT FROM strandline.session s WHERE s.shard_key = p_shard_key
            ) AND NOT EXISTS (
                SELECT FROM strandline.fact_event v WHERE v.shard_key = p_shard_key
            ) AND NOT EXISTS (
                SELECT FROM strandline.store_item i WHERE i.shard_key = p_shard_key
            ) AND NOT EXISTS (
                SELECT FROM strandline.shared_session h WHERE h.shard_key = p_shard_key
            ) THEN moment END
        WHERE p_number IS NOT NULL OR NOT EXISTS (
            SELECT FROM strandline.data_key k
            WHERE k.shard_key = p_shard_key AND k.number >= @first_data_key(p_shard_key))
        ON CONFLICT (shard_key, number) DO NOTHING;
    RETURN true;
END
$function$;
