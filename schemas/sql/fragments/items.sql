-- Fragments about items.

-- fragment: unexpired(entry)
({entry}.expires_at IS NULL OR {entry}.expires_at > statement_timestamp())

-- fragment: fits_filter(entry, conditions)
NOT EXISTS (
    SELECT FROM jsonb_each({conditions}::jsonb) AS wanted_field (name, condition)
    WHERE NOT strandline.fits_condition_v1({entry}.value::jsonb -> wanted_field.name, wanted_field.condition))
