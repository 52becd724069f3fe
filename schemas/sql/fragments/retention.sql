-- What a read may show of a session, by the retention of its namespace and its own: text that several statements share
-- (derivations.sql says how it is used).  Where no act was ever recorded this is a look into two empty tables.

-- fragment: applied(column)
-- A number of the retention that applies to a session: its own newest act (chosen), and its namespace's (common) in
-- what that leaves open or has only tightened; NULL: none.
least(nullif(chosen.{column}, 0), CASE WHEN chosen.{column} IS NULL OR '{column}' = ANY (chosen.tightened)
            THEN nullif(common.{column}, 0) END)

-- fragment: retention_of(column, shard_key, session_key, namespace)
(SELECT @applied({column})
    FROM (SELECT) AS one LEFT JOIN LATERAL (
        SELECT own.{column}, own.tightened FROM strandline.session_retention_act own
        WHERE own.shard_key = {shard_key} AND own.session_key = {session_key}
        ORDER BY own.number DESC LIMIT 1) AS chosen ON true LEFT JOIN LATERAL (
        SELECT given.{column} FROM strandline.retention_act given
        WHERE given.namespace = {namespace} ORDER BY given.number DESC LIMIT 1) AS common ON true)

-- fragment: acts_applied(shard_key, session_key, namespace)
-- Joins both acts for all that ``bounds_of`` asks of them: each look of its own costs a read more than this.
LEFT JOIN LATERAL (
        SELECT own.ttl_seconds, own.max_age_seconds, own.tightened FROM strandline.session_retention_act own
        WHERE own.shard_key = {shard_key} AND own.session_key = {session_key}
        ORDER BY own.number DESC LIMIT 1) AS chosen ON true LEFT JOIN LATERAL (
        SELECT given.number, given.ttl_seconds, given.max_age_seconds, given.keeps_important
        FROM strandline.retention_act given
        WHERE given.namespace = {namespace} ORDER BY given.number DESC LIMIT 1) AS common ON true

-- fragment: important(session_key, namespace)
-- The label of important messages, which stay; NULL where the namespace keeps none for that.
CASE WHEN (
        SELECT common.keeps_important FROM strandline.retention_act common
        WHERE common.namespace = {namespace} ORDER BY common.number DESC LIMIT 1) IS NOT FALSE
    THEN @session_number({session_key}) END

-- fragment: own_or_common(column, shard_key, session_key, namespace)
-- The same of any column: what was set, as it was set.
coalesce((
        SELECT own.{column} FROM strandline.session_retention_act own
        WHERE own.shard_key = {shard_key} AND own.session_key = {session_key} ORDER BY own.number DESC LIMIT 1), (
        SELECT common.{column} FROM strandline.retention_act common
        WHERE common.namespace = {namespace} ORDER BY common.number DESC LIMIT 1))

-- fragment: rule_ttl(namespace)
-- Have puts of a namespace look whether a session is past its time, from the shortest that was ever set there (is_ruled).
INSERT INTO strandline.namespace_rule (namespace, least_ttl_seconds)
    SELECT {namespace}, %(ttl_seconds)s::bigint WHERE %(ttl_seconds)s::bigint > 0
    ON CONFLICT (namespace) DO UPDATE SET
        least_ttl_seconds = least(namespace_rule.least_ttl_seconds, excluded.least_ttl_seconds)

-- fragment: acts_of(shard_key, session_key, namespace)
-- The numbers of the acts that apply to a session: its own and its namespace's, 0 for none.  A step goes by those that
-- it was planned by.
ARRAY[coalesce((
        SELECT max(own.number) FROM strandline.session_retention_act own
        WHERE own.shard_key = {shard_key} AND own.session_key = {session_key}), 0), coalesce((
        SELECT max(common.number) FROM strandline.retention_act common WHERE common.namespace = {namespace}), 0)]

