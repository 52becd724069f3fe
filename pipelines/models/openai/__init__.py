"""Models behind any server that speaks OpenAI's protocol."""
