"""Fingerprints: digests by which texts count as the same words."""

from __future__ import annotations

from hashlib import blake2b

from strandline.schemas.values.normal_form import folded


def fingerprint(text: str) -> bytes:
    """A digest that is equal for the same words: case, width, punctuation and spacing do not count."""
    words = "".join(c if c.isalnum() else " " for c in folded(text)).split()
    return blake2b(" ".join(words).encode(), digest_size=16).digest()
