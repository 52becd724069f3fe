-- search_code_v1: a vector of length 1 as bits, of which two codes share the more the nearer their vectors are.
--
-- Three bits per dimension say whether it is above a low, a middle and a high bound.  Its sign alone says too
-- little: of the ten pieces of 100,000 that are nearest to a question, 200 candidates held 83 per cent; with
-- three bits they hold 98.
-- A column is made by this, so another function needs another name.  The body is bound when it is made, and
-- means the same under every search_path, also while a dump is restored.
CREATE FUNCTION strandline.search_code_v1(p_vector halfvec) RETURNS bit varying
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_vector IS NOT NULL THEN
    binary_quantize(p_vector + array_fill(0.7 / sqrt(vector_dims(p_vector)), ARRAY[vector_dims(p_vector)])::halfvec)
    || binary_quantize(p_vector)
    || binary_quantize(p_vector - array_fill(0.7 / sqrt(vector_dims(p_vector)), ARRAY[vector_dims(p_vector)])::halfvec)
END
