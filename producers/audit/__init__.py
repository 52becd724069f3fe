"""The producers' side of the audit trail: the compliance hook before an act, and the recording of reads."""
