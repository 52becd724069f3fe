"""Adapters for other libraries: each module needs that library, which the extra of the same name installs."""
