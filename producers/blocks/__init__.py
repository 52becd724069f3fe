"""Memory blocks: what each contributes to the prompt, and how it looks there."""
