"""Inspection: proves that everything adds up, and explains why something was remembered."""
