"""What the benchmark of TASO's networks computes from its measurements, and what it writes."""

from __future__ import annotations

import argparse
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks import heatmap, taso
from benchmarks.study import Point, kendall, median_error
from dslc.cost.statistics import Interval
from dslc.match import compile_directions
from dslc.report import Counts, Report, Step
from dslc.semantics.library import Rules


def point(predicted: float, ratio: float, spread: float = 0.01) -> Point:
    return Point("candidate", predicted, Interval(ratio, ratio - spread, ratio + spread))


def test_kendall_counts_pairs_that_measuring_tells_apart() -> None:
    assert kendall([point(1.0, 1.1), point(1.2, 1.3), point(1.4, 1.5)]) == 1.0
    assert kendall([point(1.4, 1.1), point(1.2, 1.3), point(1.0, 1.5)]) == -1.0
    assert kendall([point(1.0, 1.1), point(1.4, 1.3), point(1.2, 1.5)]) == pytest.approx(1 / 3)
    # the first two overlap: their order says nothing
    assert kendall([point(1.1, 1.100), point(1.0, 1.105), point(1.2, 1.5)]) == 1.0
    assert kendall([point(1.0, 1.1)]) is None


def test_predictions_are_judged_in_quiet_spells_only() -> None:
    points = [point(1.1, 1.0), point(1.3, 1.0), point(1.0, 1.25), point(9.0, 1.0, spread=0.2)]
    assert [one.quiet for one in points] == [True, True, True, False]
    assert median_error(points) == pytest.approx(0.2)
    assert median_error(points[3:]) is None


def test_the_size_of_a_rule_is_that_of_its_pattern(std: Rules) -> None:
    def sizes(name: str) -> list[int]:
        return [taso.size_of(rule) for rule in compile_directions(std, std.substitutions[f"std.{name}"])]

    assert sizes("merge_matmuls") == [2]
    assert sizes("add_of_avg_pools") == [3, 2]


def test_the_heat_map_is_a_picture_and_a_table() -> None:
    counts = {("lib.merge<1>", "bert"): 12, ("lib.fuse", "nasrnn"): 1}
    rows, columns = ["lib.merge<1>", "lib.fuse"], ["bert", "nasrnn"]
    root = ET.fromstring(heatmap.svg(rows, columns, counts, "Rules & networks"))
    cells = [one for one in root if one.tag.endswith("rect")][1:]
    assert len(cells) == 4 and len({cell.get("fill") for cell in cells}) == 3
    assert {"12", "1", "lib.merge<1>", "Rules & networks"} <= {one.text for one in root if one.tag.endswith("text")}
    assert heatmap.text(rows, columns, counts).splitlines()[2] == "| lib.merge<1> | 12 |  |"


def test_results_replace_those_of_an_earlier_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "RESULTS.md"
    results.write_text("# Results\n\n## Other benchmarks\n\n- one\n\n## Last\n\n- two\n", "utf-8")
    monkeypatch.setattr(taso, "RESULTS", results)
    monkeypatch.setattr(taso, "PICTURE", tmp_path / "results" / "map.svg")
    steps = (Step("lib.fuse", 3, 0.5, "proved"),)
    report = Report("m", "t", 1.0, 2.0, 1.0, 2.0, 1.9, 2.1, 1.8, before=Counts(5, 0, 0), after=Counts(3, 0, 0), steps=steps)
    options = argparse.Namespace(rules="std", threads=2)
    for name in ("bert", "nasrnn"):
        taso.write([taso.Outcome(name, report, (point(1.8, 2.0),), (None, None, point(1.8, 2.0), None))], ["x: failed"], options)
    text = results.read_text("utf-8")
    assert text.count(taso.HEADING) == 1 and "| nasrnn | 5 | 3 |" in text and "| bert |" not in text
    assert "median error 10.0% over 1 quiet measurements of 1" in text and "- failed: x: failed" in text
    assert text.startswith("# Results\n\n## Other benchmarks\n\n- one\n") and "| lib.fuse | 3 |" in text
    ET.parse(tmp_path / "results" / "map.svg")
