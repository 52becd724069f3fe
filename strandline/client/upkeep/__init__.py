"""Erasures and exports of the client."""
