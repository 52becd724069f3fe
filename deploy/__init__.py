"""Running Strandline: the embedded stack, the supervisor of worker processes, and files for servers."""
