-- begin_batch_v1: fix the next batch of a lane's holder in a row, before any model is called.
--
-- The batch that an earlier holder left open, if all of its events are still due (else it is closed as void, and its
-- answers are deleted, because they refer to messages of a former life); else a new one, of as many
-- due events as fit into p_budget tokens, at least one. An event that failed in a larger batch goes alone. Due work
-- from before a reset is removed, and a receipt says why; unless it was derived before, and is derived again, or the
-- derivation that serves has applied it: then it is memory, which a reset leaves.  Forks
-- that counted on it derive it for themselves.
-- The batch names the lines before its first event that extraction is to see as context (@lines_before), without those
-- that a person took back.  An event that failed before goes without: the cause may have been a line of these.
-- The events of a batch of facts or of a summary have the same acts on capturing (capture_act), as these applied when the events were
-- recorded; the batch names the newest one.
-- The caller has the lane's row locked, and holds its lease. Returns the batch (p_batch_id if it is new) with its
-- events in order; no row if nothing is due, or all of it waits for more (@is_ready): one that is ready takes the others
-- with it.
CREATE FUNCTION strandline.begin_batch_v1(
    p_shard_key uuid,
    p_scope_key uuid,
    p_generation_id integer,
    p_stage text,
    p_lease_epoch bigint,
    p_batch_id uuid,
    p_budget bigint,
    p_max_events integer
) RETURNS TABLE (
    batch_id uuid, event_id uuid, shard_key uuid, session_key uuid, incarnation uuid, cause text,
    from_seq bigint, through_seq bigint, message_count integer, tokens bigint, version smallint,
    created_at timestamptz, traceparent text)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    begun uuid;
    ended uuid[];
    chosen uuid[];
    spent bigint := 0;
    one record;
    failed_before boolean;
    tenant text;
    act bigint;
    first_act bigint;
    moment CONSTANT timestamptz := clock_timestamp();
