"""Pure values that all rooms share: messages, policies, lanes, events, keys."""
