"""Pages of templates: one file that needs no network, in which nothing of a model or a rule is read as HTML."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from dslc.records import record
from dslc.reporting.graphs import drawing
from dslc.reporting.plots import bars, by_layer, by_operator, ratios, times

if TYPE_CHECKING:
    import jinja2

# ---- pages of templates --------------------------------------------------------------------------------------------


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
    sizes = {
        "bind": {},
        "pairs": pairs,
        "ratio": found["ratio"],
        "low": found["low"] or 0.0,
        "high": found["high"] or math.inf,
    }
    first, second = (one["model"] for one in found["models"])
    return page(
        "bench.html.j2", f"{second} against {first}: dslc", found=found, sizes=sizes, ratio=ratios(sizes), times=times(sizes, "AB"),
        finite=math.isfinite,
    )  # fmt: skip


def page_of_difference(
    programs: Sequence[str], records: Sequence[Mapping[str, Any]], drawings: Sequence[str], notes: Sequence[str] = ()
) -> str:
    """A page of the difference of two programs: a record of each output, as `dslc diff --output-format json` has it, and drawings."""
    return page("diff.html.j2", "dslc diff", programs=programs, records=records, drawings=drawings, notes=notes)


def page_of_programs(call: str, facts: Mapping[str, Any], pictures: Sequence[Mapping[str, Any]]) -> str:
    """Programs that were derived of a call, as `dslc derive --output-format json` has them, each with its graph."""
    return page(
        "derive.html.j2", f"{call}: dslc derive", call=call, facts=facts,
        graphs=[(drawing(one, {}), one["nodes"]) for one in pictures], finite=math.isfinite,
    )  # fmt: skip


def fragment_of_text(title: str, text: str, facts: Mapping[str, Any], about: str = "") -> str:
    """A definition in a notebook: its text, its description, and what is known of it."""
    return fragment("text_part.html.j2", title=title, text=text, facts=facts, about=about)


def fragment_of_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], about: str = "") -> str:
    """A table in a notebook."""
    return fragment("table_part.html.j2", title=title, columns=columns, rows=rows, about=about)


# ---- a run of `dslc optimize` --------------------------------------------------------------------------------------

HUES = 8  #: rules that have a colour of their own; the last one is for all others
NODES = 12  #: nodes in a table of what takes longest


@record
class Piece:
    """A span of time as percent of the whole, with its colour; `title` says what it is."""

    left: float
    width: float
    hue: str
    title: str


def page_of_run(report: Mapping[str, Any], lines: Sequence[str]) -> str:
    """A page of a report's plain values (`dslc.report.Report.to_dict`); `lines`: its headline, and what that depends on."""
    details = report["details"]
    hues = hues_of([step["rule"] for step in report["steps"]])
    values: dict[str, Any] = dict.fromkeys(("bars", "layers", "graphs", "longest"))
    if details is not None:
        before, after = details["before"], details["after"]
        kernels = {one["name"] for one in details["kernels"]}
        if before["times"] and after["times"]:
            values["bars"] = bars(by_operator(before["times"]), by_operator(after["times"], kernels))
            values["layers"] = bars(*by_layer(before["times"], after["times"]))
            values["longest"] = [
                sorted(one["times"], key=lambda each: -each["milliseconds"])[:NODES] for one in (before, after)
            ]
        drawn = [drawing(before, hues), drawing(after, hues, kernels)]
        values["graphs"] = None if None in drawn else dict(zip(("before", "after"), drawn, strict=True))
    values |= timeline_of(report)
    return page(
        "run.html.j2", f"{report['model']}: dslc", report=report, details=details, lines=lines, hues=hues, path=path_of(report),
        plots=[(one, ratios(one), times(one)) for one in report["sizes"]], finite=math.isfinite, **values,
    )  # fmt: skip


def fragment_of_run(report: Mapping[str, Any], lines: Sequence[str]) -> str:
    """The part of a report that a notebook shows."""
    hues = hues_of([step["rule"] for step in report["steps"]])
    return fragment(
        "run_part.html.j2", report=report, lines=lines, hues=hues, path=path_of(report), finite=math.isfinite,
        plots=[(one, ratios(one), None) for one in report["sizes"][:1]],
    )  # fmt: skip


def hues_of(rules: list[str]) -> dict[str, str]:
    """A colour for each rule, in their order."""
    return {rule: f"var(--r{min(k, HUES - 1)})" for k, rule in enumerate(rules)}


def path_of(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The steps in their order, each with what is known of its rule and with what it gained as measured, where both ends were timed."""
    known = {step["rule"]: step for step in report["steps"]}
    last, out = report["before_ms"], []
    for turn in report["story"]:
        measured = turn["measured_ms"]
        gained = None if measured is None or last is None else last - measured
        out.append({**turn, "step": known.get(turn["rule"]), "measured_gain": gained})
        last = measured if measured is not None else last
    return out


def timeline_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """Phases over time with their colours, and what was planned to be over when."""
    spans = [one for one in report["timeline"] if math.isfinite(one["end"]) and one["end"] > one["begin"]]
    whole = max([report["seconds"], *(one["end"] for one in spans)], default=0.0)
    if whole <= 0 or not math.isfinite(whole):
        return {"pieces": [], "marks": [], "phase_hues": {}}
    longest = sorted(report["phases"], key=lambda name: -report["phases"][name])
    # the golden angle: neighbours of any number of phases differ
    hues = {name: f"oklch(var(--p) .15 {(k * 137.5 + 255) % 360:g})" for k, name in enumerate(longest)}
    pieces = [
        Piece(
            round(100 * one["begin"] / whole, 3), round(100 * (one["end"] - one["begin"]) / whole, 3),
            hues.get(one["phase"], f"var(--r{HUES - 1})"),
            f"{one['phase']}: {one['begin']:.1f} s to {one['end']:.1f} s",
        )
        for one in spans
    ]  # fmt: skip
    plan = (report["details"] or {}).get("plan", {})
    marks = [(round(100 * at / whole, 2), name, at) for name, at in plan.items() if 0 < at <= whole]
    return {"pieces": pieces, "marks": marks, "phase_hues": hues}
