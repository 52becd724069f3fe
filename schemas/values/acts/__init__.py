"""Acts of people and operators, as values: who acts, kinds of acts, choices on capturing and retention."""
