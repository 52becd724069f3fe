"""The HTTP service: sessions, reads, searches and facts for every language, by keys."""
