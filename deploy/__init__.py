"""How Strandline is run: the embedded stack, the supervisor of worker processes, and files for servers."""
