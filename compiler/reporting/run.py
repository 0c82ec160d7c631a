"""The page of a run of `dslc optimize`, and the part of it that a notebook shows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dslc.reporting.graphs import drawing
from dslc.reporting.pages import fragment, page
from dslc.reporting.plots import bars, by_layer, by_operator, ratios, times

HUES = 8  #: rules that have a colour of their own; the last one is for all others
NODES = 12  #: nodes in a table of what takes longest


@dataclass(frozen=True, slots=True)
class Piece:
    """A span of time as percent of the whole, with its colour; `title` says what it is."""

    left: float
    width: float
    hue: str
    title: str


def page_of_run(report: Mapping[str, Any], summary: str) -> str:
    """A page of a report's plain values (`dslc.report.Report.to_dict`)."""
    details = report["details"]
    hues = hues_of([step["rule"] for step in report["steps"]])
    values: dict[str, Any] = {"bars": None, "layers": None, "graphs": None, "longest": None}
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
        "run.html.j2", f"{report['model']}: dslc", report=report, details=details, summary=summary, hues=hues, path=path_of(report),
        plots=[(one, ratios(one), times(one)) for one in report["sizes"]], finite=math.isfinite, **values,
    )  # fmt: skip


def fragment_of_run(report: Mapping[str, Any], summary: str) -> str:
    """The part of a report that a notebook shows."""
    hues = hues_of([step["rule"] for step in report["steps"]])
    return fragment(
        "run_part.html.j2", report=report, summary=summary, hues=hues, path=path_of(report), finite=math.isfinite,
        plots=[(one, ratios(one), None) for one in report["sizes"][:1]], **timeline_of(report),
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
    hues = {name: f"var(--r{min(k, HUES - 1)})" for k, name in enumerate(longest)}
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
