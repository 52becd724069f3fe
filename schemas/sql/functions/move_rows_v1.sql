-- move_rows_v1: give a page of an owner's rows of one table the random key of the erasure.  The cost of the namespace
-- stays, and so does its trail; the rows lead to nobody, once the owner's pseudonym is deleted.
--
-- The rows are inserted and deleted, since the key says where a row lies.  They have one key under the owner's.
-- Returns how many there were; fewer than p_limit: no more are left.
CREATE FUNCTION strandline.move_rows_v1(
    p_number integer, p_table text, p_shard_key uuid, p_ledger_key uuid, p_limit integer
) RETURNS bigint
LANGUAGE plpgsql AS $function$
DECLARE
    own_key text;
    columns text;
    keys uuid[];
    moved bigint;
BEGIN
    @lock_unfinished(p_number);
    SELECT string_agg(quote_ident(a.attname), ', '), min(a.attname) FILTER (WHERE a.attnum = ANY (i.indkey::smallint[]))
        INTO columns, own_key
        FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum > 0
            AND NOT a.attisdropped AND a.attname <> 'shard_key'
        WHERE i.indrelid = to_regclass(format('strandline.%I', p_table)) AND i.indisprimary;
    EXECUTE format('SELECT array_agg(p.key) FROM (SELECT %2$I AS key FROM strandline.%1$I WHERE shard_key = $1'
        || ' ORDER BY key LIMIT $2 FOR UPDATE) AS p', p_table, own_key) INTO keys USING p_shard_key, p_limit;
    EXECUTE format('INSERT INTO strandline.%1$I (shard_key, %3$s) SELECT $2, %3$s FROM strandline.%1$I'
        || ' WHERE shard_key = $1 AND %2$I = ANY ($3)', p_table, own_key, columns)
        USING p_shard_key, p_ledger_key, keys;
    EXECUTE format('DELETE FROM strandline.%1$I WHERE shard_key = $1 AND %2$I = ANY ($2)', p_table, own_key)
        USING p_shard_key, keys;
    moved := coalesce(cardinality(keys), 0);
    UPDATE strandline.erasure e SET updated_at = statement_timestamp(), steps = e.steps || jsonb_build_object(
            p_table, coalesce((e.steps ->> p_table)::bigint, 0) + moved)
        WHERE e.number = p_number;
    RETURN moved;
END
$function$;
