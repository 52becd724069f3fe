-- move_entries_v1: give a page of an owner's acts that no seal covers yet a random key: they belong to the trail of the
-- namespace, and lead to nobody once the owner's pseudonym is deleted.
--
-- Returns how many there were; fewer than p_limit: no more are left.
CREATE FUNCTION strandline.move_entries_v1(
    p_number integer, p_shard_key uuid, p_ledger_key uuid, p_limit integer
) RETURNS bigint
LANGUAGE plpgsql AS $function$
DECLARE
    entries uuid[];
    moved bigint;
BEGIN
    @lock_unfinished(p_number);
    SELECT array_agg(p.entry_id) INTO entries FROM (
        SELECT e.entry_id FROM strandline.audit_entry e WHERE e.shard_key = p_shard_key
        ORDER BY e.entry_id LIMIT p_limit FOR UPDATE) AS p;
    INSERT INTO strandline.audit_entry (
            shard_key, entry_id, namespace, act, actor, origin, subject, session, seq, count, detail, flags, created_at)
        SELECT p_ledger_key, e.entry_id, e.namespace, e.act, e.actor, e.origin, e.subject, e.session, e.seq, e.count,
            e.detail, e.flags, e.created_at
        FROM strandline.audit_entry e WHERE e.shard_key = p_shard_key AND e.entry_id = ANY (entries);
    DELETE FROM strandline.audit_entry e WHERE e.shard_key = p_shard_key AND e.entry_id = ANY (entries);
    moved := coalesce(cardinality(entries), 0);
    UPDATE strandline.erasure e SET updated_at = statement_timestamp(), steps = e.steps || jsonb_build_object(
            'audit_entry', coalesce((e.steps ->> 'audit_entry')::bigint, 0) + moved)
        WHERE e.number = p_number;
    RETURN moved;
END
$function$;
