"""What was measured to be faster anywhere is a fact: it fits wherever its program stands, under every strategy, beside the rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.codegen.text import KernelText
from dslc.cost.targets import target_named
from dslc.fuse.autotune import TunedKernel
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.facts import fact_of
from dslc.ir.graph import Graph, Kernel, Value, input_value, kernel_value
from dslc.ir.holes import abstracted
from dslc.ir.places import places_of
from dslc.search.candidates.candidate import Candidate, Limits
from dslc.search.options.strategies import Backtrack, Mcts, Saturate, Strategy
from dslc.search.region_rewrites.findings import Findings, FindingStore, fused, gathered, places_in
from dslc.search.region_rewrites.fusions import fact_of_kernel
from dslc.search.region_rewrites.region_log import MeasuredRewrite
from dslc.search.region_rewrites.validate import claims_of, validate
from dslc.search.runs.selection import chosen_rules
from dslc.search.strategies.space import Space, Substitutions
from dslc.semantics.apply import apply
from dslc.semantics.library import standard

RULES = standard()
NEGATED = "std.double_neg"


def tensor(name: str, *shape: int) -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def op(name: str, *args: Any, **attrs: Any) -> Value:
    return apply(RULES, f"std.{name}", args, attrs)[0]


X, Y = tensor("x", 64, 64), tensor("y", 64, 64)
W, V = (array_value(np.random.default_rng(k).random((64, 64)).astype(np.float32)) for k in range(2))


def graph_of(*outputs: Value) -> Graph:
    return Graph((X, Y), outputs)


@pytest.mark.parametrize(("outputs", "count"), [
    ((op("relu", op("matmul", X, W)),), 1),
    ((op("relu", op("matmul", X, W)), op("relu", op("matmul", Y, V))), 2),
    # an order of arguments of its own, another operator, another type
    ((op("relu", op("matmul", W, X)),), 1),
    ((op("neg", op("matmul", X, W)),), 0),
    ((op("relu", op("matmul", X, tensor("z", 64, 8))),), 0),
])  # fmt: skip
def test_a_program_stands_wherever_it_is_computed(outputs: tuple[Value, ...], count: int) -> None:
    program, _ = abstracted((op("relu", op("matmul", X, W)),), (X, W))
    inputs = tuple(value for value in (X, Y, tensor("z", 64, 8)))
    found = list(places_of(program, Graph(inputs, outputs)))
    assert len(found) == count
    for holes, values in found:
        (again,), _ = abstracted(values, holes)[0].outputs, holes
        assert again == program.outputs[0] or values[0].node.args[0].node.args == holes


def test_what_occurs_twice_stands_for_one_value() -> None:
    program, _ = abstracted((op("mul", op("exp", X), X),), (X,))
    twice, apart = op("mul", op("exp", Y), Y), op("mul", op("exp", Y), X)
    assert [values for _, values in places_of(program, graph_of(twice))] == [(twice,)]
    assert not list(places_of(program, graph_of(apart)))


def kernel_of(value: Value, leaves: tuple[Value, ...], before: float = 1e-3, after: float = 1e-9) -> MeasuredRewrite:
    """A kernel that was measured to be faster than what gives a value."""
    program, args = abstracted((value,), leaves)
    text = KernelText(f"k_{abs(hash(program)):012x}"[:14], (), (), (), "")
    tried = TunedKernel(program, text.name, None, text, before, after, 1)
    (one,) = fused(tried, Graph(leaves, kernel_value(program, args)))
    return one


@pytest.fixture
def costs(tmp_path: Path) -> Any:
    """Prices by a processor's two numbers: nothing is measured."""
    from dslc.cost.cache import CostCache
    from dslc.cost.machine import this_machine
    from dslc.cost.measure import Measurer
    from dslc.cost.model import CostModel

    cache = CostCache(tmp_path)
    target = target_named("cpu_sheet", "1e11:1e10", 1)
    return CostModel(RULES, Measurer(this_machine(1), cache), lambda *_: b"", 17, target=target)


