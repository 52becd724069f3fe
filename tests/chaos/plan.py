"""Which fault happens when: drawn from a seed, the same every time, before anything is started.

What a fault disturbs is its *track*: one model, one broker, one Postgres, and a track per worker and per
producer.  Faults of one track never overlap, those of different tracks do as they please.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, get_args

Kind = Literal[
    "worker killed",
    "worker stopped",
    "worker frozen",
    "producer killed",
    "broker emptied",
    "broker restarted",
    "broker refuses hints",
    "postgres restarted",
    "model slow",
    "model limits the rate",
    "model fails",
    "model cuts answers",
    "model answers otherwise",
    "model never answers",
    "model answers too much",
    "model drips",
    "postgres black-holed",
    "broker sent junk",
    "clock stepped back",
    "poison turn",
    "facts edited",
    "session reset",
    "replay in place",
    "replay anew",
    "release changed",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

Target = Literal["worker", "producer", "broker", "postgres", "model", "turn", "owner", "replay", "release"]

# Owners whose facts people edit and whose sessions are reset.
OWNERS = 3

# Between two faults of one track, so that the second finds something to disturb.
GAP_SECONDS = 0.7

# Most faults come in storms, so that several last at once: one storm in so many seconds, of that breadth.
STORM_EVERY_SECONDS, STORM_SECONDS, IN_STORMS = 40.0, 2.0, 0.8


@dataclass(frozen=True, slots=True)
class Nature:
    """A kind of fault: the part it disturbs, its share of a campaign, and its duration in seconds.

    A process that is killed or stopped stays away for that long; then it is started again.
    """

    target: Target
    share: int
    shortest: float
    longest: float


# A frozen worker stays so for longer than worker_dead_after_seconds (5): its lanes are to be taken over.
NATURES: Mapping[Kind, Nature] = {
    "worker killed": Nature("worker", 18, 0.0, 2.0),
    "worker stopped": Nature("worker", 8, 0.0, 1.0),
    "worker frozen": Nature("worker", 6, 6.5, 9.0),
    "producer killed": Nature("producer", 14, 0.0, 1.0),
    "broker emptied": Nature("broker", 9, 0.0, 0.0),
    "broker restarted": Nature("broker", 9, 1.0, 5.0),
    "broker refuses hints": Nature("broker", 6, 1.0, 8.0),
    "postgres restarted": Nature("postgres", 9, 0.5, 4.0),
    "model slow": Nature("model", 5, 0.8, 8.0),
    "model limits the rate": Nature("model", 5, 0.8, 8.0),
    "model fails": Nature("model", 5, 0.8, 8.0),
    "model cuts answers": Nature("model", 4, 0.6, 2.0),
    "model answers otherwise": Nature("model", 4, 0.6, 2.0),
    "model never answers": Nature("model", 4, 0.8, 8.0),
    "model answers too much": Nature("model", 3, 0.8, 4.0),
    "model drips": Nature("model", 3, 0.8, 8.0),
    "postgres black-holed": Nature("postgres", 6, 1.0, 8.0),
    "broker sent junk": Nature("broker", 6, 0.0, 0.0),
    "clock stepped back": Nature("worker", 5, 0.0, 2.0),
    # These take as long as they take; the next of their track waits for them.
    "poison turn": Nature("turn", 2, 0.0, 0.0),
    "facts edited": Nature("owner", 10, 0.0, 1.0),
    "session reset": Nature("owner", 8, 0.0, 1.0),
    "replay in place": Nature("replay", 3, 0.0, 0.0),
    "replay anew": Nature("replay", 2, 0.0, 0.0),
    "release changed": Nature("release", 3, 4.0, 12.0),
}


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault: begins ``at`` seconds after the campaign's, lasts for ``seconds``; ``slot`` says which
    worker or producer, and is 0 where there is only one."""

    number: int
    at: float
    seconds: float
    kind: Kind
    slot: int

    @property
    def target(self) -> Target:
        return NATURES[self.kind].target

    def __str__(self) -> str:
        which = f" {self.slot}" if self.target in ("worker", "producer", "owner") else ""
        return f"{self.number:3}  {self.at:7.1f} s  {self.kind}{which}, for {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a campaign is; times in seconds.

    Attributes:
        faults: how many, at least one of each kind.
        calm: nothing is disturbed for so long, then the model alone fails for so long, then nothing again:
            puts of the second time are held against those of the first and the third.
        span: for how long faults begin after that.
        workers: worker processes.
        producers: producer processes.
    """

    faults: int
    calm: float
    span: float
    workers: int = 3
    producers: int = 4

    @property
    def seconds(self) -> float:
        """When the last fault has ended, at the latest."""
        return 3 * self.calm + self.span


class DoesNotFitError(ValueError):
    """The number of faults does not fit the time, or the kinds."""


def make_plan(seed: int, shape: Shape) -> tuple[PlannedFault, ...]:
    """The plan of a seed, in the order of time; its first fault is the model's outage after the calm.

    Raises:
        DoesNotFitError: naming the track, if the faults of one need more than the time there is; or if
            there are too few faults for one of each kind.
    """
    if shape.faults <= len(KINDS):
        raise DoesNotFitError(f"A campaign has at least {len(KINDS) + 1} faults: each kind, and one before.")
    draw = random.Random(seed)  # noqa: S311  # a plan, no secret
    tracks: dict[tuple[Target, int], list[Kind]] = {}
    for kind in draw.sample(kinds := _kinds(shape.faults - 1), len(kinds)):
        tracks.setdefault((NATURES[kind].target, _slot(draw, kind, shape)), []).append(kind)
    storms = [draw.uniform(0, shape.span) for _ in range(1 + int(shape.span / STORM_EVERY_SECONDS))]
    begin = 3 * shape.calm
    placed: list[tuple[float, float, Kind, int]] = [(shape.calm, shape.calm, "model fails", 0)]
    for (target, slot), kinds in sorted(tracks.items()):
        for at, seconds, kind in _laid_out(draw, kinds, shape.span, f"{target} {slot}", storms):
            placed.append((begin + at, seconds, kind, slot))
    return tuple(
        PlannedFault(number, round(at, 2), round(seconds, 2), kind, slot)
        for number, (at, seconds, kind, slot) in enumerate(sorted(placed), 1)
    )


def most_at_once(plan: Sequence[PlannedFault]) -> int:
    """How many faults last at the same time, at most."""
    edges = [(fault.at, 1) for fault in plan] + [(fault.at + fault.seconds, -1) for fault in plan]
    return max(accumulate(change for _at, change in sorted(edges)), default=0)


def _kinds(count: int) -> list[Kind]:
    """So many kinds: each once, the rest by their shares and largest remainder."""
    total = sum(nature.share for nature in NATURES.values())
    exact = {kind: 1 + (count - len(KINDS)) * NATURES[kind].share / total for kind in KINDS}
    counts = {kind: int(share) for kind, share in exact.items()}
    by_remainder = sorted(KINDS, key=lambda kind: counts[kind] - exact[kind])
    for kind in by_remainder[: count - sum(counts.values())]:
        counts[kind] += 1
    return [kind for kind in KINDS for _ in range(counts[kind])]


def _slot(draw: random.Random, kind: Kind, shape: Shape) -> int:
    slots = {"worker": shape.workers, "producer": shape.producers, "owner": OWNERS}.get(
        NATURES[kind].target, 1
    )
    return draw.randrange(slots)


def _laid_out(
    draw: random.Random, kinds: Sequence[Kind], span: float, track: str, storms: Sequence[float]
) -> list[tuple[float, float, Kind]]:
    """Begin and length of each fault of a track: where it was drawn, or as near as the others let it."""
    lengths = _shortened([_length(draw, kind) for kind in kinds], kinds, span, track)
    begins = sorted(_moment(draw, span, storms) for _ in kinds)
    free = 0.0
    for place, length in enumerate(lengths):
        begins[place] = max(begins[place], free)
        free = begins[place] + length + GAP_SECONDS
    free = span
    for place in reversed(range(len(kinds))):
        begins[place] = min(begins[place], free - lengths[place] - GAP_SECONDS)
        free = begins[place]
    return list(zip(begins, lengths, kinds, strict=True))


def _moment(draw: random.Random, span: float, storms: Sequence[float]) -> float:
    """Mostly near a storm, where faults of all tracks come together; otherwise anywhere."""
    if draw.random() < IN_STORMS:
        return min(span, max(0.0, draw.gauss(draw.choice(storms), STORM_SECONDS)))
    return draw.uniform(0, span)


def _length(draw: random.Random, kind: Kind) -> float:
    return draw.uniform(NATURES[kind].shortest, NATURES[kind].longest)


def _shortened(lengths: Sequence[float], kinds: Sequence[Kind], span: float, track: str) -> list[float]:
    """The lengths, each nearer to its kind's shortest where they would not fit."""
    shortest = [NATURES[kind].shortest for kind in kinds]
    spare = sum(lengths) - sum(shortest)
    excess = sum(lengths) + GAP_SECONDS * len(kinds) - span
    if excess > spare:
        raise DoesNotFitError(
            f"{len(kinds)} faults of {track} need {sum(shortest) + GAP_SECONDS * len(kinds):.0f} s, and there"
            f" are {span:.0f} s; give the campaign more minutes or fewer faults."
        )
    keep = 1.0 if excess <= 0 else 1.0 - excess / spare
    return [low + (length - low) * keep for low, length in zip(shortest, lengths, strict=True)]
