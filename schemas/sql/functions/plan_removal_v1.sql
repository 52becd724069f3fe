-- plan_removal_v1: the next step of a session's retention: a range of messages that is past its time, written down.
--
-- A life that expired goes whole, in ranges of at most so many messages and bytes; of the present life whole events
-- that are past their age or number, behind the pinned head and from below, each once every derivation has it.
-- A step that is under way comes first, and there is one at a time; unless acts on retention were recorded since it was
-- planned: then it is given up, and what applies now is planned.  An attempt at it that may be under way is left alone.
-- status: 'step' (there is a row, new or under way), 'waiting' (workers still derive what is to go), 'undelivered' (it
-- has to be delivered first: of the life that is named, or of the present one), 'nothing'.
CREATE FUNCTION strandline.plan_removal_v1(
    p_shard_key uuid, p_session_key uuid, p_max_messages bigint, p_max_bytes bigint, p_busy_seconds float8
) RETURNS TABLE (status text, from_seq bigint, incarnation uuid, has_given_up boolean)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    s strandline.session%ROWTYPE;
    life strandline.expired_life%ROWTYPE;
    begin_seq bigint;
    end_seq bigint;
    number_seq bigint;
    reason text;
    oldest timestamptz;
    keep bigint;
    plan_acts bigint[];
    event record;
    past record;
    spent bigint := 0;
    spent_bytes bigint := 0;
    moment CONSTANT timestamptz := clock_timestamp();
    new_id CONSTANT uuid := gen_random_uuid();
