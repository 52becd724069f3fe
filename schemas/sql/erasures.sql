-- Erasures: the fence of an owner or a session, the steps that follow it, the remaining rows, and the records.

-- name: look_at_fence
-- The erasure that keeps an owner or a session away (look_at_fence_v1); until the transaction ends, none is begun.
-- row: erasure integer?
-- repeatable
SELECT strandline.look_at_fence_v1(%(shard_key)s, %(scope_key)s) AS erasure

-- name: fence_owner
-- Set the fence of an owner, and end all that can write for it (fence_v1).
-- params: act jsonb
-- row: status text, number integer, ledger_key uuid?, requested_at timestamptz?
SELECT status, number, ledger_key, requested_at FROM strandline.fence_v1(
    %(erasure_id)s, %(kind)s, %(namespace)s, %(shard_key)s, %(ledger_key)s, %(actor)s, %(is_forced)s,
    %(user_id)s, %(act)s::jsonb)

-- name: erase_session
-- Set the fence of a session, and forget it (erase_session_v1).
-- params: act jsonb
-- row: status text, number integer?, ledger_key uuid?, requested_at timestamptz?, touched uuid[]
SELECT status, number, ledger_key, requested_at, touched FROM strandline.erase_session_v1(
    %(erasure_id)s, %(namespace)s, %(shard_key)s, %(session_key)s, %(directory_key)s, %(ledger_key)s, %(actor)s,
    %(is_forced)s, %(user_id)s, %(act)s::jsonb)

-- name: readmit
-- Lift the fence of an owner or a session (readmit_v1).
-- params: act jsonb, erasures uuid[]?
-- row: status text, number integer?, readmitted_at timestamptz
SELECT status, number, readmitted_at FROM strandline.readmit_v1(
    %(erasure_id)s, %(namespace)s, %(shard_key)s, %(scope_key)s, %(actor)s, %(user_id)s,
    %(act)s::jsonb, %(erasures)s::uuid[])

-- name: erase_rows
-- Delete a page of a table's rows of an owner, or of one of its sessions or scopes (erase_rows_v1).
-- params: number integer, table text, column text?, key uuid?, limit integer
-- row: rows bigint
SELECT strandline.erase_rows_v1(
    %(number)s, %(table)s, %(shard_key)s, %(column)s, %(key)s, %(limit)s) AS rows

-- name: erase_shared
-- Delete a page of the copies that an owner, or one of its sessions, shared with scopes (erase_shared_v1).
-- params: number integer, owner_key uuid, session_key uuid?, limit integer
-- row: rows bigint
SELECT strandline.erase_shared_v1(%(number)s, %(owner_key)s, %(session_key)s, %(limit)s) AS rows

-- name: move_rows
-- Give a page of an owner's rows of a table the key of the erasure (move_rows_v1).
-- params: number integer, table text, limit integer
-- row: rows bigint
SELECT strandline.move_rows_v1(%(number)s, %(table)s, %(shard_key)s, %(ledger_key)s, %(limit)s) AS rows

-- name: erased_objects
-- The objects in archives that hold messages of an owner, or of one of its sessions; each that is named may be there.
-- One that a session which stays names as well (a fork, or what it is a fork of) is that session's too. A session that
-- is erased at this moment does not stay. None once the erasure is finished.
-- params: number integer, session_key uuid?
-- row: archive text, object_name text?, is_shared boolean
SELECT o.archive, o.object_name, %(session_key)s::uuid IS NOT NULL AND EXISTS (
    SELECT FROM strandline.retention_step g
    WHERE g.shard_key = %(shard_key)s AND g.session_key <> %(session_key)s::uuid AND g.archive = o.archive
        AND g.object_name = o.object_name AND NOT EXISTS (
            SELECT FROM strandline.erasure_fence f
            WHERE f.shard_key = %(shard_key)s AND f.scope_key = g.session_key AND @stands(f))) AS is_shared
FROM strandline.retention_step o
WHERE o.shard_key = %(shard_key)s AND o.archive IS NOT NULL AND @is_unfinished(%(number)s)
    AND (%(session_key)s::uuid IS NULL OR o.session_key = %(session_key)s)
UNION ALL
SELECT l.archive, l.object_name, false
FROM strandline.given_up_step l
WHERE l.shard_key = %(shard_key)s AND @is_left(l) AND @is_unfinished(%(number)s)
    AND (%(session_key)s::uuid IS NULL OR l.session_key = %(session_key)s)

-- name: erase_directory
-- Delete a page of an owner's directory entries (erase_directory_v1).
-- params: number integer, owner_key uuid, directory_key uuid?, limit integer
-- row: rows bigint
SELECT strandline.erase_directory_v1(
    %(number)s, %(owner_key)s, %(directory_key)s, %(namespace)s, %(user_id)s, %(limit)s) AS rows

