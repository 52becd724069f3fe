-- Messages: put, import, read, pop and reset.

-- name: put_one
-- Accept one message in the simple case: the session exists, the message is not part of its head, crosses none of its
-- marks, ends no turn that is to be delivered, no watch has to be planned, its data key is of the owner's present life,
-- and no rule of the namespace concerns it: a bound of bytes, a time to live, or a trail that records puts.
-- Without a row nothing was done, and put_v1 decides. It also decides if the id was used before: the unique index
-- refuses it then, which undoes all of this.
-- params: tokens integer, bytes integer, envelope json, metadata json?, calls json?, answers json?, created_at
--     timestamptz?, labels bigint[]?
-- row: seq bigint
-- repeatable
WITH moved AS (
    @move_marks(NOT @is_ruled(t, rule.records_puts))
)
@insert_message()
RETURNING seq

-- name: put_many
-- The same for one message into each of several sessions, all different, in one commit; returns the sessions whose
-- message was stored. A message whose id was used before is left out, and one whose session is locked: so it keeps no
-- other waiting, and two such statements never wait for each other.
-- (JSON, since it is written in a third of the time that psycopg takes for arrays.  No CTE is joined to
-- another: their sizes are unknown to the planner, which would compare all with all.)
-- params: messages json
-- row: session_key text, seq bigint
-- repeatable
WITH held AS (
    SELECT g.*, t.next_seq, t.incarnation
    FROM json_to_recordset(%(messages)s::json) AS g (
        shard_key uuid, session_key uuid, id text, role text, tokens integer, bytes integer, digest bytea,
        envelope json, metadata json, created_at timestamptz, calls json, answers json, labels bigint[],
        data_key integer)
    JOIN strandline.session t ON t.shard_key = g.shard_key AND t.session_key = g.session_key
    WHERE @takes_simply(t, g, rule.records_puts)
    FOR NO KEY UPDATE OF t SKIP LOCKED
), @stored_and_moved()
SELECT session_key::text, seq FROM stored

-- name: put
-- Accept messages: one round trip.
-- params: tokens integer[], bytes integer[], metadata text?[], created_at timestamptz?[], calls text?[], answers
--     text?[], labels text?[], act jsonb?
-- row: put
-- repeatable
SELECT status, detail, seqs, to_flush, is_recorded FROM strandline.put_v1(
    %(shard_key)s, %(session_key)s, %(claimed)s, %(session)s::jsonb, %(ids)s::text[], %(roles)s::text[],
    %(tokens)s::integer[], %(bytes)s::integer[], %(digests)s::bytea[], %(envelopes)s::text[],
    %(metadata)s::text[], %(created_at)s::timestamptz[], %(calls)s::text[], %(answers)s::text[], %(labels)s::text[],
    %(data_key)s, %(act)s::jsonb)

-- name: history
-- A page of the whole log, in order, cut off by count and bytes; one message at least.
-- params: after_seq bigint
-- row: message
-- opens: envelope, metadata
WITH retained AS MATERIALIZED (@retained(%(shard_key)s, %(session_key)s))
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM @filled((SELECT m.* FROM strandline.message m
    WHERE @is_of_log(m) AND m.seq > %(after_seq)s
    ORDER BY m.seq LIMIT %(page_size)s), page.seq) AS m
ORDER BY m.seq

-- name: messages_with_ids
-- Messages of an owner's sessions, or of one of them, by their ids, if reads may show them.
-- params: scope_key uuid?
-- row: message
-- opens: envelope, metadata
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM strandline.session s
JOIN strandline.message m ON m.shard_key = s.shard_key AND m.incarnation = s.incarnation
    AND m.id = ANY (%(ids)s::text[])
WHERE s.shard_key = %(shard_key)s AND (%(scope_key)s::uuid IS NULL OR s.session_key = %(scope_key)s::uuid)
    AND @is_visible(m, %(shard_key)s)

-- name: log_state
-- By which it is known that nothing of a log was taken back, replaced or reset.
-- row: incarnation uuid, corrections integer
SELECT s.incarnation, s.corrections FROM strandline.session s
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s

