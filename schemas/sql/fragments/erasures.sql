-- Fences of erased owners: text that several statements and functions share (derivations.sql says how it is used).

-- fragment: owner_lock(owner_key)
-- The number of an owner's advisory lock.  Whoever begins to write for an owner has it shared until its transaction
-- ends; who sets a fence has it alone.  A row would not do: what is not there yet cannot be locked.
hashtextextended('erasure ' || {owner_key}::text, 0)

-- fragment: stands(fence)
-- Whether a fence keeps its owner away: it was not readmitted since.
({fence}.readmitted_at IS NULL)
