"""The cost model: groups that a runtime may fuse, layouts between them, and rewrites costed without being built."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest

from dslc.cost import kinds
from dslc.cost.cache import CostCache
from dslc.cost.groups import Group, groups_of, working_nodes
from dslc.cost.layout import Info, Port, layout_cost
from dslc.cost.machine import this_machine
from dslc.cost.measure import Measured, Measurer, Sample
from dslc.cost.model import CostModel
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Graph, Value, input_value
from dslc.match import GraphIndex, compile_all, find_matches
from dslc.match.apply import replacements
from dslc.match.recipe import Refused
from dslc.onnx.exporter import node_model
from dslc.onnx.importer import import_model
from dslc.search.candidates.candidate import Candidate, Limits, rewritten
from dslc.search.strategies.backtrack import backtrack
from dslc.search.strategies.space import Space
from dslc.semantics.apply import apply
from dslc.semantics.library import standard

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
RULES = standard()


class Invented(Measurer):
    """Costs that only depend on what is measured, with layouts for some."""

    def __init__(self) -> None:
        self.count = 0

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        self.count += 1
        number = int.from_bytes(hashlib.sha256(sample.text.encode()).digest()[:4], "big")
        if "of blocks: " in sample.text or "into blocks: " in sample.text:
            return Measured(3e-6 + number % 10 * 1e-7)
        seconds = 2e-5 + number % 1000 * 1e-6
        kinds = [Measured(seconds, (0,), True), Measured(seconds, blocked=True), Measured(seconds, (0,), False, True)]
        return [*kinds, Measured(seconds)][number % 4]

    @property
    def overhead(self) -> float:
        return 0.0


def x(*shape: int, name: str = "x") -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def w(*shape: int) -> Value:
    return array_value(np.random.default_rng(0).random(shape, np.float32))


def op(name: str, *args: Value, **attrs: object) -> Value:
    return apply(RULES, f"std.{name}", args, attrs)[0]


def model() -> CostModel:
    return CostModel(RULES, Invented(), lambda inputs, outputs: b"", 17)


def names(groups: list[Group]) -> list[list[str]]:
    return [[n.op.removeprefix("std.") for n in group.nodes if isinstance(n, Call)] for group in groups]


def test_what_alone_uses_a_result_is_measured_with_it() -> None:
    a = x(1, 8, 14, 14)
    conv = op("conv", a, w(8, 8, 3, 3), pads=(1, 1, 1, 1))
    normed = op("batch_norm", conv, w(8), w(8), w(8), w(8))
    out = op("relu", op("add", normed, a))
    assert names(model().evaluate(Graph((a,), (out,))).groups) == [["conv", "batch_norm", "add", "relu"]]
    both = Graph((a,), (out, conv))
    assert names(model().evaluate(both).groups) == [["conv"], ["batch_norm", "add", "relu"]]


def test_weights_cost_nothing_and_equal_groups_are_measured_once() -> None:
    a, b = x(4, 16), x(4, 16, name="b")
    weight = op("matmul", w(16, 16), w(16, 16))
    costs = model()
    once = costs.graph_cost(Graph((a,), (op("matmul", a, weight),)))
    twice = costs.graph_cost(Graph((a, b), (op("matmul", a, weight), op("matmul", b, op("mul", weight, weight)))))
    assert twice == pytest.approx(2 * once)
    assert costs.measured == 1


def test_pointwise_follows_from_equations() -> None:
    normed = op("batch_norm", x(1, 3, 5), w(3), w(3), w(3), w(3)).node
    assert isinstance(normed, Call)
    assert kinds.pointwise(RULES, normed, [False, True, True, True, True])
    assert not kinds.pointwise(RULES, normed, [False, False, True, True, True])
    soft = op("softmax", x(2, 3, 4), axis=-1).node
    assert isinstance(soft, Call)
    assert not kinds.pointwise(RULES, soft, [False])


def test_layout_changes_are_paid_where_the_layout_changes() -> None:
    v = [x(1, name=f"v{k}") for k in range(6)]
    blocked = Info(1.0, (0.1,), 0.2)
    plain, either = Info(1.0), Info(1.0, (), 0.0, 1.0, 0.2)
    port = [Port((v[k],), (v[k + 1],)) for k in range(5)]
    assert layout_cost([(blocked, port[0])], [v[1]]) == pytest.approx(0.3)
    assert layout_cost([(blocked, port[0]), (blocked, port[1])], [v[2]]) == pytest.approx(0.3)
    assert layout_cost([(blocked, port[0]), (either, port[1]), (blocked, port[2])], [v[3]]) == pytest.approx(0.3)
    assert layout_cost([(blocked, port[0]), (plain, port[1]), (blocked, port[2])], [v[3]]) == pytest.approx(0.6)
    # one value that leaves is brought out once, whoever reads it
    readers = [(blocked, port[0]), (plain, Port((v[1],), (v[2],))), (plain, Port((v[1],), (v[3],)))]
    assert layout_cost(readers, [v[2], v[3]]) == pytest.approx(0.3)


def test_a_group_goes_on_in_blocks_where_all_its_other_inputs_come_in_blocks() -> None:
    a, b, p, q, out = (x(1, name=name) for name in "abpqo")
    one, other = (Info(1.0, (0.1,), 0.2), Port((a,), (p,))), (Info(1.0, (0.1,), 0.2), Port((b,), (q,)))
    # side by side: what comes out is larger than each of what goes in
    joined = (Info(1.0, (), 0.0, 1.0, 0.5), Port((p, q), (out,)))
    assert layout_cost([one, other, joined], [out]) == pytest.approx(0.1 + 0.1 + 0.5)
    assert layout_cost([one, joined], [out]) == pytest.approx(0.1 + 0.2)
    # the second input is summed up within the first one's operator, in blocks, or after it has left them
    fused = (Info(3.0, (0.1, 0.0), 0.0, 2.0, 0.2), Port((a, q), (out,)))
    assert layout_cost([fused], [out]) == pytest.approx(0.1)
    assert layout_cost([fused, other], [out]) == pytest.approx(-1.0 + 0.1 + 0.1 + 0.2)


def test_what_is_said_about_layouts_is_one_number() -> None:
    for one in (Measured(1.0), Measured(1.0, (0,), True), Measured(1.0, (1, 4), False, True)):
        assert Measured.of(1.0, one.number) == one


@pytest.mark.parametrize("network", ["squeezenet", "shufflenet"])
def test_a_rewrite_costs_what_the_rewritten_graph_costs(network: str) -> None:
    graph = import_model(LIGHT / f"light_{network}.onnx", RULES).graph
    costs = model()
    state, index = costs.evaluate(graph), GraphIndex(graph)
    tried = 0
    for rule in compile_all(RULES):
        for match in find_matches(rule, index, limit=3):
            try:
                new = replacements(match)
            except Refused:
                continue
            tried += 1
            assert state.after(new)[0] == pytest.approx(costs.graph_cost(rewritten(graph, new)), abs=1e-12), rule.name
    assert tried > 15


def test_searches_repeat_themselves_and_never_get_worse() -> None:
    graph = import_model(LIGHT / "light_squeezenet.onnx", RULES).graph
    rules = compile_all(RULES)
    found = []
    for seed in (0, 0, 1):
        costs = model()
        start = Candidate(graph, costs.graph_cost(graph))
        best = backtrack(Space(start, (), costs, Limits(steps=150), seed=seed), rules)
        assert best.cost < start.cost
        assert best.cost == pytest.approx(costs.graph_cost(best.graph))
        path = best.path()
        assert path[0] is start and sum(step.gain for step in path) == pytest.approx(start.cost - best.cost)
        found.append(best)
    assert found[0].graph == found[1].graph and list(found[0].rules()) == list(found[1].rules())


def test_several_replacements_at_once_reach_into_each_other() -> None:
    a = x(4, 4)
    first = op("relu", a)
    second = op("exp", first)
    third = op("tanh", second)
    new = {first: op("abs", a), third: op("sin", second), second: op("add", second, first)}
    out = rewritten(Graph((a,), (third,)), new).outputs[0]
    inner = op("abs", a)
    # a replacement that holds what it replaces keeps it as it was
    assert out == op("sin", op("add", op("exp", first), inner)) or out == op("sin", op("add", op("exp", inner), inner))


def test_groups_and_costs_of_a_real_operator_on_onnx_runtime(tmp_path: Path) -> None:
    with CostCache(tmp_path) as cache:
        measurer = Measurer(this_machine(1), cache)

        def build(inputs: tuple[Value, ...], outputs: tuple[Value, ...]) -> bytes:
            data: bytes = node_model(outputs, RULES, 17, inputs=inputs)[0].SerializeToString(deterministic=True)
            return data

        costs = CostModel(RULES, measurer, build, 17)
        a = x(1, 64, 28, 28)
        small = Graph((a,), (op("relu", op("conv", a, w(64, 64, 1, 1))),))
        large = Graph((a,), (op("relu", op("conv", a, w(64, 64, 3, 3), pads=(1, 1, 1, 1))),))
        assert 1.5 * costs.graph_cost(small) < costs.graph_cost(large) < 1
        state = costs.evaluate(large)
        (info,) = state.infos
        assert info.enters[0] > 0 and info.leave > 0
        # both groups, and a tensor of that type into blocks and out of them
        assert costs.measured == 4
        again = CostModel(RULES, measurer, build, 17)
        assert again.graph_cost(large) == costs.graph_cost(large) and measurer.count == 4
        # a sum is computed in blocks where its operands come so, and within the convolution where one of them is its result
        b = x(1, 64, 28, 28, name="b")
        (summed,) = costs.evaluate(Graph((a, b), (op("add", a, b),))).infos
        assert not summed.enters and summed.leave == 0 and summed.blocked == summed.body and summed.blocked_leave > 0
        (fused,) = costs.evaluate(Graph((a, b), (op("add", op("conv", a, w(64, 64, 1, 1)), b),))).infos
        assert fused.enters[1] == 0 and fused.blocked is not None and fused.leave == 0
        (beside,) = costs.evaluate(Graph((a, b), (op("concat", a, b, axis=0),))).infos
        assert beside.blocked is None
        measurer.close()


def test_working_nodes_end_at_weights() -> None:
    a = x(4, 4)
    out = op("matmul", a, op("mul", w(4, 4), w(4, 4)))
    assert [type(node).__name__ for node in working_nodes([out])] == ["Input", "Call"]
    assert names(groups_of([], lambda n: n.args, lambda v: 1, lambda n: True)) == []


class Shorter(Invented):
    """A product alone was measured at a bad moment."""

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        return Measured(9e-6 if "std.relu#" not in sample.text else 7e-6 if "std.matmul#" in sample.text else 1e-6)


@pytest.mark.parametrize("longer_first", [True, False])
def test_more_work_does_not_take_less_time(longer_first: bool) -> None:
    a = x(4, 16)
    short = Graph((a,), (op("matmul", a, w(16, 16)),))
    long = Graph((a,), (op("relu", short.outputs[0]),))
    costs = CostModel(RULES, Shorter(), lambda inputs, outputs: b"", 17)
    for graph in (long, short) if longer_first else (short, long):
        costs.graph_cost(graph)
    assert costs.graph_cost(short) == pytest.approx(7e-6 if longer_first else 9e-6)
    assert costs.graph_cost(long) == pytest.approx(7e-6)
    # nothing of what follows it says what comes before is cheaper than it was measured to be
    assert costs.graph_cost(Graph((a,), (op("relu", a),))) == pytest.approx(1e-6)
