"""Extractors against enumeration, on the paper's figures, and on files that are wrong or huge."""

from __future__ import annotations

import itertools
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from egraphs import true_cost

from benchmarks.printed import printed_of
from dslc.cli.main import run
from dslc.deadline import Deadline
from dslc.egraph.extract import EXTRACTORS, Choice, Extraction, ExtractionProblem
from dslc.egraph.extract.file import EGraphFile, read, written
from dslc.egraph.extract.ilp import landmarks
from dslc.egraph.extract.table import walk
from dslc.errors import DslcError
from dslc.processes.process import Command
from tests.pressed import press
from tests.tuned import tuned

#: a class by name -> its nodes: what they cost, and the classes that they read
Classes = dict[str, list[tuple[float, str]]]


def problem_of(classes: Classes, *roots: str) -> ExtractionProblem:
    number = {name: k for k, name in enumerate(classes)}
    rows = [
        tuple(
            Choice(f"{name}.{k}", cost, tuple(number[kid] for kid in kids.split()))
            for k, (cost, kids) in enumerate(nodes)
        )
        for name, nodes in classes.items()
    ]
    return ExtractionProblem(
        EGraphFile(list(classes), rows, tuple(number[root] for root in roots)), [number[root] for root in roots]
    )


def found_by(name: str, problem: ExtractionProblem) -> Extraction:
    found = EXTRACTORS[name](problem)
    assert found is not None and problem.roots is not None
    assert found.cost == pytest.approx(true_cost(found, problem.roots))
    return found


def cheapest(problem: ExtractionProblem) -> float:
    """By trying every choice of every class."""
    assert problem.roots is not None
    best = float("inf")
    for chosen in itertools.product(*problem.rows):
        found = walk(chosen.__getitem__, problem.roots, problem.find)
        if found is not None:
            best = min(best, found.cost)
    return best


def random_classes(rng: random.Random) -> Classes:
    """Eight classes of up to three nodes, any of which may read any class, itself included; c0 is had in any case."""
    names = [f"c{k}" for k in range(8)]
    out: Classes = {name: [] for name in names}
    for k, name in enumerate(names):
        for _ in range(rng.randrange(1, 4)):
            kids = [rng.choice(names if rng.random() < 0.3 else names[: max(1, k)]) for _ in range(rng.randrange(0, 3))]
            out[name].append((float(rng.choice([0, 1, 1, 2, 3, 5])), " ".join(kids)))
    out["c0"].append((4.0, ""))
    return out


@pytest.mark.parametrize("seed", range(30))
def test_integer_programming_finds_the_cheapest_and_nothing_is_below_it(seed: int) -> None:
    problem = problem_of(random_classes(random.Random(seed)), "c7", "c6")
    if problem.roots is None:
        assert all(extractor(problem) is None for extractor in EXTRACTORS.values())
        return
    best = cheapest(problem)
    costs = {name: found_by(name, problem).cost for name in EXTRACTORS}
    assert costs["ilp"] == pytest.approx(best)
    assert costs["ilp"] - 1e-9 <= costs["joint"] <= costs["shared"] <= costs["greedy"]
    assert found_by("ilp", problem).optimal


@pytest.mark.parametrize(
    "costs", [(1e9, 1e9 + 1, 3, 1, 0), (1e12, 5e11, 1, 3e-12, 1e-300), (0.1, 0.25, 1.3), (2**0.5, 1 / 3, 0.7)]
)
def test_costs_of_any_size_side_by_side_are_told_apart(costs: tuple[float, ...]) -> None:
    """A solver's tolerances are absolute: what nothing can be saved on is taken out before it sees the rest."""
    for seed in range(30):
        rng = random.Random(seed)
        classes = {
            name: [(rng.choice(costs), kids) for _, kids in nodes] for name, nodes in random_classes(rng).items()
        }
        problem = problem_of(classes, "c7", "c6")
        if problem.roots is not None:
            found = found_by("ilp", problem)
            assert found.cost == pytest.approx(cheapest(problem), rel=1e-12)
            assert found.optimal


