"""EinNet's Figure 16: what derivations gain where generated kernels are the only backend, and where the runtime's operators are there.

    python -m benchmarks.einnet_search --figure 16 [--case conv5x5] [--depth 4] [--states 300]

Every operator of a program is a kernel, and every connected group of its generated operators is one; the call is one kernel too. A
program takes what its kernels take by themselves, each in its best variant. What is computed of weights is computed before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from benchmarks import machine
from dslc.cost.cache import CostCache
from dslc.cost.machine import this_machine
from dslc.cost.measure import Measurer
from dslc.deadline import Deadline
from dslc.derivation.calls import read_call
from dslc.derivation.programs import unlike
from dslc.derivation.search import DerivationLimits, DerivationSearch
from dslc.derivation.targets import targets_of
from dslc.fuse.autotune import Autotuner
from dslc.fuse.groups import Neighbours
from dslc.fuse.kernels import Cyclic, folded
from dslc.fuse.profile import WorkSizes
from dslc.fuse.timings import Subject
from dslc.ir.graph import Call, Graph, Kernel, Node, ScopeNode, replace
from dslc.ir.holes import hole, program
from dslc.prove.exact.answers import Equal
from dslc.prove.exact.compare import compare
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules

#: programs of a case that are built
BUILT = 3
HEADER = (
    "case", "call, ORT ms", "call as a kernel", "best derived, kernels alone", "ratio", "best derived, ORT and kernels", "ratio",
    "derivation",
)  # fmt: skip


@dataclass(slots=True)
class Bench:
    """Kernels of programs, measured."""

    rules: Rules
    trials: Autotuner

    def kernels(self, whole: Graph, only: bool) -> float:
        """Seconds of a program whose scopes are kernels, and its operators too where nothing else runs: `only`."""
        around = Neighbours(whole)
        running = [node for node in around.nodes if not node.constant]
        scopes = [node for node in running if isinstance(node, ScopeNode)]
        parts: list[list[Node]] = [[node] for node in running if isinstance(node, Call)] if only else []
        parts += [list(part) for part in around.connected(scopes)]
        try:
            made = folded(whole, [around.group(part) for part in parts])
        except Cyclic:
            return inf
        subjects = {
            Subject(node.group, tuple(arg.constant for arg in node.args))
            for node in made.nodes() if isinstance(node, Kernel) and not node.constant
        }  # fmt: skip
        found = self.trials.best(subjects)
        if len(found) < len(subjects):
            return inf
        calls = sum(self.call(node) for node in made.nodes() if isinstance(node, Call) and not node.constant)
        return calls + sum(each.kernel for each in found.values())

    def call(self, node: Call) -> float:
        """Seconds of an operator on ONNX Runtime."""
        inputs = tuple(hole(k, arg.type, arg.constant) for k, arg in enumerate(node.args))
        (made,) = replace(node.values, dict(zip(node.args, inputs, strict=True)))
        whole = program(inputs, (made,))
        return self.trials.whole(whole, tuple(value.constant for value in whole.inputs))


def of_weights(graph: Graph) -> Graph:
    """The call with all tensors but the first for weights, as in a network; of one that shares no channels none is."""
    images = {value: hole(k, value.type, k > 0) for k, value in enumerate(graph.inputs)}
    return program(images.values(), replace(graph.outputs, dict(images)))


def measured(rules: Rules, text: str, depth: int, states: float, seconds: float) -> tuple[str, ...]:
    """A row: what the call and its best programs take."""
    called = read_call(rules, text)
    given = of_weights(called.graph) if "conv" in text else called.graph
    (value,) = expand(rules, given.outputs)
    targets = targets_of(rules, [each.op for each in called.calls])
    limits = DerivationLimits(depth, until=Deadline.after(seconds), max_states=states)
    search = DerivationSearch(rules, list(rules.derivations.values()), limits, targets)
    found = [each for each in unlike(rules, search.run(value).programs, given.nodes()) if each.steps]
    with CostCache() as costs:
        measurer = Measurer(this_machine(1), costs)
        try:
            bench = Bench(rules, Autotuner(rules, measurer, WorkSizes(), 17))
            runtime = sum(bench.call(node) for node in given.nodes() if isinstance(node, Call))
            kernel = bench.kernels(given, True)
            best: dict[bool, tuple[float, str]] = {True: (inf, ""), False: (inf, "")}
            for each in found[:BUILT]:
                if not isinstance(compare((value,), expand(rules, (each.value,)), seconds=10.0), Equal):
                    continue
                words = " > ".join(dict.fromkeys(str(step).rpartition(".")[2] for step in each.steps))
                for only in best:
                    took = bench.kernels(program(given.inputs, (each.value,)), only)
                    best[only] = min(best[only], (took, words))
        finally:
            measurer.close()
    alone, mixed = best[True], best[False]
    return (
        _ms(runtime), _ms(kernel), _ms(alone[0]), f"{kernel / alone[0]:.2f}", _ms(mixed[0]), f"{runtime / mixed[0]:.2f}", alone[1],
    )  # fmt: skip


def _ms(seconds: float) -> str:
    return "-" if seconds == inf else f"{seconds * 1e3:.4g}"


def print_table(rules: Rules, cases: Mapping[str, str], depth: int, states: float, seconds: float) -> None:
    """The figure in Markdown, row by row as they are measured."""
    print(machine.describe(1))
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    for case, text in cases.items():
        print(f"| {case} | {' | '.join(measured(rules, text, depth, states, seconds))} |", flush=True)


__all__ = ["print_table"]
