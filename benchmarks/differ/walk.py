"""Random walks: rules applied one after the other, wherever they match, profitable or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto

from dslc.checking.rule_tests import fired_graphs
from dslc.errors import DslcError
from dslc.interpret.instantiate import Rejected, instantiate, term_choices
from dslc.ir.dtype import DType
from dslc.ir.graph import Graph, Value
from dslc.match import CompiledRule, GraphIndex, find_matches
from dslc.match.apply import replacements
from dslc.match.recipe import Refused
from dslc.onnx.context import Context
from dslc.onnx.exporter import export, node_model
from dslc.search.candidates.candidate import Candidate, rewritten
from dslc.search.rewrites.associative_flattening import flattened
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules

#: matches of a rule in one graph among which one is chosen, and how many times a graph may grow
_MATCHES, _GROWTH = 8, 6
_DRAWS = 40


@dataclass(frozen=True, slots=True)
class Step:
    """A graph, its model, and the rule that made it of the one before."""

    rule: str
    graph: Graph
    model: ModelProto


@dataclass
class Walk:
    """What became of one walk: every step has a model. `unwritten` counts rules whose result no ONNX node expresses."""

    steps: list[Step]
    unwritten: Counter[str]

    @property
    def applied(self) -> list[str]:
        return [step.rule for step in self.steps[1:]]

    def candidate(self) -> Candidate:
        """The last graph with how it came about, as the search keeps it."""
        found = Candidate(self.steps[0].graph, 0.0)
        for step in self.steps[1:]:
            found = Candidate(step.graph, 0.0, found, step.rule, 1)
        return found


def walk(
    rules: Rules,
    compiled: Sequence[CompiledRule],
    context: Context,
    graph: Graph,
    rng: np.random.Generator,
    length: int,
    first: str = "",
) -> Walk:
    """Applies `length` rules that match, in random order, but the one named `first` before others."""
    out = Walk([Step("", graph, export(context, graph, rules))], Counter())
    size = len(graph.nodes()) + 10
    for k in range(length):
        order = [compiled[int(j)] for j in rng.permutation(len(compiled))]
        if k == 0 and first:
            order = [rule for rule in order if rule.name == first] + order
        current = out.steps[-1].graph
        index = GraphIndex(current)
        found = _next(rules, order, index, context, rng, out.unwritten, _GROWTH * size)
        if found is None:
            break
        out.steps.append(found)
    return out


def _next(
    rules: Rules, order: Sequence[CompiledRule], index: GraphIndex, context: Context, rng: np.random.Generator,
    unwritten: Counter[str], most: int,
) -> Step | None:  # fmt: skip
    for rule in order:
        for graph in _applications(rules, rule, index, rng):
            if len(graph.nodes()) > most:
                continue
            try:
                return Step(rule.name, graph, export(context, graph, rules))
            except DslcError:
                unwritten[rule.name] += 1
                break
    return None


def _applications(rules: Rules, rule: CompiledRule, index: GraphIndex, rng: np.random.Generator) -> Iterator[Graph]:
    """The graphs that a rule makes at some of its places, as the search builds them."""
    matches = list(find_matches(rule, index, limit=_MATCHES))
    for k in rng.permutation(len(matches)):
        try:
            new = {old: value for old, value in replacements(matches[int(k)]).items() if old != value}
        except Refused:
            continue
        if not new:
            continue
        graph: Graph = rewritten(index.graph, new)
        if rng.random() < 0.3:
            graph = flattened(rules, graph)
        if graph.outputs != index.graph.outputs:
            yield graph


def seeded_model(rules: Rules, rule: CompiledRule, rng: np.random.Generator, opset: int) -> ModelProto | None:
    """A model in which the rule's pattern occurs at random sizes and attributes, with its variables as inputs or weights.

    Half of the time it is the graph of one of the rule's own tests. None where no instance was drawn, or no ONNX node of the
    opset expresses it.
    """
    definition = rule.definition
    graphs = [graph for test in rules.tests if test.name == definition.name for graph in fired_graphs(rules, test)]
    if graphs and not rule.reverse and rng.random() < 0.5:
        graph = graphs[int(rng.integers(len(graphs)))]
        model = _written(rules, graph.outputs, graph.inputs, rng, opset)
        if model is not None:
            return model
    for terms in term_choices(rules, definition, rng, 3):
        for attempt in range(_DRAWS):
            dtypes = ((DType.F32,), (DType.F32,), (DType.I64,), (DType.F64,), (DType.I32,), (DType.BOOL,))[attempt % 6]
            try:
                instance = instantiate(rules, definition, rng, terms, dtypes)
            except (Rejected, Mismatch, DslcError):
                continue
            side = instance.right if rule.reverse else instance.left
            if any(
                not value.type.is_static or value.type.elements > 4096 for value in (*side.values(), *instance.inputs)
            ):
                continue
            if all(value.type.elements for value in instance.inputs) and not all(
                value.type.elements for value in side.values()
            ):
                continue  # a window that does not fit: some nodes of a runtime give nothing then, some refuse
            model = _written(rules, tuple(side.values()), instance.inputs, rng, opset)
            if model is not None:
                return model
    return None


def _written(
    rules: Rules, outputs: tuple[Value, ...], inputs: Sequence[Value], rng: np.random.Generator, opset: int
) -> Any:
    from dslc.onnx.microbenchmarks import with_weights
    from dslc.onnx.runtime import session

    try:
        model, names = node_model(tuple(dict.fromkeys(outputs)), rules, opset, inputs=list(inputs), ir_version=10)
    except DslcError:
        return None
    floats = [name for name, value in zip(names, inputs, strict=True) if value.type.dtype in (DType.F32, DType.F64)]
    # of several operands most are weights in a model; some rules want them to be
    fixed = [name for name in floats[1:] if rng.random() < 0.5]
    if fixed:
        model = with_weights(
            model.SerializeToString(), fixed, lambda dtype, shape: rng.standard_normal(tuple(shape)).astype(dtype)
        )
    try:
        session(model, threads=1)
    except DslcError:
        return None
    return model
