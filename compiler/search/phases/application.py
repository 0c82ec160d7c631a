"""The stage of `--apply`: rules are applied until none matches any more, and what that makes is checked like everything else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from dslc.analysis.counts import known_flops
from dslc.cost.cache import CostCache
from dslc.errors import DslcError, error
from dslc.ir.graph import Call, Graph, Node, Value, with_args
from dslc.ir.holes import hole
from dslc.ir.scalar import Scalar, Sym, walk
from dslc.match import GraphIndex, Match, find_matches
from dslc.match.apply import replacements
from dslc.match.recipe import Refused
from dslc.onnx.context import Context
from dslc.onnx.exporter import ComputedSizes
from dslc.prove.sizes import at_sizes
from dslc.records import record
from dslc.search.candidates.candidate import Candidate, disjoint, rewritten
from dslc.search.phases.reference import reference
from dslc.search.rewrites.associative_flattening import flattened
from dslc.search.runs.contenders import Contender, Unusable
from dslc.search.runs.proving import CULPRITS, passed, smaller
from dslc.search.runs.selection import AppliedRule, not_standard
from dslc.search.runs.stages import Proven, Referenced
from dslc.search.runs.state import RunState
from dslc.semantics.elaborate import expand
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules

#: why nothing is rewritten
#: why a rule is not applied
LARGER = "the graph would get no smaller there; `always` in a rule set, or --apply with its own name, applies it"


def applied_alone(proven: Proven, cache: CostCache, run: RunState) -> Contender | None:
    """As `apply`, on one input; on several where something seems to be wrong, as the input may be what is.

    Raises:
        as `apply`, and Unusable where the model does not run.
    """
    noted = list(run.notes)
    with suppress(Unusable):
        found, blamed = apply(reference(proven, cache, run, once=True), run)
        if not blamed:
            return found
    run.notes[:] = noted
    return apply(reference(proven, cache, run), run)[0]


def apply(referenced: Referenced, run: RunState) -> tuple[Contender | None, bool]:
    """Return the model without what the rules of `--apply` take away, None where that is nothing; and whether some rule was blamed.

    A rule that changes the outputs, or a rewrite of which is not proved here where it must be, is named and left out.

    Raises:
        DslcError: E0915 where rules go on for ever.
        Unusable: import and export alone change what the model computes.
        TimeUp: there was no time to check anything.
    """
    task, chosen = referenced.task, referenced.proven.applied
    start = run.start = Candidate(task.imported.graph, 0.0)
    for turn in range(CULPRITS):
        run.phase("applying rules")
        fixed = applied(start, chosen, task.rules, task.imported.context)
        if fixed.candidate is start:
            break
        found = passed(referenced, run, start, fixed.candidate)
        if not isinstance(found, list):
            run.notes += [
                f"{name} matches at {fixed.larger[name]} more places: {LARGER}" for name in not_standard(fixed.larger)
            ]
            return found, turn > 0
        run.warn(*(f"{one.rule} was left out: {one.problem}" for one in found))
        names = {one.rule for one in found}
        chosen = tuple([one for one in chosen if one.rule.name not in names])
    run.notes += [
        f"{name} matches at {count} places: {LARGER}" for name, count in fixed.larger.items() if not_standard([name])
    ]
    return smaller(referenced, run, start), turn > 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds at which rules that are `always` applied are taken to go on for ever.

    They are such a multiple of the nodes that there were, and some more, or so many passes of a rule through the graph; or one rule
    lets it grow in so many more passes in a row than there were nodes: then it applies to what it made itself.
    """

    growth: int = 4
    more: int = 1000
    passes: int = 2000
    again: int = 50


@record
class FixedPoint:
    """A graph in which no rule applies any more.

    `larger` are the rules that match still, each with the number of places, and that would leave a graph which is no smaller.
    """

    candidate: Candidate
    larger: Mapping[str, int]


