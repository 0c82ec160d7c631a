"""What a sweep looks at first: rules that can save a large share of the whole at one place."""

from __future__ import annotations

import numpy as np
import pytest

from dslc.cost.fused_groups import Lowerings
from dslc.cost.measure import Measured, Measurer, Sample
from dslc.cost.model import CostModel
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Value, input_value
from dslc.match import CompiledRule, compile_directions, find_matches
from dslc.search.candidates.candidate import Candidate, Front, Limits
from dslc.search.strategies.space import Space
from dslc.search.strategies.sweep import LARGE as SWEEP_LARGE
from dslc.search.strategies.sweep import SweepState, most_saved, sweep
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules


class ByOperators(Measurer):
    """Microseconds by the operators in what is measured; how many samples were asked for is counted."""

    def __init__(self, **microseconds: float) -> None:
        self.count = 0
        self._times = microseconds

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        self.count += 1
        return Measured(1e-6 * sum(time * sample.text.count(f"std.{op}#") for op, time in self._times.items()))


def chain(rules: Rules, layers: int) -> Graph:
    def op(name: str, *args: Value, **attrs: object) -> Value:
        return apply(rules, f"std.{name}", args, attrs)[0]

    x = out = input_value("x", TensorType(DType.F32, (4, 8)))
    for layer in range(layers):
        weight = array_value(np.full((8, 8), layer + 1, np.float32))
        out = op(
            "transpose", op("transpose", op("softmax", op("matmul", out, weight), axis=-1), perm=(1, 0)), perm=(1, 0)
        )
    return Graph((x,), (out,))


def rule(rules: Rules, name: str) -> CompiledRule:
    return compile_directions(rules, rules.substitutions[f"std.{name}"])[0]


@pytest.mark.parametrize("layers", [1, 30])
def test_a_rule_saves_no_more_than_the_costliest_nodes_of_its_pattern(std: Rules, layers: int) -> None:
    # on a target that runs nothing as one
    times = ByOperators(matmul=50, softmax=5, transpose=10)
    costs = CostModel(std, times, lambda inputs, outputs: b"", 17, lowerings=Lowerings(()))
    graph = chain(std, layers)
    state = SweepState(Candidate(graph, costs.graph_cost(graph)), costs)
    twice, merge = rule(std, "transpose_of_transpose"), rule(std, "merge_convs")
    bound = most_saved(state, twice)
    assert bound == pytest.approx(20e-6) and most_saved(state, merge) == 0
    # one of 30 layers is too little of the whole to be looked for before everything else; it is found all the same
    assert (bound > SWEEP_LARGE * state.candidate.cost) == (layers == 1)
    assert len(list(find_matches(twice, state.index))) == layers
    # two become one
    best = sweep(Space(state.candidate, (), costs, Limits()), [twice])
    assert best.cost == pytest.approx(state.candidate.cost - layers * 10e-6)


def test_of_graphs_that_cost_about_the_same_the_smallest_is_kept(std: Rules) -> None:
    front = Front()
    costs = {1: 9.0, 2: 1.03, 3: 1.02, 4: 1.0, 5: 1.01}
    made = {layers: Candidate(chain(std, layers), cost) for layers, cost in costs.items()}
    for layers in (4, 5, 3, 1, 2):
        front.add(made[layers])
    assert front.smallest(1.05) is made[2] and front.smallest(1.0) is made[4] and front.smallest(0.9) is None
