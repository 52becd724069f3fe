"""Search: ranked messages and facts."""
