"""Kernels that libraries wrote: where lowerings with a template fit in a graph, and the texts that they make of a group.

A template is a variant of the kernel of the nodes that its lowering names. What the kernel means are these nodes: a template that is
missing, makes no text, does not compile or gives other numbers is left out, and a note says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from typing import Any

from dslc.codegen.custom import Named, NotRendered, custom_kernel
from dslc.codegen.group import parts_of
from dslc.codegen.text import KernelText, NotGenerated
from dslc.errors import DslcError
from dslc.fuse.groups import Group, Neighbours
from dslc.fuse.kernels import fold_of
from dslc.inspection.lowerings import UNKNOWNS, expression_of
from dslc.ir.dtype import DType
from dslc.ir.graph import Graph, Node
from dslc.ir.scalar import Scalar
from dslc.match import CompiledRule, GraphIndex, Match, compile_lowering, find_matches
from dslc.match.guards import environment
from dslc.semantics.definitions import LoweringDef, OperatorDef
from dslc.semantics.elaborate import elaborate
from dslc.semantics.env import Env, EvalError, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.semantics.operator_env import operator_env
from dslc.semantics.trust import NoTemplate, template_of, template_text, trusted
from dslc.syntax import tree as t

#: tensors of an expression up to which their orders are tried
ORDERS = 4
#: the device whose templates these are, and places of one lowering that are looked at in a graph
DEVICE, PLACES = "cpu", 1000


@dataclass(frozen=True, slots=True)
class Written:
    """A kernel that a lowering's template wrote."""

    lowering: str
    text: KernelText


@dataclass(frozen=True, slots=True)
class _Template:
    """A template with what it is for: a piece of graph, or an expression as an operator."""

    definition: LoweringDef
    statement: t.RenderTemplate
    source: str
    rules: tuple[CompiledRule, ...]
    expression: OperatorDef | None


class Templates:
    """The templates of the lowerings on the CPU of libraries that are trusted. `notes` say which are left out, and why."""

    def __init__(self, rules: Rules, trust: Sequence[str] = ()) -> None:
        self.notes: list[str] = []
        self._rules = rules
        self._found: list[_Template] = []
        self._taken: dict[Graph, bool] = {}
        for definition in rules.lowerings.values():
            statement = template_of(definition)
            if definition.syntax.device == DEVICE and statement is not None:
                self._add(rules, definition, statement, trust)

    def __bool__(self) -> bool:
        return bool(self._found)

    def _add(self, rules: Rules, definition: LoweringDef, statement: t.RenderTemplate, trust: Sequence[str]) -> None:
        library = definition.module.library
        if not trusted(definition.module, trust):
            why = "since they run code on this machine"
            self.note(f"W0014: the templates of `{library}` are not used, {why}; `--trust {library}` uses them")
            return
        expression = expression_of(definition)
        if definition.syntax.expr is not None and expression is None:
            # `dslc check` says so, too
            self.left_out(definition.name, UNKNOWNS)
            return
        try:
            source = template_text(definition.module, statement.template)
            self._found.append(_Template(definition, statement, source, compile_lowering(rules, definition), expression))
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

    def groups(self, graph: Graph, around: Neighbours) -> Iterator[Group]:
        """The groups of a graph that some lowering takes."""
        index = GraphIndex(graph) if self._found else None
        seen: set[frozenset[Node]] = set()
        for rule in (rule for one in self._found for rule in one.rules):
            assert index is not None
            for match in find_matches(rule, index, limit=PLACES):
                nodes = _between(match, around)
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
        """Whether some lowering of an expression is for what a program computes."""
        found = self._taken.get(program)
        if found is None:
            found = any(one.expression is not None and self._order(one.expression, program) is not None for one in self._found)
            self._taken[program] = found
        return found

    def texts(self, group: Graph) -> Iterator[Written]:
        """What the lowerings that take a group as a whole make of it."""
        for one in self._found:
            try:
                text = self._expressed(one, group) if one.expression is not None else _matched(one, group)
            except (NotRendered, NotGenerated, Mismatch, EvalError, Unbound, DslcError) as problem:
                self.left_out(one.definition.name, str(problem))
                continue
            if text is not None:
                yield Written(one.definition.name, text)

    def _order(self, expression: OperatorDef, group: Graph) -> tuple[int, ...] | None:
        """Which input of a group is each tensor of an expression that computes the same; None where it does not."""
        count = len(expression.syntax.params)
        if len(group.outputs) != 1 or len(group.inputs) != count or count > ORDERS:
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

    def _expressed(self, one: _Template, group: Graph) -> KernelText | None:
        assert one.expression is not None
        order = self._order(one.expression, group)
        if order is None:
            return None
        names = [param.name for param in one.expression.syntax.params]
        tensors = [Named(name, at) for name, at in zip(names, order, strict=True)]
        tensors.append(Named(one.expression.syntax.outputs[0].name, 0, True))
        env = operator_env(self._rules, one.expression, tuple(group.inputs[k] for k in order), {})
        values = {name: value for name, value in env.values.items() if _simple(value)}
        return _text(one, group, tensors, values, env)


def _matched(one: _Template, group: Graph) -> KernelText | None:
    index = GraphIndex(group)
    match = next((match for rule in one.rules for match in find_matches(rule, index) if _whole(match, group)), None)
    if match is None:
        return None
    declared = [param.name for param in one.definition.syntax.params]
    given = match.state.values
    names = [*(name for name in declared if name in given), *sorted(set(given) - set(declared))]
    at = {value: k for k, value in enumerate(group.inputs)}
    tensors = [Named(name, at[given[name]]) for name in names]
    where = {value: k for k, value in enumerate(group.outputs)}
    tensors += [Named(name, where[value], True) for name, value in match.roots]
    values = {name: value for name, value in {**match.names, **match.choice}.items() if _simple(value)}
    return _text(one, group, tensors, values, environment(match.rule, match.state, match.names))


def _between(match: Match, around: Neighbours) -> frozenset[Node]:
    """The nodes between the tensors of a match and its results; none where a part of a longer associative call was matched."""
    if match.state.wraps:
        return frozenset()
    ends = set(match.state.values.values())
    inside: set[Node] = set()
    stack = [value.node for _, value in match.roots]
    while stack:
        node = stack.pop()
        if node in inside:
            continue
        if node not in around.rank:
            return frozenset()
        inside.add(node)
        stack += [arg.node for arg in node.args if arg not in ends and not arg.constant]
    return frozenset(inside)


def _whole(match: Match, group: Graph) -> bool:
    """Whether a match takes all of a group, from its inputs to its outputs."""
    return (
        not match.state.wraps
        and set(match.state.values.values()) == set(group.inputs)
        and {value for _, value in match.roots} == set(group.outputs)
    )


def _text(one: _Template, group: Graph, tensors: Sequence[Named], values: dict[str, Any], env: Env) -> KernelText:
    values |= {entry.name: evaluate(entry.value, env) for entry in one.statement.attrs}
    types = ([value.type for value in group.inputs], [value.type for value in group.outputs])
    return custom_kernel(one.source, *types, tensors, values, f"{one.definition.name}: {one.statement.template}")


def _simple(value: Any) -> bool:
    """Whether a name of a match is something for a template: no set of attributes, tensor or function."""
    if isinstance(value, tuple):
        return all(map(_simple, value))
    return isinstance(value, int | float | str | Fraction | DType | Scalar)


__all__ = ["Templates", "Written"]
