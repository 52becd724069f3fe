"""``python -m bench.redaction``: the figures of the redaction hook that ships.

Recall and precision are of seeded sets in which it is known what there is.  In real conversations only what
is found is known: ``--show`` prints it, and whoever measures says what of it is none.  The figures stand in
``docs/architecture/redaction.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.recall.data import DEFAULT_FOLDER, WHERE, conversations
from bench.redaction.conversations import read_collections
from bench.redaction.generated import Sample, hard_samples, samples, score


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Figures of the redaction hook that ships.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--of-each", type=int, default=2_000, help="sentences with each kind")
    parser.add_argument("--data", type=Path, default=DEFAULT_FOLDER, help="where the conversations are")
    parser.add_argument("--show", action="store_true", help="print what is found, with what stands around it")
    options = parser.parse_args()
    print(f"seeded sets (seed {options.seed}, {options.of_each:,} of each kind, three times as many others)")
    for name, make in (("forms that it has rules for", samples), ("other forms", hard_samples)):
        for line in _generated(name, make(seed=options.seed, of_each=options.of_each)):
            print(line)
    for line in _real(options.data, show=options.show):
        print(line)


def _generated(name: str, texts: Iterable[Sample]) -> Iterator[str]:
    yield f" {name}"
    for kind, figures in score(texts).items():
        yield (
            f"  {kind:8} recall {figures.recall:.4f} ({figures.found:,} of {figures.there:,}),"
            f" precision {figures.precision:.4f} ({figures.found:,} of {figures.claimed:,})"
        )


def _real(folder: Path, *, show: bool) -> Iterator[str]:
    by_name = read_collections(conversations(folder))
    if not by_name:
        yield f"real conversations: skipped, since there are none in {folder}"
        yield WHERE
    for name, findings in by_name.items():
        found = ", ".join(f"{count} {kind}" for kind, count in sorted(findings.found.items())) or "nothing"
        each = 1_000 * findings.found.total() / findings.messages
        speed = findings.characters / findings.seconds / 1e6
        yield (
            f"{name}: {found} in {findings.messages:,} messages ({each:.1f} per 1,000),"
            f" {speed:.1f} million characters a second"
        )
        if show:
            yield from (f"  {place}" for place in findings.places)


if __name__ == "__main__":
    main()
