"""Edits as they are recorded, and instructions that are carried out as edits."""
