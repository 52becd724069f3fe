-- Messages of the log: text that several statements share (derivations.sql says how it is used).

-- fragment: is_logged(message)
-- Whether a message belongs to the log as it is now, and may be shown, in a statement with the CTE ``retained``: a reset
-- begins the log again behind the messages there were.
-- (Not as a join: where the planner expects one message, it would look the session up for each.)
({message}.seq >= (SELECT logging.log_from FROM retained logging)
    AND {message}.seq < (SELECT logging.next_seq FROM retained logging) AND @is_shown({message}))

-- fragment: is_of_log(message)
-- The same of a message of any session, where a page is read in the order of the log.
-- (The CTE names the session.  A plan for its key would know that it is long, guess that the bounds leave a page of it,
-- and then read all of it to sort that page.)
({message}.shard_key = %(shard_key)s AND {message}.session_key = (SELECT logging.session_key FROM retained logging)
    AND @is_logged({message}))

-- fragment: numbered(seq)
-- The session's message with a number. The limit keeps this a look-up per number, and the order leads to the index that
-- has it, also in a plan without statistics.
(SELECT looked.* FROM strandline.message looked
    WHERE looked.shard_key = %(shard_key)s AND looked.session_key = %(session_key)s
        AND looked.seq BETWEEN {seq} AND {seq}
    ORDER BY looked.seq LIMIT 1)

-- fragment: undelivered(session)
-- How many messages of a session's window no flush has delivered yet; 0 if it feeds no pipeline.
CASE WHEN cardinality({session}.pipelines) = 0 THEN 0
    WHEN {session}.flushed_through < {session}.window_from THEN {session}.window_messages
    ELSE {session}.next_seq - 1 - {session}.flushed_through END

-- fragment: deliver_at(session)
-- When its idle delivery is, if nobody puts to it before.
{session}.last_put_at + make_interval(secs => {session}.idle_seconds)

-- fragment: max_shown_bytes()
-- What each read holds of a session's head and window at most, unless its policy says more.
16000000

-- fragment: filled(rows, keys)
-- The rows of a page, in the order of their keys, up to the one that fills it by their ``bytes``; one at least.  What is
-- large in them is read of these alone.
(SELECT counted.* FROM (
        SELECT page.*, sum(page.bytes) OVER (ORDER BY {keys}) - page.bytes AS bytes_before FROM {rows} AS page) AS counted
    WHERE counted.bytes_before < %(page_bytes)s)

-- fragment: newest(rows, key)
-- The newest thousand of some rows, of which a caller may have made any number.
(SELECT made.* FROM {rows} AS made ORDER BY made.{key} DESC LIMIT 1000)

-- fragment: chosen_runs()
-- The last runs that have any messages to show and are none of some statuses, in a statement with the CTE ``retained``.
(SELECT r.number, r.seqs FROM strandline.session_run r
    WHERE r.shard_key = %(shard_key)s AND r.session_key = %(session_key)s
        AND r.status <> ALL (%(skip_statuses)s::text[])
        AND (%(agent_id)s::text IS NULL OR r.agent_id = %(agent_id)s)
        AND (%(team_id)s::text IS NULL OR r.team_id = %(team_id)s)
        AND EXISTS (
            SELECT FROM strandline.message m
            WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s AND m.seq = ANY (r.seqs)
                AND @is_shown(m))
    ORDER BY r.number DESC LIMIT %(last_n)s)

-- fragment: is_asked(message)
-- Whether a person speaks: in some forms a user's message holds results, and perhaps words beside them.
({message}.role = 'user' AND ({message}.answers IS NULL OR {message}.calls IS NOT NULL))

-- fragment: is_answer(message)
-- Whether the assistant ends a turn.
({message}.role = 'assistant' AND {message}.calls IS NULL)

-- fragment: prompt_of(session, shard_key, session_key)
-- The number of the message that replaced the prompt last, of those that are in the log still; NULL: the head stands.
(SELECT max(prompt.seq) FROM strandline.message prompt
    WHERE prompt.shard_key = {shard_key} AND prompt.session_key = {session_key}
        AND prompt.seq = ANY ({session}.prompts) AND prompt.seq >= {session}.log_start_seq)

-- fragment: session_number(session_key)
-- The last 64 bits of a session's key, which each label of its messages holds.
('x' || translate(right({session_key}::uuid::text, 17), '-', ''))::bit(64)::bigint