def nasty(kind: str, classes: int, seed: int) -> EGraphFile:
    """Four nodes a class, of which every twentieth has a leaf: each reads any class, near ones below, or once below and else any."""
    rng = random.Random(seed)
    rows: list[list[Choice]] = [[] for _ in range(classes)]
    for k in range(4 * classes):
        own = k % classes
        below = [max(0, own - 1 - rng.randrange(min(own, 30) + 1)) for _ in range(2)] if own else []
        anywhere = [rng.randrange(classes) for _ in range(rng.choice([1, 2, 2, 3]))]
        kids = anywhere if kind == "circles" or (kind == "mixed" and k >= classes) else below
        kids = [] if k < classes // 20 else kids
        rows[own].append(Choice(str(k), rng.choice([0.0, 1.0, 1.0, 2.5, 10.0, 1e-9]), tuple(kids)))
    roots = tuple(dict.fromkeys([*rng.sample(range(classes), 4), classes - 1]))
    return EGraphFile([str(k) for k in range(classes)], [tuple(row) for row in rows], roots)


@pytest.mark.parametrize("kind", ["circles", "shared", "mixed"])
def test_programs_of_nasty_e_graphs_are_never_circular_and_cost_what_they_say(kind: str) -> None:
    problem = nasty(kind, 300, seed=1).problem()
    costs = {}
    for name, extractor in EXTRACTORS.items():
        found = extractor(problem, Deadline.after(0.3))
        assert found is not None and problem.roots is not None
        costs[name] = found.cost
        assert found.cost == pytest.approx(true_cost(found, problem.roots))
        assert found.bound <= found.cost + 1e-9
    assert costs["ilp"] - 1e-9 <= costs["joint"] <= costs["shared"] <= costs["greedy"]


FIGURE_9: Classes = {
    "a": [(1, "")], "b": [(1, "a")], "c": [(1, "b")], "d": [(1, "b")], "e": [(1, "c d")], "f": [(1, "c d")], "concat": [(1, "e f")],
}  # fmt: skip


def test_figure_9_costs_7_by_us_8_by_the_paper_and_15_as_a_tree() -> None:
    problem = problem_of(FIGURE_9, "concat")
    assert [found_by(name, problem).cost for name in EXTRACTORS] == [7, 7, 7, 7]
    assert found_by("greedy", problem).estimate == 15
    assert found_by("shared", problem).estimate == 7
    printed = printed_of(problem)
    assert printed is not None
    assert (printed.cost, printed.estimate) == (7, 8)


def test_figure_4_counts_a_block_once_that_is_read_by_its_successor_and_by_the_sum_behind_it() -> None:
    """relu(conv(relu(conv(x))) + conv(x)): the first convolution has two users, and is paid for once in either order of reading."""
    for order in ("second first", "first second"):
        classes: Classes = {
            "x": [(0, "")], "first": [(10, "x")], "relu": [(1, "first")], "second": [(10, "relu")], "sum": [(1, order)],
            "y": [(1, "sum")],
        }  # fmt: skip
        problem = problem_of(classes, "y")
        assert found_by("shared", problem).estimate == 23
        assert found_by("greedy", problem).estimate == 33


def test_a_shared_part_is_preferred_to_what_is_cheaper_as_a_tree() -> None:
    """left and right are 4 each alone, or 1 each over one product of 5: only costs that see the sharing take the product."""
    classes: Classes = {
        "product": [(5, "")], "left": [(4, ""), (1, "product")], "right": [(4, ""), (1, "product")],
        "more": [(3, "product")], "y": [(1, "more left right")],
    }  # fmt: skip
    problem = problem_of(classes, "y")
    assert found_by("greedy", problem).cost == 17
    assert found_by("ilp", problem).cost == 11


def test_two_parts_of_one_product_switch_together() -> None:
    """Neither part alone pays for the product of 6; both do: 6 + 1 + 1 against 5 + 5. Costs of classes alone never see that."""
    classes: Classes = {
        "product": [(6, "")], "left": [(5, ""), (1, "product")], "right": [(5, ""), (1, "product")], "y": [(1, "left right")],
    }  # fmt: skip
    problem = problem_of(classes, "y")
    assert found_by("shared", problem).cost == 11
    assert found_by("joint", problem).cost == 9


def test_classes_in_a_circle_are_never_had_from_each_other() -> None:
    """a and b are free given the other; one of them has to be paid for."""
    problem = problem_of({"a": [(0, "b"), (9, "")], "b": [(0, "a"), (7, "")], "y": [(0, "a b")]}, "y")
    assert [found_by(name, problem).cost for name in EXTRACTORS] == [7, 7, 7, 7]


