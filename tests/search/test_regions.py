"""Large graphs are searched in regions: equal ones once, borders in turn, and what lies far apart too."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.large_model import model_of
from dslc.cost.groups import working_nodes
from dslc.cost.measure import Measured, Measurer, Sample
from dslc.cost.model import CostModel
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Graph, Opaque, Value, input_value, opaque
from dslc.match import compile_all
from dslc.onnx.importer import import_model
from dslc.search.candidates.candidate import Candidate, Limits
from dslc.search.region_rewrites.validate import claims_of, validate
from dslc.search.strategies.backtrack import backtrack
from dslc.search.strategies.partition import is_large
from dslc.search.strategies.regions import MOST as REGIONS_MOST
from dslc.search.strategies.regions import NEAR as REGIONS_NEAR
from dslc.search.strategies.regions import RegionMap
from dslc.search.strategies.space import Space
from dslc.search.strategies.sweep import sweep
from dslc.semantics.apply import apply
from dslc.semantics.library import standard

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
RULES = standard()
COMPILED = compile_all(RULES)


class Counting(Measurer):
    """Every node takes as long as any other one, a product ten times as long: what a search finds rests on no clock."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def overhead(self) -> float:
        return 0.0

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        lines = [line for line in sample.text.splitlines() if " = std." in line]
        return Measured(sum(1e-4 if "std.matmul#" in line or "std.gemm#" in line else 1e-5 for line in lines))


def model() -> CostModel:
    return CostModel(RULES, Counting(), lambda inputs, outputs: b"", 17)


def x(*shape: int, name: str = "x") -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def w(seed: int, *shape: int) -> Value:
    return array_value(np.random.default_rng(seed).random(shape, np.float32))


def op(name: str, *args: Value, **attrs: object) -> Value:
    return apply(RULES, f"std.{name}", args, attrs)[0]


@cache
def large(kind: str, nodes: int) -> Graph:
    return import_model(model_of(kind, nodes), RULES).graph


@cache
def light(name: str) -> Graph:
    return import_model(LIGHT / f"{name}.onnx", RULES).graph


def operators(graph: Graph) -> Counter[str]:
    return Counter(node.op.removeprefix("std.") for node in working_nodes(graph.outputs) if isinstance(node, Call))


def started(graph: Graph, whole: bool = True) -> tuple[Candidate, CostModel]:
    """A candidate with its costs; `whole`: what the graph takes as a whole is known, as it is in `dslc optimize`."""
    costs = model()
    cost = costs.graph_cost(graph)
    if whole:
        costs.begin(graph, cost)
    return Candidate(graph, cost), costs


# ---- regions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["layers", "attention", "turned"])
def test_a_repeated_block_is_one_region_at_many_places(kind: str) -> None:
    found = RegionMap(large(kind, 2000), model())
    for turn in (1, 2):
        places = found.places(turn)
        distinct = {place.region.graph.outputs for place in places}
        assert len(places) > 15
        # the first and the last ones aside
        assert len(distinct) <= 5


def test_short_blocks_that_are_repeated_between_others_are_regions_of_their_own() -> None:
    """Three stages of another width each: a block that changes it, and then 2, 4 and 3 equal ones with weights of their own."""
    value = a = x(4, 8)
    width = 8
    for wider, count in ((12, 2), (16, 4), (20, 3)):
        value = op("exp", op("matmul", value, w(0, width, wider)))
        width = wider
        for _ in range(count):
            inner = op("relu", op("matmul", value, w(0, width, width)))
            inner = op("matmul", op("relu", op("matmul", inner, w(0, width, 6))), w(0, 6, width))
            value = op("relu", op("add", inner, value))
    places = RegionMap(Graph((a,), (value,)), model(), small=True).places(1)
    often = Counter(place.region.graph.outputs for place in places)
    assert sorted(often.values()) == [1, 1, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["light_densenet121", "light_inception_v2", "light_shufflenet"])
@pytest.mark.parametrize("turn", range(6))
def test_places_share_no_node_and_regions_give_back_what_stood_there(name: str, turn: int) -> None:
    graph = light(name)
    found = RegionMap(graph, model())
    taken: Counter[Value] = Counter()
    for place in found.places(turn):
        region = place.region
        assert place.filled(region.graph.outputs, place.args) == place.outputs
        inside = working_nodes(region.graph.outputs)
        assert len(inside) <= 2 * max(REGIONS_MOST, REGIONS_NEAR) + len(region.graph.inputs)
        taken.update(place.outputs)
    assert max(taken.values(), default=1) == 1
    if turn % 3:
        # everything that runs is in some region
        count = sum(
            1
            for place in found.places(turn)
            for node in working_nodes(place.region.graph.outputs)
            if isinstance(node, Call)
        )
        assert count == sum(operators(graph).values())


