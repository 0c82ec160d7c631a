"""Lowerings, which a target runs as one: the `match` of each, found in a graph or in a region of one, by the one matcher."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cached_property

from dslc.ir.graph import Call, Graph, Node, Value, Values, with_args
from dslc.match import CompiledRule, GraphIndex, Match, compile_lowering, find_matches
from dslc.match.pattern import Result
from dslc.match.recipe import leaf
from dslc.records import record
from dslc.semantics.library import Rules
from dslc.syntax import tree as t

#: the arguments of a node (a rewrite that is only tried changes them without building new nodes)
Arguments = Callable[[Node], Values]
#: pairs of operators of which the first one reads the second one's result
Edges = frozenset[tuple[str, str]]


PLACES = 100_000  #: places of one lowering that are looked at in a graph


@record
class Lowered:
    """Nodes that one lowering runs, producers first; what others use of them comes out of the last.

    `lowering` is its name, empty for a node that none takes, and which runs by itself.
    """

    lowering: str
    nodes: tuple[Node, ...]


class Lowerings:
    """The lowerings of some devices that take a piece of graph."""

    def __init__(self, devices: Iterable[str], *libraries: Rules) -> None:
        """`libraries`: where lowerings are looked for; one that two of them have counts once."""
        known = frozenset(devices)
        found: dict[str, tuple[CompiledRule, ...]] = {}
        free: set[str] = set()
        text = hashlib.sha256()
        for rules in libraries:
            for name, definition in rules.lowerings.items():
                if definition.syntax.device in known and name not in found:
                    found[name] = compile_lowering(rules, definition)
                    text.update(f"{name}\0{definition.span.text}\0".encode())
                    if _costs_nothing(definition.syntax):
                        free.add(name)
        #: equal where the texts of all are
        self.digest = text.hexdigest()
        every = [rule for rules in found.values() for rule in rules]
        self._free = [rule for rule in every if rule.name in free]
        # those that take most first
        self._fused = sorted(
            (rule for rule in every if len(rule.left.sites) > 1), key=lambda rule: -len(rule.left.sites)
        )

    def __len__(self) -> int:
        return len(self._fused) + len(self._free)

    @cached_property
    def _by_operator(self) -> Mapping[str, list[tuple[Edges, int]]]:
        """For each operator the edges of lowerings of several nodes with it, and how far these lie apart at most."""
        out: dict[str, dict[tuple[Edges, int], None]] = {}
        for rule, wanted in self._wanted:
            for operator in {one for edge in wanted for one in edge}:
                out.setdefault(operator, {})[wanted, len(rule.left.sites) - 1] = None
        return {operator: list(found) for operator, found in out.items()}

    @cached_property
    def _edges_of_all(self) -> tuple[Edges, int]:
        """The edges of all lowerings of several nodes, and how far nodes of one lie apart at most."""
        edges = frozenset(edge for _, wanted in self._wanted for edge in wanted)
        return edges, max((len(rule.left.sites) - 1 for rule in self._fused), default=0)

    @cached_property
    def _wanted(self) -> list[tuple[CompiledRule, Edges]]:
        return [(rule, _edges(rule)) for rule in self._fused]

    def passes_on(self, node: Call) -> bool:
        """Return whether a node costs nothing: a lowering says so, which moves no bytes and computes nothing."""
        rules = [rule for rule in self._free if rule.left.sites[0].operator == node.op]
        if not rules:
            return False
        index = GraphIndex(Graph((), node.values))
        return any(any(True for _ in find_matches(rule, index, limit=1)) for rule in rules)

    def fused(self, nodes: Sequence[Node], args_of: Arguments, uses: Callable[[Value], int]) -> list[Lowered]:
        """Pieces of several nodes that run as one, no two of which share a node; of those that do, the larger one is taken.

        Args:
            nodes: producers first.
            args_of: what each node reads; another node than its own where a rewrite is only tried.
            uses: how often a value is used, in the whole graph: what comes out in between is used within the piece only.
        """
        present = _edges_among(nodes, args_of)
        rules = [rule for rule, wanted in self._wanted if wanted <= present]
        if not rules:
            return []
        region = _Region(nodes, args_of)
        found: list[tuple[int, int, CompiledRule, tuple[Node, ...]]] = []
        for rule in rules:
            for match in find_matches(rule, region.index, limit=PLACES):
                piece = region.piece(match)
                if len(piece) > 1 and _closed(piece, args_of, uses):
                    found.append((-len(piece), region.place[piece[-1]], rule, piece))
        taken: set[Node] = set()
        out: list[Lowered] = []
        for _, _, rule, piece in sorted(found, key=lambda one: one[:2]):
            if taken.isdisjoint(piece):
                taken.update(piece)
                out.append(Lowered(rule.name, piece))
        return out

    def near(
        self, changed: Iterable[Node], args_of: Arguments, users_of: Callable[[Value], Iterable[Node]]
    ) -> dict[Node, None]:
        """The nodes with which changed ones may run as one, them included where there are any."""
        out: dict[Node, None] = {}
        done: set[tuple[Node, Edges]] = set()
        calls = [node for node in changed if isinstance(node, Call) and node.op in self._by_operator]
        if not calls:
            return out
        every, far = self._edges_of_all
        _, present = _flood(calls, every, far, args_of, users_of)
        for node in calls:
            for wanted, steps in self._by_operator[node.op]:
                if (node, wanted) in done or not wanted <= present:
                    continue
                done.add((node, wanted))
                around, met = _flood([node], wanted, steps, args_of, users_of)
                if wanted <= met:
                    out.update((one, None) for one in around if not one.constant)
        return out


def _edges(rule: CompiledRule) -> Edges:
    """Producer and consumer pairs in a lowering's pattern. Chains of one associative operator are one vertex of it."""
    sites = {site.id: site for site in rule.left.sites}
    return frozenset(
        (site.operator or "", sites[arg.site].operator or "")
        for site in rule.left.sites
        for arg in site.args
        if isinstance(arg, Result)
    )


