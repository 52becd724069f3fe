"""Memory as tools of an agent: one definition of five tools, and what a call of each does."""
