-- erase_rows_v1: delete a page of the rows of one table under a key, and count them with the erasure.
--
-- p_column, p_key: only rows of this session or scope; both NULL: all rows of the owner.  The rows of a page are found
-- again by their primary key, whatever that is, so that a new table needs no statement of its own.  They are locked in
-- its order before any of them goes: whoever locks several of them, as a replay does with events, does so in this order.
-- Returns how many there were; fewer than p_limit: no more are left.
CREATE FUNCTION strandline.erase_rows_v1(
    p_number integer, p_table text, p_shard_key uuid, p_column text, p_key uuid, p_limit integer
) RETURNS bigint
LANGUAGE plpgsql AS $function$
DECLARE
    columns text;
    same text;
    gone bigint;
BEGIN
    @lock_unfinished(p_number);
    SELECT string_agg(format('%I', a.attname), ', ' ORDER BY array_position(i.indkey::smallint[], a.attnum)),
            string_agg(format('t.%1$I = p.%1$I', a.attname), ' AND ')
        INTO columns, same
        FROM pg_catalog.pg_index i
        JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::smallint[])
        WHERE i.indrelid = to_regclass(format('strandline.%I', p_table)) AND i.indisprimary;
    EXECUTE format(
        'WITH p AS MATERIALIZED (SELECT %2$s FROM strandline.%1$I WHERE shard_key = $1%3$s'
        || ' ORDER BY %2$s LIMIT $3 FOR UPDATE)'
        || ' DELETE FROM strandline.%1$I t USING p WHERE t.shard_key = $1 AND %4$s',
        p_table, columns, CASE WHEN p_column IS NOT NULL THEN format(' AND %I = $2', p_column) ELSE '' END, same)
        USING p_shard_key, p_key, p_limit;
    GET DIAGNOSTICS gone = ROW_COUNT;
    IF p_table = 'chunk' AND p_column IS NOT NULL AND gone > 0 THEN
        -- Processes keep indexes of what the owner has next to the session.  Of a whole owner these rows go as well.
        @note_change(p_shard_key, 'pieces');
    END IF;
    @count_erased(p_number, p_table, gone);
    RETURN gone;
END
$function$;
