"""A worker's upkeep besides its lanes: sealing the audit trail, resealing, and retention."""
