-- Fences of erased owners: text that several statements and functions share (derivations.sql says how it is used).

-- fragment: owner_lock(owner_key)
-- The number of an owner's advisory lock.  Whoever begins to write for an owner has it shared until its transaction
-- ends; who sets a fence has it alone.  A row would not do: what is not there yet cannot be locked.
hashtextextended('erasure ' || {owner_key}::text, 0)

-- fragment: stands(fence)
-- Whether a fence keeps its owner away: it was not readmitted since.
({fence}.readmitted_at IS NULL)

-- fragment: first_data_key(owner_key)
-- The number of the first data key of an owner's present life: no number comes again, so what a process has kept from
-- before an erasure neither seals nor opens anything of the life after it.
(1 + coalesce((SELECT f.data_keys FROM strandline.erasure_fence f
    WHERE f.shard_key = {owner_key} AND f.scope_key = {owner_key}), 0))