-- name: newest_seqs
-- The numbers of the newest messages of a log, the newest first; without a filter, so the primary key has all of it.
-- row: seq bigint
WITH retained AS MATERIALIZED (@retained(%(shard_key)s, %(session_key)s))
SELECT m.seq FROM strandline.message m
WHERE @is_of_log(m)
ORDER BY m.seq DESC LIMIT %(limit)s OFFSET %(offset)s

-- name: recent_matches
-- Of the newest messages, as many as are looked at, the numbers of those that a filter lets pass, the newest first. One
-- row at least, which says how many there were to look at: fewer than asked for are the whole log.
-- params: scan bigint, labels bigint[]?
-- row: scanned bigint, seq bigint?
-- seals: labels label - session_key, clear_labels transition
WITH retained AS MATERIALIZED (@retained(%(shard_key)s, %(session_key)s)), recent AS MATERIALIZED (
    SELECT m.seq, m.role, m.created_at, m.labels FROM strandline.message m
    WHERE @is_of_log(m)
    ORDER BY m.seq DESC LIMIT %(scan)s
)
SELECT n.scanned, f.seq FROM (SELECT count(*) AS scanned FROM recent) AS n
LEFT JOIN (
    SELECT r.seq FROM recent r
    WHERE r.role = ANY (%(roles)s::text[])
        AND r.created_at BETWEEN coalesce(%(since)s::timestamptz, '-infinity')
            AND coalesce(%(until)s::timestamptz, 'infinity')
        AND (%(labels)s::bigint[] IS NULL OR r.labels @> %(labels)s::bigint[]
            OR r.labels @> %(clear_labels)s::bigint[])
    ORDER BY r.seq DESC LIMIT %(limit)s OFFSET %(offset)s) AS f ON true
ORDER BY f.seq DESC

-- name: matches_by_role
-- The numbers of the newest messages of some roles and a time, the newest first. The index over roles and times leads to
-- what matches alone; in the order of the log all of it might have to be read. Here and below, the keys are compared in
-- a form that no other index serves: the planner cannot know how many messages a session has, and with the usual number
-- in mind it would read all of a long one's.
-- row: seq bigint
-- repeatable
WITH retained AS MATERIALIZED (@retained(%(shard_key)s, %(session_key)s)), matching AS MATERIALIZED (
    SELECT m.seq, m.created_at, m.labels FROM strandline.message m
    WHERE strandline.role_key_v1(m.session_key, m.role) = ANY (ARRAY(
            SELECT strandline.role_key_v1(%(session_key)s, asked.role) FROM unnest(%(roles)s::text[]) AS asked (role)))
        AND m.created_at BETWEEN coalesce(%(since)s::timestamptz, '-infinity')
            AND coalesce(%(until)s::timestamptz, 'infinity')
        AND m.shard_key IS NOT DISTINCT FROM %(shard_key)s AND m.session_key IS NOT DISTINCT FROM %(session_key)s
        AND m.role = ANY (%(roles)s::text[])
)
SELECT f.seq FROM matching f WHERE @is_logged(f)
ORDER BY f.seq DESC LIMIT %(limit)s OFFSET %(offset)s

-- name: matches_by_label
-- The same of messages whose metadata has all of some labels, whose numbers differ from session to session.
-- While some of the owner's messages may not be sealed yet, their labels are looked for as well.
-- params: labels bigint[]
-- row: seq bigint
-- seals: labels label - session_key, clear_labels transition
WITH retained AS MATERIALIZED (@retained(%(shard_key)s, %(session_key)s)), matching AS MATERIALIZED (
    SELECT m.seq, m.role, m.created_at, m.labels FROM strandline.message m
    WHERE (m.labels @> %(labels)s::bigint[] OR m.labels @> %(clear_labels)s::bigint[])
        AND m.shard_key IS NOT DISTINCT FROM %(shard_key)s AND m.session_key IS NOT DISTINCT FROM %(session_key)s
)
SELECT f.seq FROM matching f
WHERE @is_logged(f) AND f.role = ANY (%(roles)s::text[])
    AND f.created_at BETWEEN coalesce(%(since)s::timestamptz, '-infinity')
        AND coalesce(%(until)s::timestamptz, 'infinity')
