"""Redaction: texts that an application's code, or Strandline's, may change before they are stored or sent."""
