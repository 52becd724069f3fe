"""Charts of a run as SVG: ratios as bars with their spread, and how flat costs stay as lines.

The table of docs/performance.md is printed as well.

    python -m bench.charts FIGURES.json docs

They have their own background, so that they look the same on a light page and on a dark one.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

INK, FAINT, GROUND = "#1f2933", "#d5dbe1", "#ffffff"
MET, MISSED, PLAIN = "#2a7f62", "#c2512f", "#5b7c99"
LINES = ("#2a7f62", "#c2512f", "#5b7c99", "#8a6bb1")
BEHIND = {"facecolor": GROUND, "edgecolor": "none", "pad": 0.5}
WIDTH_INCHES = 9.0
RATIOS, FLAT = "performance-ratios.svg", "performance-flat.svg"

Record = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.charts", description=__doc__)
    parser.add_argument("figures", type=Path, help="what `python -m bench --json` wrote")
    parser.add_argument("folder", type=Path, help="where the charts go")
    given = parser.parse_args(arguments)
    try:
        charts = Charts()
    except ImportError:
        print("matplotlib is not installed; pip install 'strandline[bench]' brings it.", file=sys.stderr)
        return 2
    figures = json.loads(given.figures.read_text(encoding="utf-8"))["figures"]
    if bars := [one for one in figures if not one["axis"] and one["goal"] is not None]:
        charts.bars(bars, given.folder / RATIOS)
    if lines := [one for one in figures if one["axis"]]:
        charts.lines(lines, given.folder / FLAT)
    print(as_markdown(figures))
    return 0


def as_markdown(figures: Sequence[Record]) -> str:
    """The table of ratios, with their spread and goals; no values of the machine."""
    lines = [
        "| case | measured | held against | ratio | lowest–highest | goal |",
        "|---|---|---|---|---|---|",
    ]
    for one in figures:
        goal = "" if one["goal"] is None else one["goal"]["is"].replace("<=", "≤").replace(">=", "≥")
        met = "" if one["goal"] is None or one["goal"]["met"] else ", not met"
        spread = f"{one['lowest']:g}–{one['highest']:g}"
        cells = (one["case"], one["name"], one["against"], f"{one['ratio']:g}", spread, goal + met)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


class Charts:
    """Draws with matplotlib, which is imported here.

    Raises:
        ImportError: it is not installed.
    """

    def __init__(self) -> None:
        self._matplotlib = importlib.import_module("matplotlib")
        self._figure = importlib.import_module("matplotlib.figure").Figure
        ticker = importlib.import_module("matplotlib.ticker")
        self._plain_numbers = ticker.FuncFormatter(lambda value, _place: f"{value:g}")
        self._nothing = ticker.NullFormatter()
        self._counts = ticker.FuncFormatter(lambda value, _place: f"{value:,.0f}")
        self._matplotlib.rcParams.update(
            {
                "font.family": "sans-serif",
                "font.size": 10,
                "text.color": INK,
                "axes.edgecolor": FAINT,
                "axes.labelcolor": INK,
                "xtick.color": INK,
                "ytick.color": INK,
                # Letters as letters, and the same file for the same figures.
                "svg.fonttype": "none",
                "svg.hashsalt": "strandline",
            }
        )

    def bars(self, figures: Sequence[Record], file: Path) -> None:
        """How often over its goal each ratio is; 1 is the goal, and left of it is better."""
        figure, axes = self._page(0.42 * len(figures) + 1.4)
        for place, one in enumerate(reversed(figures)):
            share, lowest, highest = _shares(one)
            colour = MET if one["goal"]["met"] else MISSED
            axes.barh(place, share, color=colour, height=0.62)
            axes.plot([lowest, highest], [place, place], color=INK, linewidth=1.2)
            axes.text(max(share, highest), place, f"  {one['ratio']:g}", va="center", fontsize=9, bbox=BEHIND)
        axes.set_yticks(range(len(figures)), list(map(_label, reversed(figures))))
        axes.tick_params(axis="y", labelsize=8, length=0)
        axes.axvline(1, color=INK, linewidth=1, linestyle="--")
        axes.set_xscale("log")
        axes.set_xlim(left=min(0.1, *(_shares(one)[1] / 2 for one in figures)))
        axes.xaxis.set_major_formatter(self._plain_numbers)
        axes.xaxis.set_minor_formatter(self._nothing)
        axes.set_xlabel(
            "of what the goal allows: left of the dashed line it is met\n(beside each bar: the ratio)"
        )
        self._save(
            figure,
            file,
            "Ratios against their goals",
            "A bar for each ratio that has a goal, with its spread; left of the dashed line the goal is met.",
        )

    def lines(self, figures: Sequence[Record], file: Path) -> None:
        """The ratio of each point to the first of its line."""
        axes_names = list(dict.fromkeys(one["axis"] for one in figures))
        topics = list(dict.fromkeys(name.partition(", ")[2] for name in axes_names))
        figure, grid = self._page(2.6 * -(-len(topics) // 2), -(-len(topics) // 2), 2)
        for axes, topic in zip(grid.flat, topics, strict=False):
            lines = [name for name in axes_names if name.partition(", ")[2] == topic]
            for colour, name in zip(LINES, lines, strict=False):
                self._line(axes, [one for one in figures if one["axis"] == name], colour)
            axes.set_title(topic, fontsize=11)
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(self._counts)
            axes.set_ylim(bottom=0, top=max(2.0, axes.get_ylim()[1]))
            axes.axhline(1.25, color=INK, linewidth=1, linestyle="--")
            axes.legend(frameon=False, fontsize=8, loc="upper left")
        for axes in list(grid.flat)[len(topics) :]:
            axes.set_visible(False)
        figure.supylabel("cost, against the near end", fontsize=9)
        self._save(
            figure,
            file,
            "Cost against the near end of each axis",
            "Lines of puts and gets over history, sessions, facts and chunks; the dashed line is 1.25.",
        )

    def _line(self, axes: Any, points: Sequence[Record], colour: str) -> None:
        places = [_near(points[0]), *(one["place"] for one in points)]
        label = points[0]["axis"].partition(", ")[0]
        axes.plot(places, [1.0, *(one["ratio"] for one in points)], color=colour, marker="o", label=label)
        low, high = [1.0, *(one["lowest"] for one in points)], [1.0, *(one["highest"] for one in points)]
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)

    def _page(self, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
        figure = self._figure(figsize=(WIDTH_INCHES, height), facecolor=GROUND, layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes in grid.flat:
            axes.set_facecolor(GROUND)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="both", color=FAINT, linewidth=0.6)
            axes.set_axisbelow(True)
        return figure, grid if (rows, columns) != (1, 1) else grid[0, 0]

    def _save(self, figure: Any, file: Path, title: str, description: str) -> None:
        figure.savefig(file, format="svg", metadata={"Date": None})
        drawn = file.read_text(encoding="utf-8")
        # For those to whom a picture is read.
        told = f"<title>{title}</title>\n <desc>{description}</desc>"
        file.write_text(drawn.replace(" <metadata>", f" {told}\n <metadata>", 1), encoding="utf-8")


def _shares(one: Record) -> tuple[float, float, float]:
    """The ratio, its lowest and its highest, in goals: over 1 is missed, also where more is better."""
    comparison, bound = one["goal"]["is"].split()
    ratio, *spread = (
        float(bound) / one[name] if comparison == ">=" else one[name] / float(bound)
        for name in ("ratio", "lowest", "highest")
    )
    return ratio, min(spread), max(spread)


def _label(one: Record) -> str:
    return f"{one['name']}\nagainst {one['against']}: {one['goal']['is']}"


def _near(one: Record) -> int:
    """The first point of a line, which the others are held against: ``1,000, p50``."""
    return int(one["against"].removesuffix(", p50").replace(",", ""))


if __name__ == "__main__":
    sys.exit(main())
