"""How Strandline talks to a broker: settings, with the reason for each, hints, and the client of Redis."""
