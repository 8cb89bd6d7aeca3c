"""A bar chart of the medians as SVG, drawn by hand: no plotting library for four charts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from xml.sax.saxutils import escape

_WIDTH: Final = 760
_LEFT: Final = 150
_ROW: Final = 22
_BAR: Final = 480


def drawn(
    cases: Mapping[str, str],
    medians: Mapping[str, Mapping[str, float]],
    units: Mapping[str, str],
) -> str:
    """One block of bars per case, the cheapest proxy on top; the gateway's bar is dark."""
    parts: list[str] = []
    y = 10
    for case, title in cases.items():
        y += 24
        parts.append(f'<text x="10" y="{y}" class="t">{escape(title)} ({units[case]})</text>')
        y += 8
        rows = sorted(medians[case].items(), key=lambda one: one[1])
        most = max((value for _, value in rows), default=1.0) or 1.0
        for name, value in rows:
            length = max(1.0, value / most * _BAR)
            style = "ours" if name.startswith("gateway") else "peer"
            parts += [
                f'<text x="{_LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>',
                f'<rect x="{_LEFT}" y="{y + 3}" width="{length:.1f}" height="16" class="{style}"/>',
                f'<text x="{_LEFT + length + 6:.1f}" y="{y + 15}">{value:.3g}</text>',
            ]
            y += _ROW
    style = (
        "text{font:12px sans-serif}.t{font-weight:bold}.ours{fill:#1d3557}.peer{fill:#a8b8cc}"
        "svg{background:#fff}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 16}">'
        f"<style>{style}</style>{''.join(parts)}</svg>\n"
    )