ORDER BY f.seq DESC LIMIT %(limit)s OFFSET %(offset)s

-- name: messages_by_seq
-- Some messages of a session by their numbers, in order.
-- row: message
-- opens: envelope, metadata
WITH retained AS MATERIALIZED (@retained(%(shard_key)s, %(session_key)s))
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM strandline.message m
WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s AND m.seq = ANY (%(seqs)s::bigint[])
    AND @is_shown(m)
ORDER BY m.seq

-- name: messages_in_order
-- Some messages of a session, in the order of the numbers given, up to the one that fills a page.
-- row: place bigint, seq bigint, id text, role text, tokens integer, created_at timestamptz, envelope text, metadata
--     text?, bytes_taken bigint
-- opens: envelope, metadata
WITH retained AS MATERIALIZED (@retained(%(shard_key)s, %(session_key)s))
SELECT m.place, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text,
    m.bytes_before + m.bytes AS bytes_taken
FROM @filled((SELECT o.place, m.* FROM unnest(%(seqs)s::bigint[]) WITH ORDINALITY AS o (seq, place)
    CROSS JOIN LATERAL @numbered(o.seq) AS m
    WHERE @is_shown(m)), page.place) AS m
ORDER BY m.place

-- name: bytes_of_messages
-- How much some messages of a session have together.
-- row: bytes bigint
SELECT coalesce(sum(m.bytes), 0) AS bytes FROM strandline.message m
WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s AND m.seq = ANY (%(seqs)s::bigint[])

-- name: newest_within
-- A page of messages behind the prompt, the newest first, as far as they fit so many tokens together, up to the one
-- that fills max_bytes; a message takes some next to its texts.
-- params: before_seq bigint, tokens bigint, max_bytes bigint
-- row: measured_message
-- opens: envelope, metadata
WITH retained AS MATERIALIZED (@retained(%(shard_key)s, %(session_key)s))
SELECT p.seq, p.id, p.role, p.tokens, p.created_at, p.envelope::text, p.metadata::text, p.bytes_taken
FROM (
    SELECT n.*, sum(n.tokens) OVER (ORDER BY n.seq DESC) AS taken,
        sum(n.bytes + 200) OVER (ORDER BY n.seq DESC) AS bytes_taken FROM (
        SELECT m.* FROM strandline.message m
        WHERE @is_of_log(m) AND m.seq < %(before_seq)s
            AND m.seq NOT BETWEEN (SELECT k.shown_from FROM retained k) AND (SELECT k.pinned_through FROM retained k)
            AND (m.seq = ANY ((
                SELECT t.prompts FROM strandline.session t
                WHERE t.shard_key = %(shard_key)s AND t.session_key = %(session_key)s)::bigint[])) IS NOT TRUE
        ORDER BY m.seq DESC LIMIT %(page_size)s) AS n
    ) AS p
WHERE p.taken <= %(tokens)s AND p.bytes_taken - p.bytes - 200 < %(max_bytes)s
ORDER BY p.seq DESC

-- name: head_messages
-- The pinned head of a session, in order, or what replaced it.
-- row: message
-- opens: envelope, metadata
WITH head AS (
    SELECT coalesce(p.seq, s.log_start_seq) AS first, coalesce(p.seq, s.pinned_through) AS last
    FROM strandline.session s
    CROSS JOIN LATERAL (SELECT @prompt_of(s, %(shard_key)s, %(session_key)s) AS seq) AS p
    WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s
        AND NOT @is_expired(s, %(shard_key)s, %(session_key)s)
)
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM strandline.message m WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
    AND m.seq >= (SELECT h.first FROM head h) AND m.seq <= (SELECT h.last FROM head h)
ORDER BY m.seq