-- fragment: move_marks(condition)
-- Move the marks of a session for a message that is put in the simple case, if the condition holds as well (put_one).
UPDATE strandline.session t SET
        next_seq = t.next_seq + 1, window_tokens = t.window_tokens + %(tokens)s::integer,
        window_messages = t.window_messages + 1, window_bytes = t.window_bytes + %(bytes)s::integer,
        replan_at_tokens = CASE WHEN %(role)s::text IN ('user', 'tool') THEN 0 ELSE t.replan_at_tokens END,
        last_put_at = statement_timestamp()
    WHERE t.shard_key = %(shard_key)s AND t.session_key = %(session_key)s
        AND NOT (t.next_seq = t.pinned_through + 1 AND %(role)s::text IN ('system', 'developer'))
        AND t.pinned_tokens + t.window_tokens + %(tokens)s::integer <= t.flush_at_tokens
        AND t.window_messages < t.max_window_messages
        AND t.window_bytes + %(bytes)s::integer <= t.max_window_bytes
        AND (t.idle_seconds IS NULL OR t.watched_until >= statement_timestamp())
        AND NOT @ends_turn(t, %(role)s::text, %(calls)s::json) AND %(data_key)s::integer >= t.first_data_key
        AND {condition}
    RETURNING t.next_seq - 1 AS seq, t.incarnation, t.last_put_at, t.namespace, t.user_id

-- fragment: is_ruled(session, recorded)
-- Whether put_v1 has to look at the rules of a session's namespace before a put: a bound on what is stored is reached or
-- to be counted, the shortest time for which a session is kept is over, or the trail records puts, where that matters.
-- (One row has all of them: each table that a statement names costs a put, whether it has rows or not.)
EXISTS (SELECT FROM strandline.namespace_rule rule WHERE rule.namespace = {session}.namespace
    AND (rule.is_full OR rule.count_at <= statement_timestamp() OR {recorded}
        OR {session}.last_put_at + make_interval(secs => rule.least_ttl_seconds) <= statement_timestamp()))

-- fragment: insert_message()
-- The message whose marks were moved (put_one).
INSERT INTO strandline.message (
    shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest, envelope, metadata, calls,
    answers, created_at, labels)
SELECT %(shard_key)s, %(session_key)s, n.seq, n.incarnation, %(id)s::text, %(role)s::text,
    %(tokens)s::integer, %(bytes)s::integer, %(digest)s::bytea, %(envelope)s::json, %(metadata)s::json, %(calls)s::json,
    %(answers)s::json, coalesce(%(created_at)s::timestamptz, n.last_put_at), %(labels)s::bigint[]
FROM moved n

-- fragment: takes_simply(session, given, unless)
-- Whether a session takes a message of several in the simple case (put_many).
NOT ({session}.next_seq = {session}.pinned_through + 1 AND {given}.role IN ('system', 'developer'))
        AND {session}.pinned_tokens + {session}.window_tokens + {given}.tokens <= {session}.flush_at_tokens
        AND {session}.window_messages < {session}.max_window_messages
        AND {session}.window_bytes + {given}.bytes <= {session}.max_window_bytes
        AND ({session}.idle_seconds IS NULL OR {session}.watched_until >= statement_timestamp())
        AND NOT @ends_turn({session}, {given}.role, {given}.calls) AND coalesce({given}.data_key, 0) >= {session}.first_data_key
        AND NOT @is_ruled({session}, {unless})

-- fragment: stored_and_moved()
-- Messages of put_many, and the marks of their sessions moved: two queries of a WITH.
stored AS (
    INSERT INTO strandline.message (
        shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest, envelope, metadata, calls,
        answers, created_at, labels)
    SELECT h.shard_key, h.session_key, h.next_seq, h.incarnation, h.id, h.role, h.tokens, h.bytes, h.digest,
        h.envelope, h.metadata, h.calls, h.answers, coalesce(h.created_at, statement_timestamp()), h.labels
    FROM held h
    ON CONFLICT (shard_key, incarnation, id) DO NOTHING
    RETURNING shard_key, session_key, seq, role, tokens, bytes
), moved AS (
    UPDATE strandline.session t SET
        next_seq = t.next_seq + 1, window_tokens = t.window_tokens + n.tokens,
        window_messages = t.window_messages + 1, window_bytes = t.window_bytes + n.bytes,
        replan_at_tokens = CASE WHEN n.role IN ('user', 'tool') THEN 0 ELSE t.replan_at_tokens END,
        last_put_at = statement_timestamp()
    FROM stored n WHERE t.shard_key = n.shard_key AND t.session_key = n.session_key
)
