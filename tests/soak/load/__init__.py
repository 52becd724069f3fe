"""A steady load with reads, on one machine with everything on."""
