"""Kernels that libraries wrote: where lowerings with a template fit in a graph, and the texts that they make of a group.

A template is a variant of the kernel of the nodes that its lowering names. What the kernel means are these nodes: a template that is
missing, makes no text, does not compile or gives other numbers is left out, and a note says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import permutations
from typing import Any, Generic, TypeVar

import numpy as np

from dslc.codegen.custom import Filling, Named, NotRendered, custom_kernel
from dslc.codegen.group import parts_of
from dslc.codegen.text import KernelText, NotGenerated
from dslc.cost.fused_groups import matched_nodes
from dslc.errors import DslcError
from dslc.fuse.groups import Neighbours, NodeGroup
from dslc.fuse.kernels import fold_of
from dslc.inspection.lowerings import UNKNOWNS, expression_of
from dslc.inspection.samples import sample
from dslc.interpret.instantiate import Rejected, instantiate
from dslc.ir.dtype import DType
from dslc.ir.graph import Graph, Node
from dslc.ir.scalar import Scalar
from dslc.match import CompiledRule, GraphIndex, Match, compile_lowering, find_matches
from dslc.match.compile import pattern_of
from dslc.match.guards import environment
from dslc.records import record
from dslc.semantics.definitions import LoweringDef, OperatorDef
from dslc.semantics.elaborate import elaborate
from dslc.semantics.env import Env, EvalError, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.semantics.operator_env import operator_env
from dslc.semantics.trust import NoTemplate, template_of, template_text, trusted
from dslc.syntax import tree as t

ORDERED = 4  #: tensors of an expression up to which their orders are tried
DRAWS = 200  #: draws of a small program that a lowering takes
PLACES = 1000  #: places of one lowering that are looked at in a graph

#: what a target's templates become
Text = TypeVar("Text")


@record
class Written(Generic[Text]):
    """A kernel that a lowering's template wrote. `own`: it is one of dslc's libraries."""

    lowering: str
    text: Text
    own: bool = False


@record
class _Template:
    """A template with what it is for: a piece of graph, or an expression as an operator."""

    library: Rules
    definition: LoweringDef
    statement: t.RenderTemplate
    source: str
    rules: tuple[CompiledRule, ...]
    expression: OperatorDef | None


class TemplatesOn(Generic[Text]):
    """The templates of the lowerings on a device of libraries that are trusted. `notes` say which are left out, and why.

    Args:
        libraries: where they are looked for; the first is what graphs are written in.
        write: makes a kernel of a template that is filled in; raises NotRendered and NotGenerated.
    """

    def __init__(
        self, device: str, libraries: Sequence[Rules], trust: Sequence[str], write: Callable[[Filling], Text]
    ) -> None:
        self.notes: list[str] = []
        self._rules, self._write = libraries[0], write
        self._found: list[_Template] = []
        self._taken: dict[Graph, bool] = {}
        seen: set[str] = set()
        for rules in libraries:
            for name, definition in rules.lowerings.items():
                statement = template_of(definition)
                if definition.syntax.device == device and statement and name not in seen:
                    self._add(rules, definition, statement, trust)
                seen.add(name)

    def __bool__(self) -> bool:
        return bool(self._found)

    def _add(self, rules: Rules, definition: LoweringDef, statement: t.RenderTemplate, trust: Sequence[str]) -> None:
        library = definition.module.library
        if not trusted(definition.module, trust):
            why = "since they run code on this machine"
            self.note(f"W0014: the templates of `{library}` are not used, {why}; `--trust {library}` uses them")
            return
        expression = expression_of(definition)
        if definition.syntax.expr and not expression:
            # `dslc check` says so, too
            self.left_out(definition.name, UNKNOWNS)
            return
        try:
            source = template_text(definition.module, statement.template)
            self._found.append(
                _Template(rules, definition, statement, source, compile_lowering(rules, definition), expression)
            )
        except NoTemplate as problem:
            self.left_out(definition.name, str(problem))
        except DslcError as problem:
            self.left_out(definition.name, problem.diagnostics[0].message)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def left_out(self, lowering: str, why: str) -> None:
        """Notes that a template is not used."""
        self.note(f"W0015: the template of {lowering} is left out: {' '.join(why.split())[:300]}")

    def slower(self, lowering: str, seconds: float, other: float) -> None:
        """Notes that a kernel which is generated is faster than a template's."""
        taken = f"its kernel takes {seconds * 1e3:.4g} ms, the generated one {other * 1e3:.4g} ms"
        self.note(f"the template of {lowering} is not used: {taken}")

    def groups(self, graph: Graph, around: Neighbours) -> Iterator[NodeGroup]:
        """The groups of a graph that some lowering takes."""
        if not self._found:
            return
        index = GraphIndex(graph)
        seen: set[frozenset[Node]] = set()
        for rule in (rule for one in self._found for rule in one.rules):
            for match in find_matches(rule, index, limit=PLACES):
                nodes = matched_nodes(match, around.rank)
                if nodes and nodes not in seen and around.convex(nodes):
                    seen.add(nodes)
                    group = around.group(nodes)
                    if set(group.outputs) == {value for _, value in match.roots}:
                        yield group

        for node in around.nodes if any(one.expression is not None for one in self._found) else ():
            group = around.group([node])
            if frozenset(group.nodes) not in seen and self.takes(fold_of(group).kernel.group):
                yield group

    def takes(self, program: Graph) -> bool:
        """Return whether some lowering of an expression is for what a program computes."""
        if program not in self._taken:
            self._taken[program] = any(
                one.expression is not None and self._order(one.expression, program) is not None for one in self._found
            )
        return self._taken[program]

    def texts(self, group: Graph, lowering: str = "") -> Iterator[Written[Text]]:
        """Yield the texts of the lowerings that take a group as a whole, or of one of them."""
        for one in self._found:
            if lowering not in ("", one.definition.name):
                continue
            try:
                text = self._made(one, group)
            except (NotRendered, NotGenerated, Mismatch, EvalError, Unbound, DslcError) as problem:
                self.left_out(one.definition.name, str(problem))
                continue
            if text is not None:
                yield Written(one.definition.name, text, trusted(one.definition.module, ()))

    def attempt(self, lowering: str, group: Graph) -> Text | None:
        """Fill in a lowering's template for a group; None where the lowering does not take it.

        Raises:
            NotRendered, NotGenerated: it makes no kernel.
            Mismatch, EvalError, Unbound, DslcError: what it is given has no value.
        """
        return next((self._made(one, group) for one in self._found if one.definition.name == lowering), None)

    def _made(self, one: _Template, group: Graph) -> Text | None:
        filling = self._expressed(one, group) if one.expression else _matched(one, group)
        return self._write(filling) if filling else None

    def fits(self, group: Graph) -> bool:
        """Return whether some lowering takes a group as a whole."""
        return any(_match_of(one, group) for one in self._found) or self.takes(group)

    def instances(self, lowering: str, dtype: DType | None = None, seeds: int = 3) -> Iterator[Graph]:
        """Small programs that a lowering takes, of an element type where that fits: what its kernel is tried with."""
        for one in self._found:
            if one.definition.name == lowering:
                yield from instances(one.library, one.definition, (dtype or DType.F32,), seeds)

    def _order(self, expression: OperatorDef, group: Graph) -> tuple[int, ...] | None:
        """Map the tensors of an expression to inputs of a group that computes the same; None where it does not."""
        count = len(expression.syntax.params)
        if len(group.outputs) != 1 or len(group.inputs) != count or count > ORDERED:
            return None
        try:
            meant = parts_of(self._rules, group).outputs
        except NotGenerated:
            return None
        for order in permutations(range(count)):
            args = tuple(group.inputs[k] for k in order)
            try:
                made = elaborate(self._rules, expression, tuple(arg.type for arg in args), ()).over(args)
                if parts_of(self._rules, Graph(group.inputs, made)).outputs == meant:
                    return order
            except (Mismatch, EvalError, Unbound, DslcError, NotGenerated):
                continue
        return None

    def _expressed(self, one: _Template, group: Graph) -> Filling | None:
        assert one.expression
        order = self._order(one.expression, group)
        if order is None:
            return None
        names = [param.name for param in one.expression.syntax.params]
        tensors = [Named(name, at) for name, at in zip(names, order, strict=True)]
        tensors.append(Named(one.expression.syntax.outputs[0].name, 0, True))
        env = operator_env(self._rules, one.expression, tuple(group.inputs[k] for k in order), {})
        values = {name: value for name, value in env.values.items() if _simple(value)}
        return _filling(one, group, tensors, values, env)


