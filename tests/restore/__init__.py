"""Each documented way of a backup, restored elsewhere by the documented commands."""
