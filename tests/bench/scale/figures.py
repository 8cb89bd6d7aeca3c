"""What was measured, as numbers, as a table and as a plot."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from retrieval.contract import Answer
from tests.bench.proxy_plot import drawn

GROWTH_BAR: Final = 2.5
"""How many times the median may grow from the smallest size to the largest, for the reader of the
smallest share."""
GROWTH_OVER: Final = 100
_ROOT: Final = Path(__file__).resolve().parents[3]
PATHS: Final = ("fallback", "automatic", "thread")


@dataclass(slots=True)
class Series:
    """Requests of one reader along one path. Times in ms, processor time in us."""

    whole: list[float] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    modes: Counter[str] = field(default_factory=Counter)
    cpu_us: dict[str, float] = field(default_factory=dict)

    def add(self, ms: float, answer: Answer, spent: Mapping[str, float]) -> None:
        """One request: its time, its phases and what it waited for at each store."""
        if answer.response is None:
            raise RuntimeError(f"refused: {answer.status} {answer.code}")
        self.whole.append(ms)
        self.modes[answer.response.mode] += 1
        for name, value in (*answer.timings, *spent.items()):
            self.parts[str(name)].append(value)

    def cpu(self, before: Mapping[str, float], after: Mapping[str, float]) -> None:
        """Processor time of all requests so far, by what spent it."""
        many = max(1, len(self.whole))
        self.cpu_us = {name: (after[name] - before[name]) * 1e6 / many for name in after}

    def figures(self) -> dict[str, Any]:
        parts = {name: milliseconds(values) for name, values in self.parts.items()}
        return {
            **milliseconds(self.whole),
            "modes": dict(self.modes),
            "cpu_us": {name: round(spent) for name, spent in self.cpu_us.items()},
            "parts": parts,
        }


def milliseconds(values: Collection[float]) -> dict[str, float]:
    """Median, 99th percentile and number."""
    if not values:
        return {"n": 0}
    times = sorted(values)
    return {
        "n": len(times),
        "p50_ms": round(median(times), 2),
        "p99_ms": round(times[int(len(times) * 0.99)], 2),
    }


def recall(found: Sequence[Collection[object]], wanted: Sequence[Collection[object]]) -> float:
    """The share of what should have been found that was, over all questions."""
    hit = sum(len(set(one) & set(two)) for one, two in zip(found, wanted, strict=True))
    return round(hit / max(1, sum(map(len, wanted))), 5)


def told(out: Console, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Prints all of it, draws the plot, and says what the bar says."""
    sizes: Mapping[str, Any] = figures["sizes"]
    out.print(_paths(sizes))
    out.print(_stores(sizes))
    out.print(_beside(sizes))
    _plot(sizes)
    out.print("plot: build/bench-retrieval.svg")
    grown = growth(sizes, lambda one: float(one["p50_ms"]))
    computed = growth(sizes, lambda one: float(sum(one["cpu_us"].values())))
    for share, paths in grown.items():
        out.print(
            f"growth at {float(share):.1%}: of the median {paths}, of processor time"
            f" {computed[share]}"
        )
    first, sides = next(iter(grown.values())), [int(one) for one in sizes]
    met = None  # the bar is about sizes that lie a hundred times apart
    if sides[-1] >= GROWTH_OVER * sides[0]:
        met = all(times <= GROWTH_BAR for times in first.values())
    verdict = {True: "met", False: "NOT met", None: "not measured: sizes too near"}[met]
    out.print(
        f"bar: at most {GROWTH_BAR} times over {GROWTH_OVER} times the units, for the reader of the"
        f" smallest share: {verdict}"
    )
    for name, one in figures["non_interference"].items():
        out.print(f"non-interference, {name}: {one}", markup=False)
    return {"growth": grown, "growth_cpu": computed, "bar": GROWTH_BAR, "bar_met": met}


def growth(
    sizes: Mapping[str, Any], of: Callable[[Mapping[str, Any]], float]
) -> dict[str, dict[str, float]]:
    """The figure of the largest size over that of the smallest, by share and path."""
    order = list(sizes.values())
    smallest, largest = order[0]["steps"], order[-1]["steps"]
    return {
        share: {
            path: round(of(largest[share][path]) / of(smallest[share][path]), 2) for path in PATHS
        }
        for share in smallest
    }


def _paths(sizes: Mapping[str, Any]) -> Table:
    table = Table("units", "readable", "path", "modes", "p50 ms", "p99 ms",
                  "CPU us: python", "postgres", "qdrant", title="the whole request")  # fmt: skip
    for size, of_size in sizes.items():
        for share, step in of_size["steps"].items():
            for path in PATHS:
                one = step[path]
                cpu = [f"{one['cpu_us'][name]:,}" for name in ("python", "postgres", "qdrant")]
                modes = ", ".join(f"{mode} {many}" for mode, many in one["modes"].items())
                table.add_row(
                    f"{int(size):,}", f"{float(share):.1%}", path, modes,
                    f"{one['p50_ms']:.1f}", f"{one['p99_ms']:.1f}", *cpu,
                )  # fmt: skip
    return table


def _stores(sizes: Mapping[str, Any]) -> Table:
    names = ("postgres", "qdrant", "embedder", "ledger")
    table = Table("units", "readable", "path", *names, title="waited for, p50 / p99 ms")
    for size, of_size in sizes.items():
        for share, step in of_size["steps"].items():
            for path in PATHS:
                parts = step[path]["parts"]
                cells = [
                    f"{parts[name]['p50_ms']:.1f} / {parts[name]['p99_ms']:.1f}"
                    if name in parts else ""
                    for name in names
                ]  # fmt: skip
                table.add_row(f"{int(size):,}", f"{float(share):.1%}", path, *cells)
    return table


def _beside(sizes: Mapping[str, Any]) -> Table:
    table = Table(
        *("units", "readable", "recall@10: request", "index", "wardowl"),
        *("forbidden: ours", "wardowl", "p50 ms: ours", "index", "wardowl"),
        title="found, and beside",
    )
    for size, of_size in sizes.items():
        for share, step in of_size["steps"].items():
            recalled, other, fallback = step["recall_at_10"], step["wardowl"], step["fallback"]
            has = "p50_ms" in other
            table.add_row(
                f"{int(size):,}", f"{float(share):.1%}",
                f"{recalled['request']:.4f}", f"{recalled['index']:.4f}",
                f"{other['recall_at_10']:.4f}" if has else "not there",
                str(step["forbidden"]), str(other["forbidden"]) if has else "",
                f"{fallback['p50_ms']:.1f}", f"{fallback['parts']['qdrant']['p50_ms']:.1f}",
                f"{other['p50_ms']:.1f}" if has else "",
            )  # fmt: skip
    return table


def _plot(sizes: Mapping[str, Any]) -> None:
    shares = list(next(iter(sizes.values()))["steps"])
    cases = {share: f"{float(share):.1%} readable, fallback" for share in shares}
    medians = {
        share: {
            f"{name} {int(size):,}": of_size["steps"][share][key]["p50_ms"]
            for size, of_size in sizes.items()
            for name, key in (("gateway", "fallback"), ("wardowl", "wardowl"))
            if "p50_ms" in of_size["steps"][share][key]
        }
        for share in shares
    }
    svg = _ROOT / "build" / "bench-retrieval.svg"
    svg.parent.mkdir(exist_ok=True)
    svg.write_text(drawn(cases, medians, dict.fromkeys(cases, "p50 ms")), "utf-8")
