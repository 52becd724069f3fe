"""The branch of a conversation that its person saw last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Node = TypeVar("Node")


def branch_to(leaf: str, nodes: Mapping[str, Node], parents: Mapping[str, str]) -> list[Node]:
    """The nodes from the root to ``leaf``; a circle ends where it closes."""
    branch: list[Node] = []
    seen: set[str] = set()
    at: str | None = leaf
    while at is not None and at in nodes and at not in seen:
        seen.add(at)
        branch.append(nodes[at])
        at = parents.get(at)
    branch.reverse()
    return branch


def newest_leaf(times: Mapping[str, float], parents: Mapping[str, str]) -> str | None:
    """Of the nodes that are nobody's parent the one with the latest time; the last of those of one time."""
    inner = set(parents.values())
    leaves = [node for node in times if node not in inner]
    return max(reversed(leaves), key=lambda node: times[node]) if leaves else None