def test_what_an_opaque_node_lies_between_is_not_in_one_region() -> None:
    """Else a region could need its own results."""
    value = a = x(4, 4)
    for k in range(40):
        for _ in range(3):
            value = op("relu", op("neg", value))
        (value,) = opaque(f"opaque:{k}", "Mystery", None, (value,), (value.type,))
    graph = Graph((a,), (value,))
    for turn in range(3):
        for place in RegionMap(graph, model()).places(turn):
            assert not any(isinstance(node, Opaque) for node in place.region.graph.nodes())
            assert len(place.region.graph.inputs) == 1 and len(place.outputs) == 1


# ---- searching ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
def test_as_many_steps_find_everything_in_ten_times_as_many_nodes(whole: bool) -> None:
    # all rules where it is as in `dslc optimize`, which go on for as long as they may, and what finds everything otherwise
    rules = COMPILED if whole else [rule for rule in COMPILED if "transpose" in rule.name]
    steps = []
    for nodes in (400, 4000):
        start, costs = started(large("turned", nodes), whole)
        assert is_large(start.graph)
        limits = Limits(steps=1000 if whole else 5000)
        best = backtrack(Space(start, (), costs, limits), rules)
        left = operators(best.graph)
        # blocks across the borders of regions too
        assert left["transpose"] == 0 and left["tanh"] == nodes / 4
        assert best.cost == pytest.approx(costs.graph_cost(best.graph))
        steps.append(limits.done)
    assert steps[1] < 2 * steps[0] + 200


def test_a_search_in_regions_repeats_itself_and_its_path_is_proved_again() -> None:
    found = []
    for _ in range(2):
        start, costs = started(large("layers", 300))
        built: list[Candidate] = []
        limits = Limits(steps=300, on_built=built.append)
        best = backtrack(Space(start, (), costs, limits, seed=3), COMPILED)
        path = best.path()
        assert path[0] is start and best.cost < start.cost
        assert sum(step.gain for step in path) == pytest.approx(start.cost - best.cost)
        assert sum(step.count for step in path if step.rule == "std.matmul_add_to_gemm") == 100
        # whoever is told of what was built is told of whole graphs
        assert built and all(len(one.graph.inputs) == 1 and one.graph.inputs == start.graph.inputs for one in built)
        # built at once, and step by step
        assert best.end.outputs == best.graph.outputs
        found.append(best)
    assert found[0].graph.outputs == found[1].graph.outputs
    checked = validate(RULES, claims_of(found[0]))
    assert checked.usable and set(checked.how.values()) == {"exact"} and checked.rewrites == 100


def test_a_sweep_of_a_large_graph_goes_through_its_regions() -> None:
    start, costs = started(large("layers", 600))
    limits = Limits()
    found = sweep(Space(start, (), costs, limits), COMPILED)
    assert operators(found.graph)["gemm"] == 200
    assert limits.done < 200


def test_products_of_one_operand_are_joined_however_far_apart_they_are_used() -> None:
    """As the keys and values of one memory in every layer of a decoder."""
    memory, value = x(8, 16, name="memory"), x(8, 16)
    inputs = (memory, value)
    for k in range(10):
        value = op("tanh", op("add", value, op("matmul", memory, w(k, 16, 16))))
        for _ in range(16):
            value = op("sin", op("exp", value))
    graph = Graph(inputs, (value,))
    assert is_large(graph)
    start, costs = started(graph)
    best = backtrack(Space(start, (), costs, Limits(steps=800)), COMPILED)
    assert operators(best.graph)["matmul"] + operators(best.graph)["gemm"] < 4


def test_what_stops_a_search_leaves_what_was_found() -> None:
    start, costs = started(large("layers", 1500))
    told: list[Candidate] = []

    def step(done: int) -> None:
        if done == 60:
            raise KeyboardInterrupt

    limits = Limits(on_step=step)
    best = backtrack(Space(start, (), costs, limits, told=told.append), COMPILED)
    assert limits.interrupted and best.cost < start.cost and told[-1] is best


def test_branches_side_by_side_are_not_cut_where_they_soon_come_together() -> None:
    """A block of forty branches, each of three operators: wider than a region otherwise is long."""
    value = a = x(8, 16)
    for k in range(6):
        branches = [op("tanh", op("matmul", op("sin", value), w(40 * k + n, 16, 16))) for n in range(40)]
        while len(branches) > 1:
            branches = [*branches[2:], op("add", branches[0], branches[1])]
        (value,) = branches
    graph = Graph((a,), (value,))
    cut = [place for place in RegionMap(graph, model()).places(1) if len(place.outputs) > 4]
    assert not cut


def test_products_by_one_weight_are_joined_however_far_apart_they_are_used() -> None:
    """As the inputs of a recurrent network, step by step."""
    inputs = [x(8, 16, name=f"x{k}") for k in range(12)]
    value, weight = x(8, 16), w(0, 16, 16)
    start_value = value
    for one in inputs:
        value = op("tanh", op("mul", value, op("matmul", one, weight)))
        for _ in range(45):
            value = op("sin", op("exp", value))
    start, costs = started(Graph((start_value, *inputs), (value,)))
    best = backtrack(Space(start, (), costs, Limits(steps=400)), COMPILED)
    assert operators(best.graph)["matmul"] < 4
