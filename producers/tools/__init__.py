"""Memory as tools of an agent: one definition of five tools, and the work of each call."""
