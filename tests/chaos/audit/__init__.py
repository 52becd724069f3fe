"""Sealing the audit trail beside puts, while sealers are killed."""
