-- What is asked of a connection whose session is not ours to set.

-- name: transaction_defaults
-- How a transaction begins here that says nothing of it.
SELECT current_setting('transaction_isolation'), current_setting('default_transaction_read_only')
