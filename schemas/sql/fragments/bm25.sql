-- BM25, by one formula for messages and facts: text that the searches share (derivations.sql says how it is used).
--
-- The constants are those of pipelines/text/weighting.py, which ranks what no statement finds; a test compares them.

-- fragment: by_length(length)
-- The divisor of a count: a usual message has 40 lexemes, whatever the scope holds, so that long answers do not
-- swamp short turns.
(0.25::float8 + 0.75::float8 * {length} / 40)

-- fragment: saturated(times)
-- The weight of a word that occurs so many times in a piece, adjusted for the piece's length.
({times} / ({times} + 1.2::float8))

-- fragment: rarity(pieces, holders)
-- The weight of a word that so many of all pieces contain.
ln(1 + ({pieces} - ({holders}) + 0.5::float8) / ({holders} + 0.5::float8))
