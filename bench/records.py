"""The ratios that were recorded last (``bench/recorded.json``), and the figures of a run that are worse."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.figures import Figure

FILE = Path(__file__).with_name("recorded.json")
TOLERANCE = 0.03

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Record:
    """A figure's ratio as it was recorded; ``date`` and ``commit`` are those of the run."""

    case: str
    name: str
    against: str
    ratio: float
    date: str
    commit: str

    @property
    def key(self) -> Key:
        return (self.case, self.name, self.against)


def read_records(file: Path = FILE) -> dict[Key, Record]:
    """What was recorded, by case, name and what it is held against."""
    records = [Record(**one) for one in json.loads(file.read_text(encoding="utf-8"))]
    return {one.key: one for one in records}


def write_records(figures: Sequence[Figure], date: str, commit: str, file: Path = FILE) -> None:
    """Record the figures; those that this run has not measured stay as they are."""
    measured = [Record(one.case, one.name, one.against, one.ratio, date, commit) for one in figures]
    records = read_records(file) | {one.key: one for one in measured}
    lines = ",\n".join(json.dumps(asdict(one), ensure_ascii=False) for one in records.values())
    file.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def compare(figures: Sequence[Figure], records: Mapping[Key, Record]) -> list[str]:
    """A line for each figure that is worse by more than ``TOLERANCE``, and one for those never recorded."""
    pairs = [(one, records.get((one.case, one.name, one.against))) for one in figures]
    lines = [_line(one, record) for one, record in pairs if record and _loss(one, record) > TOLERANCE]
    unknown = sorted({one.case for one, record in pairs if record is None})
    if unknown:
        lines.append(f"not recorded yet (--record does): figures of {', '.join(unknown)}")
    return lines


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def commit_here() -> str:
    """The commit of this checkout, with ``-dirty`` where it was changed since; empty outside of one."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=FILE.parent, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def _loss(figure: Figure, record: Record) -> float:
    """The share by which the ratio is worse than recorded; below zero if it is better."""
    if not record.ratio:
        return 0.0
    change = round(figure.ratio / record.ratio - 1, 6)
    return -change if figure.more_is_better else change


def _line(figure: Figure, record: Record) -> str:
    return (
        f"worse by {100 * _loss(figure, record):.0f} %: {figure.case}: {figure.name} / {figure.against}:"
        f" {figure.ratio:g} ({figure.lowest:g}-{figure.highest:g}),"
        f" recorded {record.ratio:g} on {record.date} ({record.commit})"
    )
