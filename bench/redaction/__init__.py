"""How much of what it looks for the redaction hook that ships finds, and how much else."""