class Templates(TemplatesOn[KernelText]):
    """The templates on the processors of this machine."""

    def __init__(self, rules: Rules, trust: Sequence[str] = ()) -> None:
        super().__init__("cpu", (rules,), trust, custom_kernel)


def instances(
    rules: Rules, definition: LoweringDef, dtypes: tuple[DType, ...] = (DType.F32,), seeds: int = 3
) -> Iterator[Graph]:
    """Small programs that a lowering takes; none where its form allows no draw."""
    expression = expression_of(definition)
    if expression:
        with suppress(Mismatch, EvalError, Unbound, DslcError):
            args = sample(rules, expression)[0].node.args
            made = elaborate(rules, expression, tuple(arg.type for arg in args), ()).over(args)
            yield Graph(args, made)
    if not definition.syntax.match:
        return
    pattern = pattern_of(definition, definition.syntax.match)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        for _ in range(DRAWS):
            with suppress(Rejected):
                found = instantiate(rules, pattern, rng, dtypes=dtypes)
                graph = Graph(tuple(value for value in found.inputs if not value.constant), tuple(found.left.values()))
                if all(value.type.is_static and 0 not in value.type.shape for value in (*graph.inputs, *graph.outputs)):
                    yield graph
                    break


def _match_of(one: _Template, group: Graph) -> Match | None:
    """A match of a template's lowering that takes all of a group, from its inputs to its outputs."""
    index, inputs, outputs = GraphIndex(group), set(group.inputs), set(group.outputs)
    for match in (match for rule in one.rules for match in find_matches(rule, index)):
        ends = {value for _, value in match.roots}
        if not match.state.wraps and set(match.state.values.values()) == inputs and ends == outputs:
            return match
    return None


