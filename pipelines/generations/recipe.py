"""Recipes: everything that a derivation depends on, as recorded with its generation.

A recipe is made from the settings when a generation begins; from then on only the generation's row counts, in
every worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from strandline.schemas.values.lanes import Scope


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that a generation depends on: version, entry lane, models and limits, texts of prompts."""

    version: str = "1"
    entry_scope: Scope = "session"
    config: Mapping[str, Any] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)


def differences(old: Recipe, new: Recipe) -> Iterator[str]:
    """The differences of two recipes, each as ``what: old -> new``; without the texts of prompts."""
    if old.version != new.version:
        yield f"version: {old.version} -> {new.version}"
    if old.entry_scope != new.entry_scope:
        yield f"scope: {old.entry_scope} -> {new.entry_scope}"
    before, after = dict(_points(old.config)), dict(_points(new.config))
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"{name}: {before.get(name, 'none')} -> {after.get(name, 'none')}"


def _points(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if name == "prompt_hashes":
            yield from ((f"prompt {task}", digest) for task, digest in value.items())
        else:
            yield name.replace("_", " "), value