BEGIN
    status := 'nothing';
    has_given_up := false;
    SELECT * INTO s FROM strandline.session t
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key;
    IF FOUND AND @is_expired(s, p_shard_key, p_session_key) THEN
        PERFORM strandline.expire_v1(p_shard_key, p_session_key);
    END IF;
    SELECT * INTO s FROM strandline.session t
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key;
    IF NOT FOUND THEN
        RETURN NEXT;
        RETURN;
    END IF;
    plan_acts := @acts_of(p_shard_key, p_session_key, s.namespace);
    SELECT 'step', o.from_seq, o.incarnation INTO status, from_seq, incarnation FROM strandline.retention_step o
        WHERE o.shard_key = p_shard_key AND o.session_key = p_session_key AND o.state <> 'removed';
    IF FOUND THEN
        -- Never waited for: who removes holds a step's row, and waits for the session's, which may be locked here.
        PERFORM FROM strandline.retention_step o
            WHERE o.shard_key = p_shard_key AND o.session_key = p_session_key AND o.state <> 'removed'
              AND o.acts <> plan_acts AND NOT @is_attempted(o, p_busy_seconds)
            FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN NEXT;
            RETURN;
        END IF;
        has_given_up := strandline.give_up_step_v1(p_shard_key, p_session_key, 'the retention was changed');
        from_seq := NULL;
        incarnation := NULL;
    END IF;
    status := 'nothing';
    FOR life IN
        SELECT * FROM strandline.expired_life l
        WHERE l.shard_key = p_shard_key AND l.session_key = p_session_key AND l.removed_at IS NULL
        ORDER BY l.from_seq
    LOOP
        incarnation := life.incarnation;
        IF life.flushed_through < life.through_seq AND EXISTS (
            SELECT FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key
              AND m.seq > life.flushed_through AND m.seq <= life.through_seq) THEN
            status := 'undelivered';
        ELSIF EXISTS (
            SELECT FROM strandline.due d
            WHERE d.shard_key = p_shard_key AND d.session_key = p_session_key
              AND d.from_seq BETWEEN life.from_seq AND life.through_seq) THEN
            status := 'waiting';
        END IF;
        IF status <> 'nothing' THEN
            RETURN NEXT;
            RETURN;
        END IF;
        SELECT greatest(life.from_seq, coalesce(max(g.through_seq), 0) + 1) INTO begin_seq
            FROM strandline.retention_step g
            WHERE g.shard_key = p_shard_key AND g.session_key = p_session_key AND g.through_seq <= life.through_seq;
        IF begin_seq <= life.through_seq THEN
            SELECT max(r.seq) INTO end_seq FROM (
                SELECT m.seq, row_number() OVER (ORDER BY m.seq) AS place, sum(m.bytes) OVER (ORDER BY m.seq) AS bytes
                FROM strandline.message m
                WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key
                  AND m.seq BETWEEN begin_seq AND life.through_seq
                ORDER BY m.seq LIMIT p_max_messages) AS r
            WHERE r.place = 1 OR r.bytes <= p_max_bytes;
            IF end_seq IS NULL OR NOT EXISTS (
                SELECT FROM strandline.message m
                WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key
                  AND m.seq > end_seq AND m.seq <= life.through_seq) THEN
                end_seq := life.through_seq;
            END IF;
            reason := 'ttl';
            EXIT;
        END IF;
        UPDATE strandline.expired_life l SET removed_at = moment
            WHERE l.shard_key = p_shard_key AND l.session_key = p_session_key AND l.incarnation = life.incarnation;
    END LOOP;
    oldest := @oldest(p_shard_key, p_session_key, s.namespace);
    IF reason IS NULL AND s.log_start_seq > 1 THEN
        -- What a reset left of a life goes whole, once the newest of it is past its age, or as long ago as a session is
        -- kept.
        SELECT m.incarnation INTO incarnation FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq < s.log_start_seq
              AND NOT EXISTS (
                SELECT FROM strandline.expired_life l WHERE l.shard_key = p_shard_key
                  AND l.session_key = p_session_key AND l.incarnation = m.incarnation)
            GROUP BY m.incarnation
            HAVING max(m.created_at) <= greatest(oldest, moment - make_interval(secs => @retention_of(
                ttl_seconds, p_shard_key, p_session_key, s.namespace)))
            ORDER BY min(m.seq) LIMIT 1;
        IF FOUND THEN
            SELECT min(r.seq), max(r.seq) INTO begin_seq, end_seq FROM (
                SELECT m.seq, row_number() OVER (ORDER BY m.seq) AS place, sum(m.bytes) OVER (ORDER BY m.seq) AS bytes
                FROM strandline.message m
                WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key AND m.seq < s.log_start_seq
                  AND m.incarnation = plan_removal_v1.incarnation AND NOT @is_removed(p_shard_key, p_session_key, m.seq)
                ORDER BY m.seq LIMIT p_max_messages) AS r
            WHERE r.place = 1 OR r.bytes <= p_max_bytes;
            reason := CASE WHEN end_seq IS NOT NULL THEN 'age' END;
        END IF;
    END IF;
    IF reason IS NULL THEN
        keep := @retention_of(max_messages, p_shard_key, p_session_key, s.namespace);
        incarnation := s.incarnation;
        IF keep IS NOT NULL THEN
            SELECT m.seq INTO number_seq FROM strandline.message m
                WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key
                  AND m.seq > s.pinned_through AND m.seq < s.next_seq
                ORDER BY m.seq DESC OFFSET keep - 1 LIMIT 1;
        END IF;
        SELECT greatest(s.pinned_through, coalesce(max(g.through_seq), 0)) + 1 INTO begin_seq
            FROM strandline.retention_step g
            WHERE g.shard_key = p_shard_key AND g.session_key = p_session_key AND g.from_seq >= s.log_start_seq;
        FOR event IN
            SELECT e.from_seq, e.through_seq FROM strandline.flush_event e
            WHERE (oldest > '-infinity' OR number_seq IS NOT NULL)
              AND e.shard_key = p_shard_key AND e.session_key = p_session_key AND e.from_seq >= begin_seq
              AND e.incarnation = s.incarnation
            ORDER BY e.from_seq
        LOOP
            SELECT count(*) AS messages, coalesce(sum(m.bytes), 0) AS bytes,
                    coalesce(bool_and(m.created_at <= oldest) FILTER (
                        WHERE (m.labels @> ARRAY[@important(p_session_key, s.namespace)]) IS NOT TRUE), true) AS is_old
                INTO past FROM strandline.message m
                WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key
                  AND m.seq BETWEEN event.from_seq AND event.through_seq;
            EXIT WHEN NOT (past.is_old AND oldest > '-infinity') AND (event.through_seq < number_seq) IS NOT TRUE;
            IF EXISTS (
                SELECT FROM strandline.due d
                WHERE d.shard_key = p_shard_key AND d.session_key = p_session_key
                  AND d.from_seq BETWEEN event.from_seq AND event.through_seq) THEN
                status := 'waiting';
                EXIT;
            END IF;
            EXIT WHEN end_seq IS NOT NULL
                AND (spent + past.messages > p_max_messages OR spent_bytes + past.bytes > p_max_bytes);
            end_seq := event.through_seq;
            spent := spent + past.messages;
            spent_bytes := spent_bytes + past.bytes;
            reason := coalesce(reason, CASE WHEN past.is_old AND oldest > '-infinity' THEN 'age' ELSE 'number' END);
        END LOOP;
        IF reason IS NULL AND status = 'nothing' AND EXISTS (
            SELECT FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key
              AND m.seq > s.flushed_through AND m.seq < s.next_seq
              AND (m.created_at <= oldest OR m.seq < number_seq)
              AND (m.labels @> ARRAY[@important(p_session_key, s.namespace)]) IS NOT TRUE) THEN
            status := 'undelivered';
        END IF;
    END IF;
    IF reason IS NOT NULL THEN
        status := 'step';
        from_seq := begin_seq;
        INSERT INTO strandline.retention_step (
                shard_key, session_key, from_seq, through_seq, step_id, incarnation, cause, forget_facts, archive, acts)
            SELECT p_shard_key, p_session_key, begin_seq, end_seq, new_id, plan_removal_v1.incarnation,
                reason, coalesce(@own_or_common(forget_facts, p_shard_key, p_session_key, s.namespace), false),
                nullif(@own_or_common(archive, p_shard_key, p_session_key, s.namespace), ''),
                plan_acts
            ON CONFLICT DO NOTHING;
    END IF;
    RETURN NEXT;
END
$function$;