-- fragment: is_attempted(step, busy_seconds)
-- Whether a process has begun an attempt at a step, which may be under way.
({step}.attempted_at >= statement_timestamp() - make_interval(secs => {busy_seconds})
        AND {step}.attempted_at > coalesce({step}.failed_at, '-infinity')) IS TRUE

-- fragment: is_left(step)
-- Whether a step that was given up may have left an object in an archive.
({step}.object_name IS NOT NULL AND {step}.archive IS NOT NULL AND {step}.deleted_at IS NULL)

-- fragment: is_expired(session, shard_key, session_key)
-- Whether nobody put to a session for as long as it is kept: then all that it holds is past its time.
({session}.next_seq > {session}.log_start_seq AND coalesce({session}.last_put_at + make_interval(secs => @retention_of(
        ttl_seconds, {shard_key}, {session_key}, {session}.namespace)) <= statement_timestamp(), false))

-- fragment: oldest(shard_key, session_key, namespace)
-- The time from before which messages of a session are past their age.
coalesce(statement_timestamp() - make_interval(secs => @retention_of(
        max_age_seconds, {shard_key}, {session_key}, {namespace})), '-infinity')

-- fragment: bounds_of(session, session_key)
-- What a read may show, in a statement with ``acts_applied``: from which number, from when, and which label stays.
CASE WHEN {session}.next_seq > {session}.log_start_seq AND {session}.last_put_at + make_interval(
                secs => @applied(ttl_seconds)) <= statement_timestamp()
            THEN {session}.next_seq ELSE {session}.log_start_seq END AS shown_from,
        coalesce(statement_timestamp() - make_interval(secs => @applied(max_age_seconds)), '-infinity') AS oldest,
        CASE WHEN common.keeps_important IS NOT FALSE THEN @session_number({session_key}) END AS important

-- fragment: retained(shard_key, session_key)
-- One row: the key of a session, where its log begins, also with what is kept of lives that expired (log_from), where
-- what a read shows begins (shown_from), how old that may be, and the label of important messages, which stay.
(SELECT kept.session_key, coalesce(kept.first_kept, kept.log_start_seq) AS log_from, kept.next_seq,
        kept.pinned_through, @bounds_of(kept, {session_key})
    FROM strandline.session kept @acts_applied({shard_key}, {session_key}, kept.namespace)
    WHERE kept.shard_key = {shard_key} AND kept.session_key = {session_key})

-- fragment: is_shown(message)
-- Whether a read may show a message, in a statement with the CTE ``retained``.
({message}.seq >= (SELECT bounds.shown_from FROM retained bounds)
        AND ({message}.created_at > (SELECT bounds.oldest FROM retained bounds)
            OR {message}.seq <= (SELECT bounds.pinned_through FROM retained bounds))
    OR {message}.labels @> ARRAY[(SELECT bounds.important FROM retained bounds)])

-- fragment: is_within(message, session)
-- The same, of a session with its ``bounds_of``.
({message}.seq >= {session}.shown_from
        AND ({message}.created_at > {session}.oldest OR {message}.seq <= {session}.pinned_through)
    OR {message}.labels @> ARRAY[{session}.important])

-- fragment: is_visible(message, shard_key)
-- The same of a message of any session of an owner; for single ones, such as the hits of a search.
({message}.labels IS NOT NULL AND {message}.labels @> ARRAY[(
        SELECT @important({message}.session_key, held.namespace) FROM strandline.session held
        WHERE held.shard_key = {shard_key} AND held.session_key = {message}.session_key)] OR EXISTS (
        SELECT FROM strandline.session seen
        WHERE seen.shard_key = {shard_key} AND seen.session_key = {message}.session_key
            AND NOT @is_expired(seen, {shard_key}, {message}.session_key)
            AND ({message}.seq BETWEEN seen.log_start_seq AND seen.pinned_through
                OR {message}.created_at > @oldest({shard_key}, {message}.session_key, seen.namespace)))
    AND NOT EXISTS (
        SELECT FROM strandline.expired_life ended
        WHERE ended.shard_key = {shard_key} AND ended.session_key = {message}.session_key
            AND {message}.seq BETWEEN ended.from_seq AND ended.through_seq))

