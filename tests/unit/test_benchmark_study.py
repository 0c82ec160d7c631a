"""What the benchmark of TASO's networks computes from its measurements, and what it writes."""

from __future__ import annotations

import argparse
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import heatmap, taso
from benchmarks.study import ORIGINAL, Point, kendall, median_error
from dslc.cost.confidence_sequence import Interval
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
    # the original is one of the candidates, and told apart from what is certainly slower or faster
    assert kendall([point(1.2, 1.1), ORIGINAL]) == 1.0
    assert kendall([point(1.2, 1.005), ORIGINAL]) is None


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


def test_results_replace_those_of_an_earlier_run(tmp_path: Path) -> None:
    results, store = tmp_path / "RESULTS.md", tmp_path / "results" / "taso.json"
    results.write_text("# Results\n\n## Other benchmarks\n\n- one\n\n## Last\n\n- two\n", "utf-8")
    steps = (Step("lib.fuse", 3, 0.5, "proved"),)
    report = Report(
        "m", "t", 1.0, 2.0, 1.0, 2.0, 1.9, 2.1, 1.8, before=Counts(5, 0, 0), after=Counts(3, 0, 0), steps=steps
    )
    options = argparse.Namespace(rules="std", threads=2)

    def run(name: str, nodes: int) -> None:
        of = replace(report, after=Counts(nodes, 0, 0))
        outcome = taso.Outcome(name, of, (point(1.8, 2.0),), (None, None, point(1.8, 2.0), None))
        taso.write({name: taso.record(outcome, options)}, ["x: failed"], store, results)

    run("nasrnn", 4)
    written = results.read_text("utf-8")
    results.write_text(written.replace("\n## Last", f"\n{taso.REMARKS}\n\nby hand\n\n## Last"), "utf-8")
    run("bert", 3)
    run("nasrnn", 2)
    text = results.read_text("utf-8")
    # a network's row replaces its own earlier one, those of others and what was written by hand stay
    assert "| nasrnn | 5 | 2 |" in text and "| bert | 5 | 3 |" in text and "| nasrnn | 5 | 4 |" not in text
    assert text.index("| nasrnn | 5") < text.index("| bert | 5")
    assert text.count(taso.HEADING) == text.count("by hand") == text.count("## Last") == 1
    assert "median error 10.0% over 2 quiet measurements of 2" in text and "- failed: x: failed" in text
    assert text.startswith("# Results\n\n## Other benchmarks\n\n- one\n") and "| lib.fuse | 3 | 3 |" in text
    ET.parse(store.with_name(taso.PICTURE.name))
