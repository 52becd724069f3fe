-- erase_kept_items_v1: delete items that an adapter kept of an owner, if they are still as they were read.
--
-- p_versions: of each item, the transaction that wrote it (xmin).  Returns how many there were.
CREATE FUNCTION strandline.erase_kept_items_v1(
    p_number integer, p_shard_key uuid, p_paths text[], p_keys text[], p_versions text[]
) RETURNS bigint
LANGUAGE plpgsql AS $function$
DECLARE
    gone bigint;
BEGIN
    @lock_unfinished(p_number);
    DELETE FROM strandline.store_item i USING (
            SELECT o.path, o.key FROM strandline.store_item o
            JOIN unnest(p_paths, p_keys, p_versions) AS k (path, key, version) ON k.path = o.path AND k.key = o.key
            WHERE o.shard_key = p_shard_key AND (k.version IS NULL OR o.xmin::text = k.version)
            ORDER BY o.path, o.key FOR UPDATE OF o) AS p
        WHERE i.shard_key = p_shard_key AND i.path = p.path AND i.key = p.key;
    GET DIAGNOSTICS gone = ROW_COUNT;
    @count_erased(p_number, 'store_item', gone);
    RETURN gone;
END
$function$;
