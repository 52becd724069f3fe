"""Inspection: proving that everything adds up, and explaining why something was remembered."""
