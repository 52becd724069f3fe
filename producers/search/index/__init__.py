"""In-memory indexes of scopes that a process searches repeatedly, and their ranking."""
