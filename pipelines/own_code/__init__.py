"""An application's own code: found by name, and called within bounds."""