def _edges_among(nodes: Sequence[Node], args_of: Arguments) -> set[tuple[str, str]]:
    """The edges of some nodes, of what is computed from weights below them too."""
    out: set[tuple[str, str]] = set()
    waiting = [node for node in nodes if isinstance(node, Call)]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        for arg in node.args if node.constant else args_of(node):
            if isinstance(arg.node, Call):
                out.add((node.op, arg.node.op))
                if arg.constant and arg.node not in seen:
                    seen.add(arg.node)
                    waiting.append(arg.node)
    return out


def _flood(
    start: Sequence[Call], wanted: Edges, steps: int, args_of: Arguments, users_of: Callable[[Value], Iterable[Node]]
) -> tuple[dict[Call, None], set[tuple[str, str]]]:
    """Nodes within so many steps of some nodes along such edges, or those of one operator; and the edges met."""
    out: dict[Call, None] = dict.fromkeys(start)
    met: set[tuple[str, str]] = set()
    level = list(start)
    for _ in range(steps):
        beside: list[Call] = []
        for node in level:
            read: list[tuple[Node, Node]] = [
                (node, arg.node) for arg in (node.args if node.constant else args_of(node))
            ]
            read += [(user, node) for value in node.values for user in users_of(value)]
            for user, below in read:
                if isinstance(user, Call) and isinstance(below, Call):
                    edge = (user.op, below.op)
                    if edge in wanted or user.op == below.op:
                        met.add(edge)
                        beside += (user, below)
        level = [one for one in dict.fromkeys(beside) if one not in out]
        if not level:
            break
        out.update(dict.fromkeys(level))
    return out, met


def _closed(piece: Sequence[Node], args_of: Arguments, uses: Callable[[Value], int]) -> bool:
    """Return whether nothing but the last node's results is used outside."""
    within = Counter(arg for node in piece for arg in args_of(node))
    return all(uses(value) == within[value] for node in piece[:-1] for value in node.values)


class _Region:
    """Some nodes of a graph as a graph of their own, in which leaves stand for whatever comes from outside."""

    def __init__(self, nodes: Sequence[Node], args_of: Arguments) -> None:
        #: the node that each of the region's own stands for, and where that stands
        self._origin: dict[Node, Node] = {}
        self.place = {node: k for k, node in enumerate(nodes)}
        new: dict[Value, Value] = {}
        read: set[Value] = set()
        for node in nodes:
            args = args_of(node)
            for arg in args:
                if arg not in new:
                    new[arg] = arg if arg.constant else leaf(len(new), arg)
            built = with_args(node, tuple(new[arg] for arg in args))
            new.update(zip(node.values, built, strict=True))
            read.update(built[0].node.args)
            self._origin[built[0].node] = node
        self._known = frozenset(new.values())
        outputs = [value for node in self._origin for value in node.values if value not in read]
        self.index = GraphIndex(Graph((), tuple(outputs)))

    def piece(self, match: Match) -> tuple[Node, ...]:
        """Nodes between the tensors of a match and its result, producers first; see `matched_nodes`."""
        if any(end not in self._known and not end.constant for end in match.state.values.values()):
            # a part of a sum that nothing computes
            return ()
        inside = matched_nodes(match, self._origin)
        return tuple(sorted((self._origin[node] for node in inside), key=self.place.__getitem__))


def matched_nodes(match: Match, known: Container[Node]) -> frozenset[Node]:
    """The nodes between the tensors of a match and its results; none where one is not known.

    Empty, too, where a part of a longer associative call was matched, which no runtime takes apart.
    """
    if match.state.wraps:
        return frozenset()
    ends = set(match.state.values.values())
    inside: set[Node] = set()
    stack = [value.node for _, value in match.roots]
    while stack:
        node = stack.pop()
        if node not in known:
            return frozenset()
        if node not in inside:
            inside.add(node)
            stack += [arg.node for arg in node.args if arg not in ends and not arg.constant]
    return frozenset(inside)


def _costs_nothing(syntax: t.Lowering) -> bool:
    """Return whether a lowering of one node says `cost flops = 0, bytes = 0`."""
    costs = [statement for statement in syntax.statements if isinstance(statement, t.Cost)]
    entries = {entry.name: entry.value for cost in costs for entry in cost.entries}
    return {"flops", "bytes"} <= set(entries) and all(
        isinstance(value, t.Int) and value.value == 0 for value in entries.values()
    )
