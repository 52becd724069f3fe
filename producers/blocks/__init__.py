"""Memory blocks: their contributions to the prompt, and the form of these."""
