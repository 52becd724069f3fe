"""The faults of a campaign: each disturbs one thing, and says when it is over."""
