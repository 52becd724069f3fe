"""Operators' acts: functions of a database and settings, which the command line and the service call."""
