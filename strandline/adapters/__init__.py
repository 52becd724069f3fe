"""Adapters for other libraries: each module needs that library, and the extra of its name brings it."""
