-- search_terms_v1: the lexemes of a piece, or of a query, as numbers that differ from owner to owner and from
-- generation to generation, so that an index over them leads from an owner's word to the owner's pieces alone.
--
-- Two words may meet in one number, so a look-up compares keys and lexemes as well. An index depends on this
-- function: another function needs another name.  The cost keeps the planner from calling it per row.
CREATE FUNCTION strandline.search_terms_v1(p_shard_key uuid, p_generation_id integer, p_lexemes tsvector)
RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE COST 1000
AS $function$
SELECT array_agg(hashtextextended(l.lexeme COLLATE "C", uuid_hash_extended(p_shard_key, p_generation_id)))
FROM unnest(tsvector_to_array(p_lexemes)) AS l (lexeme)
$function$
