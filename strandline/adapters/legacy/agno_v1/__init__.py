"""Agno 1; its users import it from ``strandline.adapters.agno_v1``."""