@pytest.mark.parametrize("strategy", [Backtrack(), Saturate(), Mcts()])
def test_every_strategy_takes_it_beside_rules(strategy: Strategy, costs: Any) -> None:
    """A rule takes two signs away, and what is left then was measured as one kernel elsewhere."""
    finding = kernel_of(op("relu", op("exp", X)), (X,))
    graph = graph_of(op("relu", op("exp", op("neg", op("neg", Y)))))
    start = Candidate(graph, costs.graph_cost(graph))
    rules = tuple(rule for rule in chosen_rules(RULES) if rule.name == NEGATED)
    assert rules
    findings = Findings((finding,), costs)
    space = Space(start, (Substitutions(rules),), costs, Limits(200), findings=findings)
    best = findings.with_texts(list(strategy.explore(space))[-1])
    node = best.graph.outputs[0].node
    assert isinstance(node, Kernel) and node.args == (Y,)
    assert list(best.kernels) == [finding.kernels[0].name]
    assert {step.rule for step in best.path()[1:]} == {"kernels", NEGATED}
    assert set(validate(RULES, claims_of(best)).how.values()) == {"exact"}


def test_all_that_gains_is_taken_at_once_and_no_node_twice(costs: Any) -> None:
    a, b = op("relu", op("exp", X)), op("tanh", op("sqrt", Y))
    graph = graph_of(op("add", a, b))
    start = Candidate(graph, costs.graph_cost(graph))
    some = (
        kernel_of(a, (X,)),
        kernel_of(b, (Y,)),
        kernel_of(op("exp", X), (X,)),
        kernel_of(op("sqrt", Y), (Y,), 1e-9, 1.0),
    )
    best = gathered(start, Findings(some, costs), costs, Limits(100))
    kernels = [node for node in best.graph.nodes() if isinstance(node, Kernel)]
    assert {node.group for node in kernels} == {some[0].fact.old, some[1].fact.old}
    assert len(best.path()) == 3 and best.cost < start.cost


def test_weights_stand_for_weights() -> None:
    """A kernel that has its weights ready is no kernel for what is computed while the model runs."""
    finding = kernel_of(op("relu", op("matmul", X, W)), (X, W))
    assert finding.weights == (False, True)
    assert list(places_in(graph_of(op("relu", op("matmul", Y, V))), finding))
    assert not list(places_in(graph_of(op("relu", op("matmul", X, Y))), finding))


def test_of_one_program_the_fastest_few_are_kept() -> None:
    found = FindingStore(most=2)
    old, leaves = op("relu", op("exp", X)), (X,)
    for k, seconds in enumerate((3e-4, 1e-4, 2e-4, 2e-3)):
        fact, _ = fact_of(f"rule{k}", (old,), (op("relu", op("exp", op("leaky_relu", X, alpha=1.0 + k))),), leaves)
        found.add(MeasuredRewrite(fact, fact.new, (), 1e-3, seconds))
    assert [one.after for one in found.all()] == [1e-4, 2e-4] and found.count >= 2
    assert found.saving(graph_of(old)) == pytest.approx(9e-4)


def test_a_kernel_means_its_nodes() -> None:
    finding = kernel_of(op("relu", op("exp", X)), (X,))
    assert finding.fact == fact_of_kernel(finding.fact.old) and finding.facts == (finding.fact,)


def test_what_is_slower_as_a_kernel_costs_what_its_nodes_cost(costs: Any) -> None:
    """Of a derived program with two kernels one was slower than its nodes, and was not kept: the program stands all the same."""
    old = op("relu", op("matmul", X, W))
    first, _ = abstracted((op("tanh", X),), (X,))
    second, _ = abstracted((op("exp", X),), (X,))
    (inner,) = kernel_value(first, (X,))
    (new,) = kernel_value(second, (inner,))
    fact, _ = fact_of("rule", (old,), (new,), (X, W))
    text = KernelText("k_0123456789ab", (), (), (), "")
    tried = TunedKernel(second, text.name, None, text, 1e-3, 1e-9, 1)
    found = Findings((MeasuredRewrite(fact, fact.new, (tried,), 1e-3, 1e-4),), costs)
    assert len(list(found.moves(graph_of(old)))) == 1
    start = Candidate(graph_of(old), costs.graph_cost(graph_of(old)))
    assert gathered(start, found, costs, Limits(100)) is not None
