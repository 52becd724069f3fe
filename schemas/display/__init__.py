"""How stored text and URLs are shown to people: nothing hidden, nothing forged, no secret."""
