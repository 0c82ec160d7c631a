"""Kernels that libraries wrote: where lowerings with a template fit in a graph, and the texts that they make of a group.

A template is a variant of the kernel of the nodes that its lowering names. What the kernel means are these nodes: a template that is
missing, makes no text, does not compile or gives other numbers is left out, and a note says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dslc.codegen.custom import Named, NotRendered, custom_kernel
from dslc.codegen.text import KernelText, NotGenerated
from dslc.errors import DslcError
from dslc.fuse.groups import Group, Neighbours
from dslc.ir.dtype import DType
from dslc.ir.graph import Graph, Node
from dslc.ir.scalar import Scalar
from dslc.match import CompiledRule, GraphIndex, Match, compile_lowering, find_matches
from dslc.match.guards import environment
from dslc.semantics.definitions import LoweringDef
from dslc.semantics.env import EvalError, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.semantics.trust import NoTemplate, template_of, template_text, trusted
from dslc.syntax import tree as t

#: the device whose templates these are, and places of one lowering that are looked at in a graph
DEVICE, PLACES = "cpu", 1000


@dataclass(frozen=True, slots=True)
class Written:
    """A kernel that a lowering's template wrote."""

    lowering: str
    text: KernelText


@dataclass(frozen=True, slots=True)
class _Template:
    definition: LoweringDef
    statement: t.RenderTemplate
    source: str
    rules: tuple[CompiledRule, ...]


class Templates:
    """The templates of the lowerings on the CPU of libraries that are trusted. `notes` say which are left out, and why."""

    def __init__(self, rules: Rules, trust: Sequence[str] = ()) -> None:
        self.notes: list[str] = []
        self._found: list[_Template] = []
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
        if definition.syntax.expr is not None:
            # `dslc check` says so, too
            self.left_out(definition.name, "templates on cpu are of lowerings with `match`")
            return
        try:
            source = template_text(definition.module, statement.template)
            self._found.append(_Template(definition, statement, source, compile_lowering(rules, definition)))
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

    def texts(self, group: Graph) -> Iterator[Written]:
        """What the lowerings that take a group as a whole make of it."""
        index = GraphIndex(group) if self._found else None
        for one in self._found:
            assert index is not None
            match = next((match for rule in one.rules for match in find_matches(rule, index) if _whole(match, group)), None)
            if match is None:
                continue
            try:
                yield Written(one.definition.name, _text(one, match, group))
            except (NotRendered, NotGenerated, Mismatch, EvalError, Unbound, DslcError) as problem:
                self.left_out(one.definition.name, str(problem))


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


def _text(one: _Template, match: Match, group: Graph) -> KernelText:
    declared = [param.name for param in one.definition.syntax.params]
    given = match.state.values
    names = [*(name for name in declared if name in given), *sorted(set(given) - set(declared))]
    at = {value: k for k, value in enumerate(group.inputs)}
    tensors = [Named(name, at[given[name]]) for name in names]
    where = {value: k for k, value in enumerate(group.outputs)}
    tensors += [Named(name, where[value], True) for name, value in match.roots]
    env = environment(match.rule, match.state, match.names)
    values = {name: value for name, value in {**match.names, **match.choice}.items() if _simple(value)}
    values |= {entry.name: evaluate(entry.value, env) for entry in one.statement.attrs}
    title = f"{one.definition.name}: {one.statement.template}"
    types = ([value.type for value in group.inputs], [value.type for value in group.outputs])
    return custom_kernel(one.source, *types, tensors, values, title)


def _simple(value: Any) -> bool:
    """Whether a name of a match is something for a template: no set of attributes, tensor or function."""
    if isinstance(value, tuple):
        return all(map(_simple, value))
    return isinstance(value, int | float | str | Fraction | DType | Scalar)


__all__ = ["Templates", "Written"]
