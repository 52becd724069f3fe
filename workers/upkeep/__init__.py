"""What a worker does beside its lanes: it seals the audit trail, reseals content, removes what is past."""
