-- erase_items_v1: delete a page of a namespace's items below a path, which the application says are a user's.
--
-- Returns how many there were; fewer than p_limit: no more are left.
CREATE FUNCTION strandline.erase_items_v1(
    p_number integer, p_shard_key uuid, p_path_from text, p_path_before text, p_limit integer
) RETURNS bigint
LANGUAGE plpgsql AS $function$
DECLARE
    gone bigint;
BEGIN
    @lock_unfinished(p_number);
    DELETE FROM strandline.store_item i USING (
            SELECT o.path, o.key FROM strandline.store_item o
            WHERE o.shard_key = p_shard_key AND o.path >= p_path_from AND o.path < p_path_before
            ORDER BY o.path, o.key LIMIT p_limit FOR UPDATE) AS p
        WHERE i.shard_key = p_shard_key AND i.path = p.path AND i.key = p.key;
    GET DIAGNOSTICS gone = ROW_COUNT;
    @count_erased(p_number, 'store_item', gone);
    RETURN gone;
END
$function$;
