"""What a target runs as one: the `match` of its lowerings, found in a graph or in a region of one, by the one matcher."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dslc.ir.graph import Call, Graph, Node, Value, with_args
from dslc.match import CompiledRule, GraphIndex, Match, compile_lowering, find_matches
from dslc.match.recipe import leaf
from dslc.semantics.library import Rules
from dslc.syntax import tree as t

#: the arguments of a node (a rewrite that is only tried changes them without building new nodes)
Arguments = Callable[[Node], tuple[Value, ...]]
#: so many places of one lowering are looked at in a graph
_PLACES = 100_000


@dataclass(frozen=True, slots=True)
class Lowered:
    """Nodes that one lowering runs, producers first; what others use of them comes out of the last. `lowering` is its name, empty for
    a node that none takes, and which runs by itself."""

    lowering: str
    nodes: tuple[Node, ...]


class Lowerings:
    """The lowerings of some devices that take a piece of graph."""

    def __init__(self, devices: Iterable[str], *libraries: Rules) -> None:
        """`libraries`: where lowerings are looked for; one that two of them have counts once."""
        known = frozenset(devices)
        found: dict[str, tuple[CompiledRule, ...]] = {}
        free: set[str] = set()
        for rules in libraries:
            for name, definition in rules.lowerings.items():
                if definition.syntax.device in known and name not in found:
                    found[name] = compile_lowering(rules, definition)
                    if _costs_nothing(definition.syntax):
                        free.add(name)
        every = [rule for rules in found.values() for rule in rules]
        self._free = [rule for rule in every if rule.name in free]
        # those that take most first
        self._fused = sorted((rule for rule in every if len(rule.left.sites) > 1), key=lambda rule: -len(rule.left.sites))

    def __len__(self) -> int:
        return len(self._fused) + len(self._free)

    @cached_property
    def _by_operator(self) -> Mapping[str, list[tuple[frozenset[str], int]]]:
        """For each operator what lowerings of several nodes with it need, and how far these lie apart at most."""
        out: dict[str, dict[tuple[frozenset[str], int], None]] = {}
        for rule in self._fused:
            wanted = _operators(rule)
            for operator in wanted:
                out.setdefault(operator, {})[wanted, len(rule.left.sites) - 1] = None
        return {operator: list(found) for operator, found in out.items()}

    def passes_on(self, node: Call) -> bool:
        """Whether a node costs nothing: a lowering says so, which moves no bytes and computes nothing."""
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
        present = {node.op for node in nodes if isinstance(node, Call)}
        rules = [rule for rule in self._fused if _operators(rule) <= present]
        if not rules:
            return []
        region = _Region(nodes, args_of)
        found: list[tuple[int, int, CompiledRule, tuple[Node, ...]]] = []
        for rule in rules:
            for match in find_matches(rule, region.index, limit=_PLACES):
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
        done: set[tuple[Node, frozenset[str]]] = set()
        for node in changed:
            if not isinstance(node, Call):
                continue
            for wanted, steps in self._by_operator.get(node.op, ()):
                if (node, wanted) in done:
                    continue
                done.add((node, wanted))
                around = _flood(node, wanted, steps, args_of, users_of)
                if wanted <= {one.op for one in around}:
                    out.update(dict.fromkeys(around))
        return out


def _operators(rule: CompiledRule) -> frozenset[str]:
    """What a piece needs; weights aside, for what is computed from those only is no part of it."""
    return frozenset(site.operator for site in rule.left.sites if site.operator is not None)


def _flood(
    start: Call, wanted: frozenset[str], steps: int, args_of: Arguments, users_of: Callable[[Value], Iterable[Node]]
) -> dict[Call, None]:
    """What is connected to a node through such operators, in so many steps."""
    out = {start: None}
    level: list[Call] = [start]
    for _ in range(steps):
        beside: list[Node] = []
        for node in level:
            beside += [arg.node for arg in args_of(node) if not arg.constant]
            beside += [user for value in node.values for user in users_of(value)]
        level = [one for one in dict.fromkeys(beside) if isinstance(one, Call) and one.op in wanted and one not in out]
        if not level:
            break
        out.update(dict.fromkeys(level))
    return out


def _closed(piece: Sequence[Node], args_of: Arguments, uses: Callable[[Value], int]) -> bool:
    """Whether nothing but the last node's results is used outside."""
    within: dict[Value, int] = {}
    for node in piece:
        for arg in args_of(node):
            within[arg] = within.get(arg, 0) + 1
    return all(uses(value) == within.get(value, 0) for node in piece[:-1] for value in node.values)


class _Region:
    """Some nodes of a graph as a graph of their own, in which leaves stand for whatever comes from outside."""

    def __init__(self, nodes: Sequence[Node], args_of: Arguments) -> None:
        #: the node that each of the region's own stands for, and where that stands
        self._origin: dict[Node, Node] = {}
        self.place = {node: k for k, node in enumerate(nodes)}
        self._args_of = args_of
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
        outputs = [value for node in self._origin for value in node.values if value not in read]
        self.index = GraphIndex(Graph((), tuple(outputs)))

    def piece(self, match: Match) -> tuple[Node, ...]:
        """What stands between the tensors of a match and its result, producers first; nothing where a part of a longer associative
        call was matched, which no runtime takes apart."""
        if match.state.wraps:
            return ()
        ends = set(match.state.values.values())
        ((_, root),) = match.roots
        inside: dict[Node, None] = {}
        stack = [root.node]
        while stack:
            node = stack.pop()
            if node in inside:
                continue
            inside[node] = None
            stack += [arg.node for arg in node.args if arg not in ends and not arg.constant]
        if not all(node in self._origin for node in inside):
            return ()
        return tuple(sorted((self._origin[node] for node in inside), key=self.place.__getitem__))


def _costs_nothing(syntax: t.Lowering) -> bool:
    """Whether a lowering of one node says `cost flops = 0, bytes = 0`."""
    entries = dict(_costs(syntax))
    return {"flops", "bytes"} <= set(entries) and all(_zero(value) for value in entries.values())


def _costs(syntax: t.Lowering) -> Iterator[tuple[str, t.Expr]]:
    for statement in syntax.statements:
        if isinstance(statement, t.Cost):
            yield from ((entry.name, entry.value) for entry in statement.entries)


def _zero(value: t.Expr) -> bool:
    return isinstance(value, t.Int) and value.value == 0