-- name: erase_names
-- Replace an owner's names where the rows of others hold them (erase_names_v1).
-- params: number integer, owner_key uuid, mark text
-- row: rows bigint
SELECT strandline.erase_names_v1(%(number)s, %(owner_key)s, %(namespace)s, %(user_id)s, %(session_id)s, %(mark)s)
    AS rows

-- name: kept_item_names
-- The next keys under a path at which an adapter keeps items of users, also of those whose time is over.
-- params: after text
-- row: key text
SELECT s.key FROM strandline.store_item s
WHERE s.shard_key = %(shard_key)s AND s.path = %(path)s AND s.key > %(after)s
ORDER BY s.key LIMIT %(limit)s

-- name: kept_items
-- Items of these keys, each with the transaction that wrote it.
-- row: key text, version text, value text
-- opens: value
SELECT s.key, s.xmin::text AS version, s.value::text
FROM unnest(%(keys)s::text[]) AS k (key) JOIN strandline.store_item s ON s.key = k.key
WHERE s.shard_key = %(shard_key)s AND s.path = %(path)s

-- name: erase_kept_items
-- Delete items that an adapter kept of an owner (erase_kept_items_v1).
-- params: number integer, versions text?[]
-- row: rows bigint
SELECT strandline.erase_kept_items_v1(
    %(number)s, %(shard_key)s, %(paths)s::text[], %(keys)s::text[], %(versions)s::text[]) AS rows

-- name: erase_items
-- Delete a page of a namespace's items below a path (erase_items_v1).
-- params: number integer, limit integer
-- row: rows bigint
SELECT strandline.erase_items_v1(
    %(number)s, %(shard_key)s, %(path_from)s, %(path_before)s, %(limit)s) AS rows

-- name: erased_rows
-- Rows of erased owners and sessions, counted by table (erased_rows_v1).
-- params: shard_key uuid?, scope_key uuid?
-- row: table_rows
SELECT table_name, rows FROM strandline.erased_rows_v1(%(shard_key)s, %(scope_key)s)

-- name: owner_rows
-- Rows of an owner, or of one of its sessions, counted by table (owner_rows_v1).
-- row: table_rows
SELECT table_name, rows FROM strandline.owner_rows_v1(%(shard_key)s, %(scope_key)s)

-- name: erased_owner_names
-- The names of an owner whose key alone is known, as the directory has them: sessions, and the user if there is one;
-- or as its facts have them, of a user who has no session.
-- params: owner_key uuid, limit bigint?
-- row: session_entry
SELECT o.namespace, o.session_id, o.user_id FROM strandline.session_owner o
WHERE o.owner_key = %(owner_key)s
UNION ALL
SELECT f.namespace, '', f.user_id FROM strandline.fact_owner f
WHERE f.shard_key = %(owner_key)s AND f.user_id IS NOT NULL
LIMIT %(limit)s

-- name: owner_directory
-- The next sessions of a user, of every kind.
-- params: user_id text
-- row: session_id text, kind text, created_at timestamptz
SELECT o.session_id, o.kind, o.created_at FROM strandline.session_owner o
WHERE o.namespace = %(namespace)s AND o.user_id = %(user_id)s AND o.session_id > %(after_session_id)s
ORDER BY o.session_id LIMIT %(limit)s

-- name: finish_erasure
-- Record the receipt of an erasure; no row if another process has done so, or the erasure is of another scope.
-- params: number integer, owner_key uuid
-- row: number integer
UPDATE strandline.erasure SET state = 'done', receipt = %(receipt)s, finished_at = statement_timestamp(),
    updated_at = statement_timestamp()
WHERE number = %(number)s AND owner_key = %(owner_key)s AND scope_key = %(scope_key)s AND state = 'running'
RETURNING number

-- name: note_missed
-- Keep with an erasure the places that it could not reach, since another process may make its receipt.
-- params: number integer, missed text[]
UPDATE strandline.erasure SET missed = ARRAY(SELECT DISTINCT unnest(missed || %(missed)s::text[]))
WHERE number = %(number)s AND state = 'running'

-- name: unsettled_erasures
-- What is wrong with the records of erasures, of which the first are given: one is 'unfinished'; one is done, and nothing
-- has let the owner in again, and its fence is gone ('unfenced'); a fence stands without a record ('unrecorded'); the
-- record of a number is gone ('removed').
-- row: number integer, finding text, namespace text?, owner_key uuid?, scope_key uuid?
SELECT e.number, CASE WHEN e.state = 'running' THEN 'unfinished' ELSE 'unfenced' END AS finding, e.namespace, e.owner_key,
    e.scope_key
FROM strandline.erasure e
WHERE e.state = 'running' OR @is_final(e) AND NOT EXISTS (
    SELECT FROM strandline.erasure_fence f
    WHERE f.shard_key = e.owner_key AND f.scope_key = e.scope_key AND @stands(f))