def applied(
    start: Candidate, chosen: Sequence[AppliedRule], rules: Rules, context: Context, bounds: Bounds = Bounds()
) -> FixedPoint:
    """Applies rules until none applies any more; each step is one rule at all places that share no node.

    A rule that is not `always` applied is applied where it leaves fewer nodes (those that are written for sizes count), or as many and
    fewer operations, bytes or axes. So what only such rules do comes to an end.

    Raises:
        DslcError: E0915 where rules that are `always` applied lead back to an earlier graph, or go on for ever.
    """
    sizes = GraphSizes(rules), ComputedSizes(rules, context)
    most = bounds.growth * len(start.graph.nodes()) + bounds.more
    state, history = _State(start, sizes), [""]
    seen = {hash(start.graph.outputs): 0}
    while True:
        before = state
        for one in chosen:
            first, row = len(state.users.nodes), len(history)
            while graph := _everywhere(state, one, rules):
                state = _State(graph, sizes)
                history.append(one.rule.name)
                outputs = hash(state.graph.outputs)
                if outputs in seen:
                    raise _endless(history[seen[outputs] + 1 :], "lead back to a graph that was there before")
                seen[outputs] = len(history) - 1
                nodes, turns = len(state.users.nodes), len(history) - row
                if nodes > most or len(history) > bounds.passes or (nodes > first and turns > first + bounds.again):
                    raise _endless(history[-len(chosen) :], "go on for ever")
        if state is before:
            return FixedPoint(state.candidate, state.larger)


def _endless(history: Sequence[str], what: str) -> Exception:
    names = [name for name, after in zip(history, [*history[1:], ""], strict=True) if name != after]
    path = " -> ".join(dict.fromkeys(names))
    hint = (
        "leave one out (--disable), or `include` it in a rule set: it is then applied only where the graph gets smaller"
    )
    return error("E0915", f"the rules of --apply {what}: {path}", hint=hint)


class _State:
    """A graph with what matching asks about it, each built once."""

    def __init__(self, candidate: Candidate, sizes: tuple[GraphSizes, ComputedSizes]) -> None:
        self.candidate, self.graph = candidate, candidate.graph
        self.index = GraphIndex(self.graph)
        self.users = Users(self.graph, *sizes)
        self.larger: dict[str, int] = {}


def _everywhere(state: _State, one: AppliedRule, rules: Rules) -> Candidate | None:
    """One rule at all places that share no node; None where there is none."""
    taken: set[Node] = set()
    chosen: list[dict[Value, Value]] = []
    rest: list[tuple[set[Node], dict[Value, Value]]] = []
    for match in find_matches(one.rule, state.index):
        roots = {value.node for value in match.replaced}
        nodes = {*match.state.nodes.values(), *roots}
        if nodes & taken:
            continue
        new = _replaced(match)
        if new and (one.always or state.users.lowers(new)):
            taken |= nodes
            chosen.append(new)
        elif new:
            rest.append((nodes - roots, new))
    for together in _sharing(rest, taken):
        if state.users.lowers(together):
            chosen.append(together)
    if not chosen:
        state.larger |= {one.rule.name: len(rest)} if rest else {}
        return None
    before = state.candidate
    graph: Graph = flattened(rules, rewritten(before.graph, disjoint(chosen)))
    if graph.outputs == before.graph.outputs:
        return None
    return Candidate(graph, before.cost, before, one.rule.name, len(chosen))


def _sharing(rest: Sequence[tuple[set[Node], dict[Value, Value]]], taken: set[Node]) -> Iterator[dict[Value, Value]]:
    """Replacements that share what is inside their matches, where several do: what none of them leaves unread all of them may."""
    by_inside: dict[Node, dict[Value, Value]] = {}
    for inside, new in rest:
        for node in inside:
            together = by_inside.setdefault(node, {})
            if not together.keys() & new.keys():
                together.update(new)
    used = set(taken)
    for node, together in by_inside.items():
        nodes = {node, *(value.node for value in together)}
        if len(together) > 1 and not nodes & used:
            used |= nodes
            yield together


def _replaced(match: Match) -> dict[Value, Value]:
    """Return what a match replaces by what, nothing where it cannot or where that is there already."""
    try:
        new = {old: value for old, value in replacements(match).items() if old != value}
    except Refused:
        return {}
    if len(new) > 1 and match.index.depends(new.values(), new):
        return {}
    return new


