"""Facts: extracted from messages, merged into known ones, edited by people."""
