-- Fences of erased owners: text that several statements and functions share (derivations.sql says how it is used).

-- fragment: owner_lock(owner_key)
-- The number of an owner's advisory lock.  Whoever begins to write for an owner has it shared until its transaction
-- ends; who sets a fence has it alone.  A row would not do: what is not there yet cannot be locked.
hashtextextended('erasure ' || {owner_key}::text, 0)

-- fragment: erasing_lock(scope_key)
-- The number of the advisory lock that who sets the fence of this owner, or of this session, has alone, from before the
-- owner's lock to the end.  Who cannot have it shared knows that this very owner or session is being erased; who cannot
-- have the owner's lock does not know that, since the owner's other sessions are erased and readmitted under it, too.
hashtextextended('erasing ' || {scope_key}::text, 0)

-- fragment: stands(fence)
-- Whether a fence keeps its owner away: it was not readmitted since.
({fence}.readmitted_at IS NULL)

-- fragment: is_fenced(owner_key)
-- Whether a fence keeps a whole owner away: no worker takes its work, and its erasure removes that.
EXISTS (SELECT FROM strandline.erasure_fence fence
    WHERE fence.shard_key = {owner_key} AND fence.scope_key = {owner_key} AND @stands(fence))

-- fragment: first_data_key(owner_key)
-- The number of the first data key of an owner's present life: no number comes again, so what a process has kept from
-- before an erasure neither seals nor opens anything of the life after it.
(1 + coalesce((SELECT f.data_keys FROM strandline.erasure_fence f
    WHERE f.shard_key = {owner_key} AND f.scope_key = {owner_key}), 0))

-- fragment: is_unfinished(number)
-- Whether an erasure has no receipt yet.
EXISTS (SELECT FROM strandline.erasure unfinished WHERE unfinished.number = {number} AND unfinished.state = 'running')

-- fragment: is_final(erasure)
-- Whether it is finished, and the last thing that is recorded of its scope: nothing of that may be there.
({erasure}.state = 'done' AND {erasure}.kind <> 'readmission' AND NOT EXISTS (
    SELECT FROM strandline.erasure later WHERE later.owner_key = {erasure}.owner_key
        AND later.scope_key = {erasure}.scope_key AND later.number > {erasure}.number))

-- fragment: lock_unfinished(number)
-- In a function that deletes for an erasure: do nothing once it is finished, and let it not be finished before this
-- transaction ends.  A process that was held up deletes nothing of the life after a readmission.
PERFORM FROM strandline.erasure unfinished WHERE unfinished.number = {number} FOR UPDATE;
    IF EXISTS (SELECT FROM strandline.erasure ended WHERE ended.number = {number} AND ended.state = 'done') THEN
        RETURN 0;
    END IF

-- fragment: count_erased(number, table, rows)
-- In a function: count rows of a table that were deleted with an erasure, in the transaction that deletes them.
UPDATE strandline.erasure counted SET rows_erased = counted.rows_erased + {rows}, updated_at = statement_timestamp(),
        steps = counted.steps || jsonb_build_object({table}, coalesce((counted.steps ->> {table})::bigint, 0) + {rows})
    WHERE counted.number = {number}

-- fragment: is_judged(owner_key)
-- In verify: whether rows of this owner are to be checked.  Not those behind an erasure that is not finished, which goes
-- on table by table.
((%(owners)s::uuid[] IS NULL OR {owner_key} = ANY (%(owners)s)) AND ({owner_key} <> ALL (ARRAY(
    SELECT unfinished.owner_key FROM strandline.erasure unfinished WHERE unfinished.state = 'running'))) IS NOT FALSE)

-- fragment: is_judged_session(owner_key, session_key)
-- In verify: the same of rows of a session, of which it may be asked alone.
(@is_judged({owner_key}) AND (%(session_key)s::uuid IS NULL OR {session_key} = %(session_key)s))

-- fragment: owner_tables()
-- In a function: the tables with rows of owners, from the catalog and not from the plan of the erasure: each that has a key
-- of an owner (shard_key, owner_key), and of those each that has a key of a session or scope.
SELECT c.relname, a.attname, (
        SELECT o.attname FROM pg_catalog.pg_attribute o WHERE o.attrelid = c.oid AND NOT o.attisdropped
            AND o.attname IN ('session_key', 'scope_key') ORDER BY o.attname DESC LIMIT 1) AS scoped
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname IN ('shard_key', 'owner_key')
        AND a.atttypid = 'uuid'::regtype AND NOT a.attisdropped
    WHERE c.relnamespace = (
            SELECT n.relnamespace FROM pg_catalog.pg_class n WHERE n.oid = to_regclass('strandline.erasure'))
        AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname NOT IN ('erasure', 'erasure_fence')
    ORDER BY c.relname, a.attname

-- fragment: is_fact_of(fact, shard_key, session_key)
-- Whether some revision of a fact came from a session.
EXISTS (SELECT FROM strandline.fact_revision stated WHERE stated.shard_key = {shard_key}
    AND stated.generation_id = {fact}.generation_id AND stated.fact_id = {fact}.fact_id
    AND stated.session_key = {session_key})

-- fragment: is_call_of(call, shard_key, scope_key)
-- Whether a model call was made for a batch of a session or scope.
EXISTS (SELECT FROM strandline.batch called WHERE called.shard_key = {shard_key}
    AND called.batch_id = {call}.batch_id AND called.scope_key = {scope_key})
