"""The audit trail: who did what, from where and when; appended, sealed as a chain, and verified."""
