"""Parts that providers' forms of a message share, and each provider's own form."""
