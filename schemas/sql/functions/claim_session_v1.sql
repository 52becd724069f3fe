-- claim_session_v1: write the directory entry of a new session, or return its owner if it has one.
--
-- erasure: the erasure that keeps the owner or the session away; then nothing was written.  is_encrypted: the namespace
-- seals its content; first_data_key: with the owner's data key of this number, or a later one.
-- full_of: the bound of the namespace that keeps a new session away (look_at_bounds_v1); then nothing was written.
CREATE FUNCTION strandline.claim_session_v1(
    p_directory_key uuid, p_namespace text, p_session_id text, p_user_id text, p_owner_key uuid, p_session_key uuid,
    p_kind text
) RETURNS TABLE (erasure integer, owner_key uuid, is_encrypted boolean, first_data_key integer, full_of text)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
BEGIN
    erasure := strandline.look_at_fence_v1(p_owner_key, p_session_key);
    owner_key := p_owner_key;
    is_encrypted := EXISTS (SELECT FROM strandline.encryption e WHERE e.namespace = p_namespace);
    first_data_key := @first_data_key(p_owner_key);
    IF erasure IS NULL THEN
        SELECT o.owner_key INTO owner_key FROM strandline.session_owner o WHERE o.shard_key = p_directory_key;
        IF NOT FOUND THEN
            owner_key := p_owner_key;
            full_of := strandline.look_at_bounds_v1(p_namespace);
        END IF;
    END IF;
    IF erasure IS NULL AND full_of IS NULL THEN
        INSERT INTO strandline.session_owner (shard_key, namespace, session_id, user_id, owner_key, kind)
            VALUES (p_directory_key, p_namespace, p_session_id, p_user_id, p_owner_key, p_kind)
            ON CONFLICT (shard_key) DO NOTHING;
        IF NOT FOUND THEN
            SELECT o.owner_key INTO owner_key FROM strandline.session_owner o WHERE o.shard_key = p_directory_key;
        END IF;
    END IF;
    RETURN NEXT;
END
$function$;
