"""Memory blocks: their contributions to the prompt, and how these are rendered."""