def sums(size: int) -> Classes:
    """The sum of some leaves in any order: a class for each set of them, with a node for each way to part it; each costs 1."""
    leaves = range(size)
    sets = [frozenset(some) for count in leaves for some in itertools.combinations(leaves, count + 1)]
    name = {some: "s" + "".join(map(str, sorted(some))) for some in sets}
    out: Classes = {}
    for some in sets:
        parts = [one for one in sets if one < some]
        out[name[some]] = [(1.0, f"{name[one]} {name[some - one]}") for one in parts] or [(1.0, "")]
    return out


def test_a_sum_in_any_order_is_proved_to_take_its_leaves_and_one_sum_less() -> None:
    """Every program has another way through the sets: only cuts through all of them say what they have in common."""
    problem = problem_of(sums(5), "s01234")
    found = found_by("ilp", problem)
    assert found.optimal and found.cost == 9


def test_what_is_left_out_of_integer_programming_changes_only_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned(monkeypatch, "egraph.extract.ilp", bits=0)
    for seed in range(20):
        problem = problem_of(random_classes(random.Random(seed)), "c7", "c6")
        if problem.roots is not None:
            assert found_by("ilp", problem).cost == pytest.approx(cheapest(problem))


def test_what_classes_need_is_what_all_their_programs_have() -> None:
    for seed in range(20):
        problem = problem_of(random_classes(random.Random(seed)), "c7")
        if problem.roots is None:
            continue
        (root,) = problem.roots
        programs = (
            walk(chosen.__getitem__, problem.roots, problem.find) for chosen in itertools.product(*problem.rows)
        )
        always = set.intersection(*(set(found.choice) for found in programs if found is not None))
        bits = landmarks(problem)[root]
        assert {number for number in range(len(problem)) if bits >> number & 1} == always


def test_a_node_that_only_closes_circles_is_left_out() -> None:
    """x is 0 + x is 0 + (0 + x): what reads x is only read for x."""
    classes: Classes = {"zero": [(1, "")], "x": [(5, ""), (1, "zero more")], "more": [(1, "zero x")], "y": [(1, "x")]}
    problem = problem_of(classes, "y")
    found = found_by("ilp", problem)
    assert found.optimal and found.cost == 6


# ---- files -----------------------------------------------------------------------------------------------------


def file_of(folder: Path, data: Any) -> Path:
    path = folder / "egraph.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def node(eclass: str, *children: str, cost: float = 1.0) -> dict[str, Any]:
    return {"op": "f", "eclass": eclass, "children": list(children), "cost": cost}


GOOD = {
    "nodes": {"n0": node("x", cost=2), "n1": node("y", "n0"), "n2": node("y", "n1", cost=0)},
    "root_eclasses": ["y"],
}


def test_a_file_is_extracted_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["extract", str(file_of(tmp_path, GOOD)), "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["extractors"]
    assert [entry["name"] for entry in found] == list(EXTRACTORS)
    assert all(entry["cost"] == 3 and entry["choice"] == {"x": "n0", "y": "n1"} for entry in found)
    assert [entry["optimal"] for entry in found] == [False, False, False, True]
    assert found[-1]["bound"] == pytest.approx(3)
    assert run(["extract", str(file_of(tmp_path, GOOD))]) == 0
    assert "optimal" in capsys.readouterr().out


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_prints_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object) -> None:
        press()

    monkeypatch.setattr("dslc.egraph.extract.EXTRACTORS", {**EXTRACTORS, "joint": pressed})
    assert run(["extract", str(file_of(tmp_path, GOOD)), "--output-format", "json"]) == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)["extractors"]] == ["greedy", "shared"]


def test_a_solver_in_another_process_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(random_classes(random.Random(5)), "c7", "c6")
    here = EXTRACTORS["ilp"](problem)
    tuned(monkeypatch, "egraph.extract.ilp", here=0)
    there = EXTRACTORS["ilp"](problem, Deadline.after(30))
    assert here is not None and there is not None and there.optimal
    assert there.cost == pytest.approx(here.cost)


