"""Pages of templates: one file that needs no network, in which nothing of a model or a rule is read as HTML."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from dslc.reporting.graphs import drawing
from dslc.reporting.plots import ratios, times

if TYPE_CHECKING:
    import jinja2


def page(template: str, title: str, **values: Any) -> str:
    """A whole page. Its policy of contents allows no network, and no script but the one that it has."""
    script = _text("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    found = (
        _environment()
        .get_template(template)
        .render(title=title, style=_text("page.css"), script=script, digest=digest, **values)
    )
    # half of a character is none, and no file has it
    return found.encode("utf-8", "replace").decode("utf-8")


def fragment(template: str, **values: Any) -> str:
    """A part of a page for a notebook, with its style and without scripts."""
    return _environment().get_template(template).render(style=_text("page.css"), **values)


def number(value: float | None, digits: int = 3) -> str:
    """A few digits: `0.358`, `17.7`, `1,230`; `?` for what is not known."""
    if value is None or not math.isfinite(value):
        return "?"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.{digits}g}"


@cache
def _text(name: str) -> str:
    return (resources.files("dslc.templates") / "report" / name).read_text("utf-8")


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    found.filters["number"] = number
    return found


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
    """A page of the difference of two programs: a record of each output, as `dslc diff --output-format json` has it, and drawings."""
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
