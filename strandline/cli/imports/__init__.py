"""``strandline import``: put existing chats in bulk."""
