"""Erasures against everything at once.

``python -m tests.chaos.erasures --seed 1 --runs 200`` runs a long campaign.
"""
