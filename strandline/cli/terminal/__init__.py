"""How commands meet the terminal: what they print, the standard streams, logs, and ends from outside."""
