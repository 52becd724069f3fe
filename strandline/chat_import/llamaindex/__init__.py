"""Importing the tables of LlamaIndex's Memory."""