-- fragment: is_shared_visible(message)
-- The same of a copy in a shared scope, by the session that it is of, which lies under its owner's key.
EXISTS (
        SELECT FROM strandline.shared_session lent
        JOIN strandline.session seen ON seen.shard_key = lent.owner_key AND seen.session_key = lent.session_key
        WHERE lent.shard_key = {message}.shard_key AND lent.session_key = {message}.session_key
            AND lent.incarnation = {message}.incarnation
            AND NOT @is_expired(seen, seen.shard_key, seen.session_key)
            AND {message}.created_at > @oldest(seen.shard_key, seen.session_key, seen.namespace)
            AND NOT EXISTS (
                SELECT FROM strandline.expired_life ended
                WHERE ended.shard_key = seen.shard_key AND ended.session_key = seen.session_key
                    AND {message}.seq BETWEEN ended.from_seq AND ended.through_seq))

-- fragment: lives(due, shard_key)
-- Whether the life of a session that due work belongs to has not ended by a reset: one that expired is still derived.
(EXISTS (
        SELECT FROM strandline.session living WHERE living.shard_key = {shard_key}
            AND living.session_key = {due}.session_key AND living.incarnation = {due}.incarnation)
    OR EXISTS (
        SELECT FROM strandline.expired_life ended WHERE ended.shard_key = {shard_key}
            AND ended.session_key = {due}.session_key AND ended.incarnation = {due}.incarnation))

-- fragment: is_removed(shard_key, session_key, seq)
-- Whether retention has taken a number out of a session's log; an important message may be left there.
EXISTS (
        SELECT FROM strandline.retention_step gone
        WHERE gone.shard_key = {shard_key} AND gone.session_key = {session_key} AND gone.from_seq <= {seq}
            AND gone.through_seq >= {seq} AND gone.state = 'removed')

-- fragment: is_event_removed(event, shard_key)
-- Whether all messages of an event were taken out of the log, but for important ones.
(@is_removed({shard_key}, {event}.session_key, {event}.from_seq)
    AND @is_removed({shard_key}, {event}.session_key, {event}.through_seq))

-- fragment: has_removed(events, shard_key)
-- Whether messages of any of some events were taken out of the log.
EXISTS (
        SELECT FROM strandline.flush_event parted
        WHERE parted.shard_key = {shard_key} AND parted.event_id = ANY ({events})
            AND (@is_removed({shard_key}, parted.session_key, parted.from_seq)
                OR @is_removed({shard_key}, parted.session_key, parted.through_seq)))

-- fragment: rows_digest(shard_key, session_key, from_seq, through_seq)
-- A digest of the rows of a range, by which it is known that they are as they were.
(SELECT md5(coalesce(string_agg(concat_ws(' ', part.seq, part.xmin, encode(part.digest, 'hex')), '|'
        ORDER BY part.seq), ''))
    FROM strandline.message part
    WHERE part.shard_key = {shard_key} AND part.session_key = {session_key}
        AND part.seq BETWEEN {from_seq} AND {through_seq})

-- fragment: removed_messages(session, shard_key, session_key)
-- How many messages of a session's log retention has taken out of it, less the important ones of lives that expired,
-- which its history still shows.
coalesce((
        SELECT sum(CASE WHEN gone.from_seq >= {session}.log_start_seq THEN gone.removed
            WHEN gone.from_seq >= {session}.first_kept THEN -cardinality(gone.kept_seqs) ELSE 0 END)
        FROM strandline.retention_step gone
        WHERE gone.shard_key = {shard_key} AND gone.session_key = {session_key} AND gone.state = 'removed'), 0)::bigint
