"""Worker processes of tests, and work done by hand."""