BEGIN
    SELECT array_agg(d.event_id) INTO ended FROM strandline.due d
        WHERE d.shard_key = p_shard_key AND d.scope_key = p_scope_key
            AND d.generation_id = p_generation_id AND d.stage = p_stage AND NOT d.was_applied
            AND NOT @lives(d, p_shard_key);
    IF ended IS NOT NULL THEN
        WITH known AS (
            UPDATE strandline.due d SET was_applied = true, incarnation = s.incarnation
            FROM strandline.session s, strandline.generation g
            WHERE d.shard_key = p_shard_key AND d.scope_key = p_scope_key AND d.generation_id = p_generation_id
                AND d.stage = p_stage AND d.event_id = ANY (ended) AND s.shard_key = p_shard_key
                AND s.session_key = d.session_key AND g.generation_id = p_generation_id
                AND @is_memory(p_shard_key, d.event_id, g.pipeline,
                    CASE g.pipeline WHEN 'facts' THEN 'merge' ELSE g.entry_stage END)
            RETURNING d.event_id
        )
        SELECT array_agg(e.event_id) INTO ended FROM unnest(ended) AS e (event_id)
            WHERE e.event_id NOT IN (SELECT k.event_id FROM known k);
    END IF;
    IF ended IS NOT NULL THEN
        -- Forks of that life count on what these events would have given their owner.
        IF EXISTS (
            SELECT FROM strandline.generation g WHERE g.generation_id = p_generation_id
                AND (g.pipeline = 'facts' OR g.entry_scope = 'owner')) THEN
            PERFORM strandline.release_forks_v1(p_shard_key, p_generation_id, ended);
        END IF;
        WITH gone AS (
            DELETE FROM strandline.due d
            WHERE d.shard_key = p_shard_key AND d.scope_key = p_scope_key
                AND d.generation_id = p_generation_id AND d.stage = p_stage AND d.event_id = ANY (ended)
            RETURNING d.event_id
        )
        INSERT INTO strandline.receipt (shard_key, event_id, generation_id, stage, outcome)
            SELECT p_shard_key, g.event_id, p_generation_id, p_stage, 'void' FROM gone g
            ON CONFLICT DO NOTHING;
    END IF;

    FOR one IN
        SELECT b.batch_id, b.event_ids, (
            SELECT count(*) FROM strandline.due d WHERE d.shard_key = p_shard_key
                AND d.scope_key = b.scope_key AND d.generation_id = b.generation_id AND d.stage = b.stage
                AND d.event_id = ANY (b.event_ids)) AS still_due
        FROM strandline.batch b
        WHERE b.shard_key = p_shard_key AND b.scope_key = p_scope_key
            AND b.generation_id = p_generation_id AND b.stage = p_stage AND b.state = 'open'
    LOOP
        IF begun IS NULL AND one.still_due = cardinality(one.event_ids) THEN
            begun := one.batch_id;
            chosen := one.event_ids;
        ELSE
            DELETE FROM strandline.answer a WHERE a.shard_key = p_shard_key AND a.batch_id = one.batch_id;
            UPDATE strandline.batch b SET state = 'void', closed_at = moment
                WHERE b.shard_key = p_shard_key AND b.batch_id = one.batch_id;
        END IF;
    END LOOP;

    IF begun IS NULL THEN
        IF NOT EXISTS (
            SELECT FROM strandline.due d WHERE d.shard_key = p_shard_key AND d.scope_key = p_scope_key
                AND d.generation_id = p_generation_id AND d.stage = p_stage AND @is_ready(d, moment)) THEN
            RETURN;
        END IF;
        IF p_stage IN ('extract', 'merge', 'summary') THEN
            SELECT d.namespace INTO tenant FROM strandline.due d
                WHERE d.shard_key = p_shard_key AND d.scope_key = p_scope_key
                    AND d.generation_id = p_generation_id AND d.stage = p_stage LIMIT 1;
            IF NOT EXISTS (SELECT FROM strandline.capture_act a WHERE a.namespace = tenant) THEN
                tenant := NULL;
            END IF;
        END IF;
        FOR one IN
            SELECT d.* FROM @due_in_lane(p_shard_key, p_scope_key, p_generation_id, p_stage, p_max_events) AS d
        LOOP
            IF tenant IS NOT NULL THEN
                SELECT @capture_number(tenant, p_shard_key, e.created_at) INTO act FROM strandline.flush_event e
                    WHERE e.shard_key = p_shard_key AND e.event_id = one.event_id;
            END IF;
            EXIT WHEN chosen IS NOT NULL
                AND (one.was_split OR spent + one.tokens > p_budget OR act IS DISTINCT FROM first_act);
            first_act := act;
            chosen := chosen || one.event_id;
            spent := spent + one.tokens;
            failed_before := one.was_split;
            EXIT WHEN one.was_split;
        END LOOP;
        IF chosen IS NULL THEN
            RETURN;
        END IF;
        begun := p_batch_id;
        INSERT INTO strandline.batch (
                shard_key, batch_id, scope_key, generation_id, stage, lease_epoch, event_ids,
                capture_number, capture_hash, context_seqs)
            SELECT p_shard_key, begun, p_scope_key, p_generation_id, p_stage, p_lease_epoch, chosen,
                first_act, @capture_hash(tenant, p_shard_key, first_act), coalesce((
                SELECT array_agg(line.seq ORDER BY line.seq)
                FROM @lines_before(p_shard_key, p_generation_id, p_stage, chosen[1]) AS line
                WHERE NOT failed_before AND NOT @is_taken_back(p_shard_key, line)), '{}');
    END IF;

    RETURN QUERY
        SELECT begun, e.event_id, e.shard_key, e.session_key, e.incarnation, e.cause, e.from_seq,
            e.through_seq, e.message_count, e.tokens, e.version, e.created_at, e.traceparent
        FROM unnest(chosen) WITH ORDINALITY AS w (event_id, place)
        JOIN strandline.flush_event e ON e.shard_key = p_shard_key AND e.event_id = w.event_id
        ORDER BY w.place;
END
$function$;
