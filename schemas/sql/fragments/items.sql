-- Fragments about items.

-- fragment: unexpired(entry)
({entry}.expires_at IS NULL OR {entry}.expires_at > statement_timestamp())

-- Fields that are to be equal to a value without parts are compared with the whole value at once.
-- fragment: fits_filter(entry, equal, conditions)
({equal}::jsonb = '{}' OR {entry}.value::jsonb @> {equal}::jsonb) AND NOT EXISTS (
    SELECT FROM jsonb_each({conditions}::jsonb) AS wanted_field (name, condition)
    WHERE NOT strandline.fits_condition_v1({entry}.value::jsonb -> wanted_field.name, wanted_field.condition))
