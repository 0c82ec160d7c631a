"""A table of numbers as text and as an SVG picture: which rule was used how often in which network (TASO's Figure 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from xml.sax.saxutils import escape

CELL, LEFT, TOP, LETTER = (56, 22), 330, 96, 7.0
#: colours of one use and of the most uses, as red, green, blue
LIGHT, DARK = (222, 235, 247), (8, 81, 156)

Counts = Mapping[tuple[str, str], int]


def text(rows: Sequence[str], columns: Sequence[str], counts: Counts) -> str:
    """A Markdown table; no use is an empty cell."""
    lines = [("rule", *columns), tuple("---" for _ in range(len(columns) + 1))]
    lines += [(row, *(str(counts.get((row, column), "")) for column in columns)) for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def svg(rows: Sequence[str], columns: Sequence[str], counts: Counts, title: str) -> str:
    """A picture with a cell for each row and column; the darker, the larger on a logarithmic scale."""
    width, height = LEFT + CELL[0] * len(columns) + 20, TOP + CELL[1] * len(rows) + 20
    most = max(counts.values(), default=1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="8" y="18" font-weight="bold">{escape(title)}</text>',
    ]
    for k, column in enumerate(columns):
        x = LEFT + CELL[0] * (k + 0.5)
        parts.append(f'<text x="{x}" y="{TOP - 6}" transform="rotate(-30 {x} {TOP - 6})">{escape(column)}</text>')
    for j, row in enumerate(rows):
        y = TOP + CELL[1] * j
        short = row if len(row) * LETTER < LEFT else "..." + row[-int(LEFT / LETTER) + 3 :]
        parts.append(f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(short)}</text>')
        for k, column in enumerate(columns):
            count = counts.get((row, column), 0)
            x = LEFT + CELL[0] * k
            share = log(count + 1) / log(most + 1)
            fill, ink = _colour(share) if count else "#f7f7f7", "white" if share > 0.6 else "black"
            parts.append(
                f'<rect x="{x}" y="{y}" width="{CELL[0] - 1}" height="{CELL[1] - 1}" fill="{fill}">'
                f"<title>{escape(f'{row}, {column}: {count}')}</title></rect>"
            )
            if count:
                parts.append(
                    f'<text x="{x + CELL[0] / 2}" y="{y + 15}" text-anchor="middle" fill="{ink}">{count}</text>'
                )
    return "\n".join([*parts, "</svg>", ""])


def _colour(share: float) -> str:
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(LIGHT, DARK, strict=True))
