"""What a process keeps of the scopes that it searches again and again, and how it ranks by that."""
