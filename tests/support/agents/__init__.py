"""What tests of adapters share: conversations of agents, and an embedder without a model."""
