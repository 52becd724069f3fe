-- erase_directory_v1: delete a page of an owner's directory entries, those of sessions that were never put to included.
--
-- By p_directory_key (one session), or else by the user's name, or, where no name is known (an erasure that is repeated
-- after a restore), by going through the whole directory.
-- Returns how many there were; fewer than p_limit: no more are left.
CREATE FUNCTION strandline.erase_directory_v1(
    p_number integer, p_owner_key uuid, p_directory_key uuid, p_namespace text, p_user_id text, p_limit integer
) RETURNS bigint
LANGUAGE plpgsql AS $function$
DECLARE
    entries uuid[];
    gone bigint;
BEGIN
    @lock_unfinished(p_number);
    IF p_directory_key IS NOT NULL THEN
        entries := ARRAY[p_directory_key];
    ELSIF p_user_id IS NOT NULL THEN
        SELECT array_agg(p.shard_key) INTO entries FROM (
            SELECT o.shard_key FROM strandline.session_owner o
            WHERE o.namespace = p_namespace AND o.user_id = p_user_id AND o.owner_key = p_owner_key
            LIMIT p_limit) AS p;
    ELSE
        SELECT array_agg(p.shard_key) INTO entries FROM (
            SELECT o.shard_key FROM strandline.session_owner o WHERE o.owner_key = p_owner_key LIMIT p_limit) AS p;
    END IF;
    DELETE FROM strandline.session_owner o WHERE o.shard_key = ANY (entries) AND o.owner_key = p_owner_key;
    GET DIAGNOSTICS gone = ROW_COUNT;
    @count_erased(p_number, 'session_owner', gone);
    RETURN gone;
END
$function$;
