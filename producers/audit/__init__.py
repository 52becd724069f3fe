"""What producers do for the audit trail: the compliance hook before an act, and the recording of reads."""
