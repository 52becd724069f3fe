"""Corrections under load: sessions that are corrected from many sides while workers and producers are killed.

``python -m tests.chaos.corrections --seed 1 --corrections 500`` runs a long campaign.
"""
