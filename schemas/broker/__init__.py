"""How Strandline talks to a broker: settings, with the reason for each, and the channel to Redis."""
