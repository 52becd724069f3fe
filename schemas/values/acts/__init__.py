"""What people and operators do, as values: who acts, kinds of acts, choices on capturing and retention."""
