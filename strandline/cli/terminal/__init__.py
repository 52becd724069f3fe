"""Commands and the terminal: output, the standard streams, logs, and signals."""
