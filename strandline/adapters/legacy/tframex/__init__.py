"""TFrameX; its users import it from ``strandline.adapters.tframex``."""
