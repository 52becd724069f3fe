-- part_removed_v1: part batches that are to be given up from events whose messages retention has removed.
--
-- What such an event gave cannot be derived again, so it stays: its events get a batch of their own, which their
-- receipts, candidates and revisions name.  Events that are meant themselves (p_events) are not parted: what is left of
-- them is derived again.
-- The caller has locked the lane and taken it from its holder.
CREATE FUNCTION strandline.part_removed_v1(
    p_shard_key uuid, p_scope_key uuid, p_generation_id integer, p_stage text, p_events uuid[]
) RETURNS void
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    whole record;
    parted uuid[];
    part CONSTANT text := 'part of ';
BEGIN
    FOR whole IN
        SELECT b.* FROM strandline.batch b
        WHERE b.shard_key = p_shard_key AND b.scope_key = p_scope_key AND b.generation_id = p_generation_id
          AND b.stage = p_stage AND b.state = 'applied' AND b.event_ids && p_events AND NOT b.event_ids <@ p_events
    LOOP
        SELECT array_agg(e.event_id ORDER BY array_position(whole.event_ids, e.event_id)) INTO parted
            FROM strandline.flush_event e
            WHERE e.shard_key = p_shard_key AND e.event_id = ANY (whole.event_ids) AND e.event_id <> ALL (p_events)
              AND @is_event_removed(e, p_shard_key);
        CONTINUE WHEN parted IS NULL;
        INSERT INTO strandline.batch (
                shard_key, batch_id, scope_key, generation_id, stage, state, lease_epoch, event_ids, created_at,
                closed_at, carried_from)
            VALUES (
                p_shard_key, md5(part || whole.batch_id::text)::uuid, p_scope_key, p_generation_id, p_stage, 'applied',
                0, parted, whole.created_at, whole.closed_at, whole.carried_from);
        UPDATE strandline.batch b SET event_ids = ARRAY(
                SELECT o.event_id FROM unnest(whole.event_ids) WITH ORDINALITY AS o (event_id, place)
                WHERE o.event_id <> ALL (parted) ORDER BY o.place)
            WHERE b.shard_key = p_shard_key AND b.batch_id = whole.batch_id;
        UPDATE strandline.receipt r SET batch_id = md5(part || whole.batch_id::text)::uuid
            WHERE r.shard_key = p_shard_key AND r.event_id = ANY (parted) AND r.generation_id = p_generation_id
              AND r.batch_id = whole.batch_id;
        UPDATE strandline.fact_candidate c SET batch_id = md5(part || whole.batch_id::text)::uuid
            WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id AND c.event_id = ANY (parted)
              AND c.batch_id = whole.batch_id;
        UPDATE strandline.fact_revision v SET extract_batch_id = md5(part || whole.batch_id::text)::uuid
            WHERE v.shard_key = p_shard_key AND v.generation_id = p_generation_id AND v.event_id = ANY (parted)
              AND v.extract_batch_id = whole.batch_id;
    END LOOP;
END
$function$;