def test_a_solver_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it does with its time, the program to begin with is there, and nothing is claimed of others."""
    problem = nasty("mixed", 300, seed=1).problem()
    first = found_by("joint", problem)
    tuned(monkeypatch, "egraph.extract.ilp", here=0)
    monkeypatch.setattr("dslc.egraph.extract.ilp._COMMAND", Command(("sleep", "60")))
    began = time.monotonic()
    found = EXTRACTORS["ilp"](problem, Deadline(began + 1), first)
    assert time.monotonic() - began < 30
    assert found is not None and found.choice == first.choice and not found.optimal


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    problem = problem_of(random_classes(random.Random(5)), "c7")
    again = read(file_of(tmp_path, written(problem))).problem()
    assert found_by("ilp", again).cost == pytest.approx(found_by("ilp", problem).cost)
    assert sorted(map(len, again.rows)) == sorted(map(len, problem.rows))


@pytest.mark.parametrize(
    ("code", "data"),
    [
        ("E1101", "{"),
        ("E1101", "[]"),
        ("E1101", '{"nodes": {"a": 1}, "root_eclasses": ["x"]}'),
        ("E1101", {"nodes": {"a": {"op": "f", "children": []}}, "root_eclasses": ["x"]}),
        ("E1101", {"nodes": {"a": node("x")}}),
        ("E1101", {"nodes": {"a": node("x")}, "root_eclasses": []}),
        ("E1101", "[" * 100_000),
        ("E1102", {"nodes": {"a": node("x", "b")}, "root_eclasses": ["x"]}),
        ("E1102", {"nodes": {"a": node("x")}, "root_eclasses": ["y"]}),
        ("E1103", {"nodes": {"a": node("x", "a")}, "root_eclasses": ["x"]}),
        ("E1103", {"nodes": {"a": node("x", "b"), "b": node("y", "a")}, "root_eclasses": ["x"]}),
        ("E1104", {"nodes": {"a": node("x", cost=-1)}, "root_eclasses": ["x"]}),
        ("E1104", '{"nodes": {"a": {"op": "f", "children": [], "eclass": "x", "cost": NaN}}, "root_eclasses": ["x"]}'),
        (
            "E1104",
            '{"nodes": {"a": {"op": "f", "children": [], "eclass": "x", "cost": 1e999}}, "root_eclasses": ["x"]}',
        ),
        ("E1104", {"nodes": {"a": {**node("x"), "cost": "1"}}, "root_eclasses": ["x"]}),
        ("E1104", {"nodes": {"a": {**node("x"), "cost": True}}, "root_eclasses": ["x"]}),
        ("E1104", {"nodes": {"a": node("x", cost=1e308), "b": node("y", "a", cost=1e308)}, "root_eclasses": ["y"]}),
    ],
)
def test_wrong_files_have_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str, data: Any) -> None:
    assert run(["extract", str(file_of(tmp_path, data))]) == 1
    assert code in capsys.readouterr().err


def test_names_are_any_text_and_what_else_is_in_a_file_is_not_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ids with points, spaces and any letters, ids of the format's own words, numbers as ids; a child that is read twice."""
    data = {
        "nodes": {
            "eclass": {**node("1.5 é→∑", cost=2), "subsumed": False},
            "nodes": {**node("children", "eclass", "eclass"), "data": {"eclass": "x"}},
            "7": {"op": "g", "eclass": 3, "children": ["nodes"]},
        },
        "root_eclasses": [3, "3"], "class_data": {"3": {"type": "Math"}},
    }  # fmt: skip
    assert run(["extract", str(file_of(tmp_path, data)), "--output-format", "json"]) == 0
    for entry in json.loads(capsys.readouterr().out)["extractors"]:
        assert entry["cost"] == 4
        assert entry["choice"] == {"1.5 é→∑": "eclass", "children": "nodes", "3": "7"}


def test_too_many_nodes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned(monkeypatch, "egraph.extract.file", most_nodes=2)
    with pytest.raises(DslcError) as failure:
        read(file_of(tmp_path, GOOD))
    assert failure.value.diagnostics[0].code == "E1105"
    tuned(monkeypatch, "egraph.extract.file", most_bytes=10)
    with pytest.raises(DslcError, match="MiB"):
        read(file_of(tmp_path, GOOD))


def test_a_long_chain_with_alternatives_needs_no_recursion_and_stays_in_its_time() -> None:
    """20,000 classes of two nodes, each of which reads the class before twice: as a tree it would cost more than any float."""
    classes: Classes = {"c0": [(1, "")]}
    for k in range(1, 20_000):
        classes[f"c{k}"] = [(1, f"c{k - 1} c{k - 1}"), (2, f"c{k - 1}")]
    problem = problem_of(classes, "c19999")
    began = time.monotonic()
    for name in ("greedy", "shared", "joint"):
        found = EXTRACTORS[name](problem, Deadline(began + 2))
        assert found is not None and 20_000 <= found.cost <= 40_000
    assert time.monotonic() - began < 60