-- name: newest_message
-- The message that a pop would remove.
-- row: message
-- opens: envelope, metadata
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM (
    SELECT n.* FROM strandline.session s
    JOIN strandline.message n ON n.shard_key = %(shard_key)s AND n.session_key = s.session_key
        AND n.seq >= s.log_start_seq
    WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s
    ORDER BY n.seq DESC LIMIT 1) AS m
-- If that is past its time, the session is empty to whoever pops.
WHERE @is_visible(m, %(shard_key)s)

-- name: parted_call
-- The call and the last of its results that a cut before a number would part, if nobody spoke between; no row if none.
-- row: call_seq bigint, result_seq bigint
SELECT c.seq AS call_seq, r.seq AS result_seq
FROM strandline.session s
CROSS JOIN LATERAL (
    SELECT m.seq, m.calls FROM strandline.message m
    WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s AND m.seq >= s.log_start_seq
        AND m.seq < %(seq)s AND (m.role = 'assistant' OR (m.role = 'user' AND m.answers IS NULL))
    ORDER BY m.seq DESC LIMIT 1) AS c
CROSS JOIN LATERAL (
    SELECT m.seq FROM strandline.message m
    WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s AND m.seq >= %(seq)s
        AND m.seq < coalesce((
            SELECT n.seq FROM strandline.message n
            WHERE n.shard_key = %(shard_key)s AND n.session_key = %(session_key)s AND n.seq >= %(seq)s
                AND (n.role = 'assistant' OR (n.role = 'user' AND n.answers IS NULL))
            ORDER BY n.seq LIMIT 1), s.next_seq)
        AND EXISTS (
            SELECT FROM json_array_elements_text(m.answers) AS closed (call)
            JOIN json_array_elements_text(c.calls) AS opened (call) USING (call))
    ORDER BY m.seq DESC LIMIT 1) AS r
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s

-- name: pop
-- Remove it, if it is still the newest, and was not delivered.
-- params: pop_id uuid, act jsonb?
-- row: status text
-- repeatable
SELECT strandline.pop_v1(%(shard_key)s, %(session_key)s, %(seq)s, %(pop_id)s, %(act)s::jsonb) AS status

-- name: message_at
-- A message by its number, with all that a replacement keeps; and whether the session exists.
-- row: seq bigint, id text, role text, tokens integer, created_at timestamptz, envelope text, metadata text?, digest
--     bytea
-- opens: envelope, metadata
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text, m.digest
FROM strandline.session s
JOIN strandline.message m ON m.shard_key = s.shard_key AND m.session_key = s.session_key
    AND m.seq >= s.log_start_seq AND m.seq = %(seq)s
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s
    AND NOT @is_expired(s, %(shard_key)s, %(session_key)s)

-- name: find_correction
-- A correction by its id, with the messages that it concerned.
-- params: clear_digest bytea?
-- row: session_key uuid, number integer, kind text, from_seq bigint, through_seq bigint, is_of_content boolean,
--     seqs bigint[], created_at timestamptz
-- seals: digest, clear_digest transition
SELECT c.session_key, c.number, c.kind, c.from_seq, c.through_seq,
    coalesce(c.digest IN (%(digest)s, %(clear_digest)s), false) AS is_of_content, ARRAY(
        SELECT u.seq FROM strandline.superseded u
        WHERE u.shard_key = %(shard_key)s AND u.session_key = c.session_key AND u.number = c.number
        ORDER BY u.seq) AS seqs, c.created_at
FROM strandline.correction c
WHERE c.shard_key = %(shard_key)s AND c.correction_id = %(correction_id)s

-- name: correct
-- Take back the messages from a number on, or give one other content (correct_v1).
-- params: newest bigint?, corrections integer?, content bytea?, expected bytea?, digest bytea?, envelope text?, tokens
--     integer?, bytes integer?, act jsonb?
-- row: status text, number integer, from_seq bigint, through_seq bigint, seqs bigint[], created_at timestamptz,
--     is_shared boolean, touched uuid[]
-- seals: content digest, digest
-- repeatable
SELECT status, number, from_seq, through_seq, seqs, created_at, is_shared, touched FROM strandline.correct_v1(
    %(shard_key)s, %(session_key)s, %(correction_id)s, %(kind)s, %(from_seq)s, %(newest)s, %(corrections)s,
    %(content)s, %(actor)s, %(expected)s, %(digest)s, %(envelope)s, %(tokens)s, %(bytes)s,
    %(act)s::jsonb)