def _matched(one: _Template, group: Graph) -> Filling | None:
    match = _match_of(one, group)
    if not match:
        return None
    declared = [param.name for param in one.definition.syntax.params]
    given = match.state.values
    names = [*(name for name in declared if name in given), *sorted(set(given) - set(declared))]
    at = {value: k for k, value in enumerate(group.inputs)}
    tensors = [Named(name, at[given[name]]) for name in names]
    where = {value: k for k, value in enumerate(group.outputs)}
    tensors += [Named(name, where[value], True) for name, value in match.roots]
    values = {name: value for name, value in {**match.names, **match.choice}.items() if _simple(value)}
    return _filling(one, group, tensors, values, environment(match.rule, match.state, match.names))


def _filling(one: _Template, group: Graph, tensors: Sequence[Named], values: dict[str, Any], env: Env) -> Filling:
    values |= {entry.name: evaluate(entry.value, env) for entry in one.statement.attrs}
    inputs, outputs = (tuple(value.type for value in side) for side in (group.inputs, group.outputs))
    costs = [entry for said in one.definition.syntax.statements if isinstance(said, t.Cost) for entry in said.entries]
    title = f"{one.definition.name}: {one.statement.template}"
    cost = {entry.name: evaluate(entry.value, env) for entry in costs}
    return Filling(one.source, inputs, outputs, tuple(tensors), values, title, cost, group)


def _simple(value: Any) -> bool:
    """Return whether a name of a match is something for a template: no set of attributes, tensor or function."""
    if isinstance(value, tuple):
        return all(map(_simple, value))
    return isinstance(value, int | float | str | Fraction | DType | Scalar)
