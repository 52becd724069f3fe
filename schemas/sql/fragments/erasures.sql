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

-- fragment: first_data_key(owner_key)
-- The number of the first data key of an owner's present life: no number comes again, so what a process has kept from
-- before an erasure neither seals nor opens anything of the life after it.
(1 + coalesce((SELECT f.data_keys FROM strandline.erasure_fence f
    WHERE f.shard_key = {owner_key} AND f.scope_key = {owner_key}), 0))

-- fragment: count_erased(number, table, rows)
-- In a function: count rows of a table that were deleted with an erasure, in the transaction that deletes them.
UPDATE strandline.erasure counted SET rows_erased = counted.rows_erased + {rows}, updated_at = statement_timestamp(),
        steps = counted.steps || jsonb_build_object({table}, coalesce((counted.steps ->> {table})::bigint, 0) + {rows})
    WHERE counted.number = {number}