UNION ALL
SELECT f.number, 'unrecorded', NULL, f.shard_key, f.scope_key FROM strandline.erasure_fence f
WHERE NOT EXISTS (
    SELECT FROM strandline.erasure e
    WHERE e.number = f.number AND e.owner_key = f.shard_key AND e.scope_key = f.scope_key)
UNION ALL
SELECT n.number, 'removed', NULL, NULL, NULL
FROM generate_series(1, (SELECT max(e.number) FROM strandline.erasure e)) AS n (number)
WHERE NOT EXISTS (SELECT FROM strandline.erasure e WHERE e.number = n.number)
ORDER BY number, finding LIMIT %(limit)s

-- name: unfinished_erasure
-- The erasure of an owner, or of the session (NULL: of any), that has no receipt yet.
-- params: owner_key uuid, session_key uuid?
-- row: number integer
SELECT e.number FROM strandline.erasure e
WHERE e.owner_key = %(owner_key)s AND e.state = 'running'
    AND (%(session_key)s::uuid IS NULL OR e.scope_key IN (%(owner_key)s, %(session_key)s))
ORDER BY e.scope_key = %(owner_key)s DESC LIMIT 1

-- name: readmissions_after
-- The receipts of readmissions of an owner, or of a session, after a time.
-- params: owner_key uuid, after timestamptz
-- row: receipt text
SELECT e.receipt FROM strandline.erasure e
WHERE e.owner_key = %(owner_key)s AND e.scope_key = %(scope_key)s AND e.kind = 'readmission'
    AND e.finished_at > %(after)s AND e.receipt IS NOT NULL

-- name: keep_receipt
-- Record the receipt of a readmission, which is done in the moment that it is recorded.
-- params: number integer
UPDATE strandline.erasure SET receipt = %(receipt)s WHERE number = %(number)s AND receipt IS NULL

-- name: find_erasure
-- One erasure or readmission, by its number or its id.
-- params: number integer?, erasure_id uuid?
-- row: number integer, erasure_id uuid, kind text, namespace text, owner_key uuid, scope_key uuid, ledger_key uuid,
--     state text, steps text, actor text?, receipt text?, rows_erased bigint, requested_at timestamptz, fenced_at
--     timestamptz?, updated_at timestamptz, finished_at timestamptz?, missed text[]
SELECT e.number, e.erasure_id, e.kind, e.namespace, e.owner_key, e.scope_key, e.ledger_key, e.state, e.steps::text,
    e.actor, e.receipt, e.rows_erased, e.requested_at, e.fenced_at, e.updated_at, e.finished_at, e.missed
FROM strandline.erasure e WHERE e.number = %(number)s OR e.erasure_id = %(erasure_id)s

-- name: list_erasures
-- Erasures and readmissions, newest first: of a namespace or (NULL) of all, of an owner or (NULL) of all, below a number.
-- params: namespace text?, owner_key uuid?, before integer
-- row: number integer, erasure_id uuid, kind text, namespace text, owner_key uuid, scope_key uuid, state text, actor
--     text?, rows_erased bigint, requested_at timestamptz, finished_at timestamptz?, is_signed boolean
SELECT e.number, e.erasure_id, e.kind, e.namespace, e.owner_key, e.scope_key, e.state, e.actor, e.rows_erased,
    e.requested_at, e.finished_at, coalesce(e.receipt::json ->> 'signature' IS NOT NULL, false) AS is_signed
FROM strandline.erasure e
WHERE (%(namespace)s::text IS NULL OR e.namespace = %(namespace)s)
    AND (%(owner_key)s::uuid IS NULL OR e.owner_key = %(owner_key)s) AND e.number < %(before)s
ORDER BY e.number DESC LIMIT %(limit)s

-- name: find_fence
-- The fence that stands of a session, or else of its owner.
-- row: number integer, scope_key uuid, fenced_at timestamptz
SELECT f.number, f.scope_key, f.fenced_at FROM strandline.erasure_fence f
WHERE f.shard_key = %(shard_key)s AND f.scope_key IN (%(shard_key)s, %(scope_key)s) AND @stands(f)
ORDER BY f.scope_key = %(shard_key)s LIMIT 1

-- name: erased_since
-- The owners and sessions that were erased after an erasure, of which a process may have something in its caches.
-- params: number integer
-- row: shard_key uuid, scope_key uuid, number integer
SELECT f.shard_key, f.scope_key, f.number FROM strandline.erasure_fence f WHERE f.number > %(number)s

-- name: find_erased
-- The fence, that stands, of an owner or a session of which only the scope is known; one of an unfinished erasure first.
-- row: number integer, fenced_at timestamptz, shard_key uuid, scope_key uuid, is_unfinished boolean
SELECT f.number, f.fenced_at, f.shard_key, f.scope_key, @is_unfinished(f.number) AS is_unfinished FROM strandline.erasure_fence f
WHERE f.scope_key = ANY (%(scope_keys)s::uuid[]) AND @stands(f)
ORDER BY @is_unfinished(f.number) DESC, f.number DESC LIMIT 1
