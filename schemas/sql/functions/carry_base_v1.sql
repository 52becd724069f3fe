-- carry_base_v1: begin a new derivation of an owner with the memory that the serving one keeps of removed messages.
--
-- Messages that retention removed cannot be derived again, so their events count as applied in the new derivation, by
-- batches that name where their results come from (carried_from).  Of facts it is what these messages gave: each fact in
-- the words that the last of these events gave it, unless one of them, or a person, ended it; and not what condensing
-- made of them, since a new derivation begins with the parts.  Of ordered lanes it is the last state into which none
-- but removed messages were folded.  Of vectors nothing is left.
-- For a derivation that is being filled, before the owner's events are made due; a second call finds nothing to carry.
-- Returns how many events were carried.
CREATE FUNCTION strandline.carry_base_v1(
    p_shard_key uuid, p_generation_id integer, p_old_id integer, p_stages text[]
) RETURNS integer
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    derived strandline.generation%ROWTYPE;
    scope record;
    base record;
    state record;
    this_batch uuid;
    first_part uuid[];
    carried uuid[] := '{}';
    moment CONSTANT timestamptz := clock_timestamp();
BEGIN
    SELECT * INTO derived FROM strandline.generation g WHERE g.generation_id = p_generation_id;
    FOR scope IN
        SELECT CASE derived.entry_scope WHEN 'owner' THEN p_shard_key ELSE e.session_key END AS scope_key,
            array_agg(e.event_id ORDER BY e.created_at, e.session_key, e.from_seq) AS event_ids
        FROM strandline.flush_event e
        JOIN strandline.receipt r ON r.shard_key = p_shard_key AND r.event_id = e.event_id
            AND r.generation_id = p_old_id AND r.stage = p_stages[cardinality(p_stages)] AND r.outcome = 'applied'
        WHERE e.shard_key = p_shard_key AND @is_event_removed(e, p_shard_key) AND NOT EXISTS (
            SELECT FROM strandline.receipt n WHERE n.shard_key = p_shard_key AND n.event_id = e.event_id
              AND n.generation_id = p_generation_id)
        GROUP BY 1 ORDER BY 1
    LOOP
        base := NULL;
        FOR state IN
            SELECT f.through_seq, f.state, b.event_ids FROM strandline.block_state f
            JOIN strandline.batch b ON b.shard_key = p_shard_key AND b.batch_id = f.batch_id
            WHERE f.shard_key = p_shard_key AND f.scope_key = scope.scope_key AND f.generation_id = p_old_id
            ORDER BY f.ordinal
        LOOP
            EXIT WHEN EXISTS (
                SELECT FROM strandline.flush_event e
                WHERE e.shard_key = p_shard_key AND e.event_id = ANY (state.event_ids)
                  AND NOT @is_event_removed(e, p_shard_key));
            base := state;
        END LOOP;
        first_part := scope.event_ids;
        IF base IS NOT NULL THEN
            -- The last event of the state's batch is the last of the carried one, too.
            first_part := ARRAY(
                SELECT o.event_id FROM unnest(scope.event_ids) AS o (event_id)
                WHERE o.event_id <> base.event_ids[cardinality(base.event_ids)])
                || base.event_ids[cardinality(base.event_ids)];
        END IF;
        this_batch := md5(p_generation_id::text || scope.scope_key::text || first_part[1]::text)::uuid;
        INSERT INTO strandline.batch (
                shard_key, batch_id, scope_key, generation_id, stage, state, lease_epoch, event_ids, closed_at,
                carried_from)
            VALUES (
                p_shard_key, this_batch, scope.scope_key, p_generation_id, derived.entry_stage, 'applied', 0,
                first_part, moment, p_old_id);
        INSERT INTO strandline.receipt (shard_key, event_id, generation_id, stage, outcome, batch_id)
            SELECT p_shard_key, e.event_id, p_generation_id, stages.stage, 'applied', this_batch
            FROM unnest(first_part) AS e (event_id) CROSS JOIN unnest(p_stages) AS stages (stage);
        IF base IS NOT NULL THEN
            INSERT INTO strandline.block_state (
                    shard_key, scope_key, generation_id, ordinal, through_seq, state, batch_id)
                VALUES (
                    p_shard_key, scope.scope_key, p_generation_id, 1, base.through_seq, base.state, this_batch);
        END IF;
        carried := carried || first_part;
    END LOOP;
    IF derived.pipeline = 'facts' AND carried <> '{}' THEN
        PERFORM strandline.carry_facts_v1(p_shard_key, p_generation_id, p_old_id, carried);
    END IF;
    RETURN cardinality(carried);
END
$function$;
