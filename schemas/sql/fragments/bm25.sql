-- BM25, once for messages and facts: text that the searches share (derivations.sql says how it is used).
--
-- The constants are those of pipelines/text/bm25.py, which ranks what no statement finds; a test compares them.

-- fragment: by_length(length)
-- What a count is divided by: a usual message has 40 lexemes, whatever the scope holds, so that long answers do not
-- swamp short turns.
(0.25::float8 + 0.75::float8 * {length} / 40)

-- fragment: saturated(times)
-- What a word counts for that stands in a piece so many times, set against its length.
({times} / ({times} + 1.2::float8))

-- fragment: rarity(pieces, holders)
-- What a word counts for that so many of all pieces hold.
ln(1 + ({pieces} - {holders} + 0.5::float8) / ({holders} + 0.5::float8))
