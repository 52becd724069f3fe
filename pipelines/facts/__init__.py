"""Facts: extracted from messages, merged into what is known, edited by people."""
