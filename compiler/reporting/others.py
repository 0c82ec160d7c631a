"""Pages of what else is looked at: two models timed against each other, differences, derived programs; and what notebooks show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dslc.reporting.graphs import drawing
from dslc.reporting.page import fragment, page
from dslc.reporting.plots import ratios, times


def page_of_bench(found: Mapping[str, Any], pairs: Sequence[Mapping[str, Any]]) -> str:
    """Two models timed against each other: what `dslc bench --output-format json` says, and every pair."""
    low, high = found["low"], found["high"]
    sizes = {
        "bind": {},
        "pairs": pairs,
        "ratio": found["ratio"],
        "low": low or 0.0,
        "high": math.inf if high is None else high,
    }
    first, second = (one["model"] for one in found["models"])
    return page(
        "bench.html.j2", f"{second} against {first}: dslc", found=found, sizes=sizes, ratio=ratios(sizes), times=times(sizes),
        finite=math.isfinite,
    )  # fmt: skip


def page_of_difference(
    programs: Sequence[str], records: Sequence[Mapping[str, Any]], drawings: Sequence[str], notes: Sequence[str] = ()
) -> str:
    """Where two programs differ: a record of each output, as `dslc diff --output-format json` has it, and drawings that dslc made."""
    return page("diff.html.j2", "dslc diff", programs=programs, records=records, drawings=drawings, notes=notes)


def page_of_programs(call: str, facts: Mapping[str, Any], pictures: Sequence[Mapping[str, Any]]) -> str:
    """Programs that were derived of a call, as `dslc derive --output-format json` has them, each with its graph."""
    longest = max((one["cost_ms"] for one in facts["programs"] if math.isfinite(one["cost_ms"])), default=0.0) or 1.0
    return page(
        "derive.html.j2", f"{call}: dslc derive", call=call, facts=facts, longest=longest,
        graphs=[(drawing(one, {}), one["nodes"]) for one in pictures], finite=math.isfinite,
    )  # fmt: skip


def fragment_of_text(title: str, text: str, facts: Mapping[str, Any], about: str = "") -> str:
    """A definition in a notebook: its text, its description, and what is known of it."""
    return fragment("text_part.html.j2", title=title, text=text, facts=facts, about=about)


def fragment_of_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], about: str = "") -> str:
    """A table in a notebook."""
    return fragment("table_part.html.j2", title=title, columns=columns, rows=rows, about=about)
