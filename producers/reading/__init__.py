"""Reading: pinned head, memory, tail and window, within a token limit."""