-- name: known_messages
-- How many of these ids exist in the session's current incarnation, and which of them with another digest.
-- keyed_digests: their form where the owner's content is sealed.
-- params: keyed_digests bytea[]
-- row: messages bigint, differing text[]
SELECT count(*) AS messages, coalesce(
        array_agg(m.id) FILTER (WHERE m.digest NOT IN (given.digest, given.keyed_digest)), '{}') AS differing
FROM strandline.session s
CROSS JOIN unnest(%(ids)s::text[], %(digests)s::bytea[], %(keyed_digests)s::bytea[]) AS given (id, digest, keyed_digest)
CROSS JOIN LATERAL (
    -- The limit keeps this a look-up per id.
    SELECT k.id, k.digest FROM strandline.message k
    WHERE k.shard_key = %(shard_key)s AND k.incarnation = s.incarnation AND k.id = given.id LIMIT 1) AS m
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s
    AND NOT @is_expired(s, %(shard_key)s, %(session_key)s)

-- name: stored_digests
-- The digests of some messages of the session's current incarnation.
-- row: id text, digest bytea
SELECT m.id, m.digest FROM strandline.session s
JOIN strandline.message m ON m.shard_key = s.shard_key AND m.incarnation = s.incarnation
    AND m.id = ANY (%(ids)s::text[])
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s

-- name: make_import_table
-- Where COPY writes to: a table of this connection alone, empty again when the transaction ends.
CREATE TEMPORARY TABLE IF NOT EXISTS strandline_import (
    place integer, id text, role text, tokens integer, bytes integer, digest bytea, envelope text, metadata text,
    created_at timestamptz, calls text, answers text, labels text) ON COMMIT DELETE ROWS

-- name: copy_import
-- Messages in their order.
COPY pg_temp.strandline_import (
    place, id, role, tokens, bytes, digest, envelope, metadata, created_at, calls, answers, labels) FROM STDIN

-- name: put_imported
-- Put the copied messages, as ``put`` does.
-- params: act jsonb?
-- row: put
SELECT p.status, p.detail, p.seqs, p.to_flush, p.is_recorded
FROM (
    SELECT array_agg(i.id ORDER BY i.place) AS ids, array_agg(i.role ORDER BY i.place) AS roles,
        array_agg(i.tokens ORDER BY i.place) AS tokens, array_agg(i.bytes ORDER BY i.place) AS bytes,
        array_agg(i.digest ORDER BY i.place) AS digests,
        array_agg(i.envelope ORDER BY i.place) AS envelopes,
        array_agg(i.metadata ORDER BY i.place) AS metadata,
        array_agg(i.created_at ORDER BY i.place) AS created_at,
        array_agg(i.calls ORDER BY i.place) AS calls, array_agg(i.answers ORDER BY i.place) AS answers,
        array_agg(i.labels ORDER BY i.place) AS labels
    FROM pg_temp.strandline_import i) AS a
CROSS JOIN LATERAL strandline.put_v1(
    %(shard_key)s, %(session_key)s, %(claimed)s, %(session)s::jsonb, a.ids, a.roles, a.tokens, a.bytes, a.digests,
    a.envelopes, a.metadata, a.created_at, a.calls, a.answers, a.labels, %(data_key)s, %(act)s::jsonb) AS p

-- name: reset
-- Start the log over; with derived, forget the derived memory.
-- params: derived boolean, act jsonb?
-- row: messages bigint, ended uuid[]?, touched uuid[]?
-- repeatable
SELECT messages, ended, touched FROM strandline.reset_v1(
    %(shard_key)s, %(session_key)s, %(derived)s, %(act)s::jsonb)