UNKNOWN = 12  #: what stands for an unknown size where operations and bytes are counted


class GraphSizes:
    """Operations, bytes and axes of nodes; of nodes that do the same counted once."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._known: dict[Any, tuple[float, int, int]] = {}

    def of(self, node: Node) -> tuple[float, int, int]:
        types = tuple([arg.type if arg.known else None for arg in node.args])
        key = (node.head if isinstance(node, Call) else node, types)
        if key not in self._known:
            self._known[key] = self._counted(node)
        return self._known[key]

    def _counted(self, node: Node) -> tuple[float, int, int]:
        known = [value.type for value in (*node.args, *node.values) if value.known]
        axes = [size for type in known for size in type.shape]
        bytes = sum(
            prod(size if isinstance(size, int) else UNKNOWN for size in type.shape) * type.dtype.bytes for type in known
        )
        operations = 0.0
        if isinstance(node, Call) and all(arg.known for arg in node.args):
            open_sizes = (part for size in axes if isinstance(size, Scalar) for part in walk(size))
            names = {part.name: UNKNOWN for part in open_sizes if isinstance(part, Sym)}
            alone = with_args(node, tuple([hole(k, arg.type) for k, arg in enumerate(node.args)]))
            with suppress(Mismatch, EvalError, DslcError):
                operations = known_flops(at_sizes(expand(self._rules, tuple(alone)), names)) or 0.0
        return operations, bytes, len(axes)


class Users:
    """Users of the values of a graph: which nodes a replacement leaves without a reader."""

    def __init__(self, graph: Graph, sizes: GraphSizes, computed: ComputedSizes) -> None:
        self._sizes, self._computed = sizes, computed
        self.nodes = graph.nodes()
        self._inside = frozenset(self.nodes)
        self._outputs = graph.outputs

    @cached_property
    def _uses(self) -> Counter[Value]:
        uses = Counter(self._outputs)
        for node in self.nodes:
            uses.update(set(node.args))
        return uses

    def lowers(self, new: Mapping[Value, Value]) -> bool:
        """Return whether replacements make the graph smaller: fewer nodes, or as many and fewer operations, or bytes, or axes."""
        gone, made = self._difference(new)
        fewer = len(gone) - len(made) + self._fewer_computed(gone, made)
        if fewer:
            return fewer > 0
        before, after = (tuple(map(sum, zip(*map(self._sizes.of, nodes), strict=True))) for nodes in (gone, made))
        return after < before

    @cached_property
    def _written(self) -> Counter[Node]:
        """Nodes that compute sizes, each with the number of nodes that need it."""
        return Counter(one for node in self.nodes for one in self._computed.of(node))

    def _fewer_computed(self, gone: set[Node], made: set[Node]) -> int:
        """Count the size nodes that a rewrite saves."""
        less, more = (Counter(one for node in nodes for one in self._computed.of(node)) for nodes in (gone, made))
        if not less and not more:
            return 0
        after = self._written - less + more
        return len(self._written.keys() - self._inside) - len(after.keys() - self._inside)

    def _difference(self, new: Mapping[Value, Value]) -> tuple[set[Node], set[Node]]:
        """The nodes that are gone and those that are new, without what weights alone need."""
        made: set[Node] = set()
        left: dict[Value, int] = dict.fromkeys(new, 0)

        def read(value: Value, times: int) -> None:
            left[value] = left.get(value, self._uses[value]) + times

        stack = [(target, self._uses[old]) for old, target in new.items()]
        while stack:
            value, times = stack.pop()
            node = value.node
            if node in self._inside:
                read(value, times)
            elif not node.constant and node not in made:
                made.add(node)
                stack.extend((arg, 1) for arg in set(node.args))
        gone: set[Node] = set()
        ended = [old.node for old in new]
        while ended:
            node = ended.pop()
            if node in gone or node.constant or not node.args:
                continue
            if not any(left.get(value, self._uses[value]) for value in node.values):
                gone.add(node)
                for arg in set(node.args):
                    read(arg, -1)
                    ended.append(arg.node)
        return gone, made
