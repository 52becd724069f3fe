"""Erasures and exports over HTTP: long work, and long answers."""
