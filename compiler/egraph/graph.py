"""An e-graph: classes of equal values, where e-nodes are ordinary nodes over the classes' values.

A class is known by a number and stands in terms as a value without a producer: a hole of that number, or a constant for what it is.
So a term over classes is a term, and the matcher, right sides and the interpreter take it as it is. All that is kept for a class is a
tuple that is replaced and never changed, so a clone is a few copied dictionaries.

Numbers are never used twice. A number is of a class as long as it leads it; `find` gives the leader of any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dslc.ir.graph import Constant, Graph, Input, Node, Value, Values, rebuild, with_args
from dslc.ir.holes import hole


class NodeEntry(NamedTuple):
    """An e-node's place: the numbers that its results were given (any numbers of their classes), and the classes that it reads.

    `unit` is a number of the node itself where it has several results: what they share. Else -1.
    """

    outs: tuple[int, ...]
    kids: tuple[int, ...]
    unit: int


class Union(NamedTuple):
    """Two numbers that were made one class, and why: what was applied there, None where it follows from other unions."""

    one: int
    other: int
    reason: object | None


class EGraph:
    """Classes of equal values. `add` and `union` change it, `rebuild` closes it under congruence; `clone` is another one like it."""

    __slots__ = (
        "_changes", "_constants", "_holes", "_leader", "_work", "inputs", "made", "members", "memo", "roots", "unions", "units",
        "users", "values",
    )  # fmt: skip

    def __init__(self) -> None:
        self._leader: list[int] = []
        # a hole says its number, in whatever clone it is: one dictionary for all of them
        self._holes: dict[Node, int] = {}
        self._constants: dict[Node, int] = {}
        self._work: list[int] = []
        self._changes: list[int] = []
        #: what stands for a class in terms
        self.values: dict[int, Value] = {}
        #: where each number came from: a node over the classes of that time, and which of its results
        self.made: list[tuple[Node, int] | None] = []
        self.memo: dict[Node, NodeEntry] = {}
        self.members: dict[int, tuple[Node, ...]] = {}
        self.users: dict[int, tuple[Node, ...]] = {}
        #: nodes with several results, by their units
        self.units: dict[int, Node] = {}
        #: every union, in order: a forest over the numbers
        self.unions: list[Union] = []
        self.inputs: Values = ()
        self.roots: tuple[int, ...] = ()

    @classmethod
    def of(cls, graph: Graph) -> EGraph:
        """The e-graph of one graph; `roots` are its outputs."""
        out = cls()
        out.inputs = graph.inputs
        values = rebuild(graph.outputs, lambda node, args: out.values_of(out._enter(out._with(node, args))))
        out.roots = tuple([out.number(value) for value in values])
        return out

    def clone(self) -> EGraph:
        """Another one with the same classes. What either adds, the other does not see."""
        new = EGraph.__new__(EGraph)
        new._leader = self._leader[:]
        new._holes = self._holes
        new._constants = self._constants.copy()
        new._work = self._work[:]
        # what was not asked for yet is the clone's, too
        new._changes = self._changes[:]
        new.values = self.values.copy()
        new.made = self.made[:]
        new.memo = self.memo.copy()
        new.members = self.members.copy()
        new.users = self.users.copy()
        new.unions = self.unions[:]
        new.units = self.units.copy()
        new.inputs, new.roots = self.inputs, self.roots
        return new

    def __len__(self) -> int:
        """Count the e-nodes, inputs and constants included."""
        return len(self.memo)

    # ---- classes -----------------------------------------------------------------------------------------------

    def find(self, number: int) -> int:
        """The class that a number belongs to."""
        leader = self._leader
        while leader[number] != number:
            number = leader[number]
        return number

    def class_of(self, value: Value) -> int | None:
        """The class that a value stands for in terms, None for other values."""
        number = self._number_of(value.node)
        return None if number is None else self.find(number)

    def _number_of(self, node: Node) -> int | None:
        found = self._holes.get(node)
        return self._constants.get(node) if found is None else found

    def number(self, value: Value) -> int:
        """The number that a value has, whatever class that belongs to now.

        Raises:
            KeyError: it is none of what stands for classes.
        """
        found = self._number_of(value.node)
        if found is None:
            raise KeyError(value)
        return found

    def value(self, number: int) -> Value:
        """The value that stands for a class in terms."""
        return self.values[self.find(number)]

    def values_of(self, numbers: Iterable[int]) -> Values:
        return tuple([self.value(number) for number in numbers])

    def term(self, number: int) -> Value:
        """A term for a number without classes: as it was made."""
        made = self.made[number]
        assert made is not None
        node, index = made
        return (
            with_args(node, tuple([self.term(self.number(arg)) for arg in node.args]))[index]
            if node.args
            else Value(node, index)
        )

    def constant(self, number: int) -> bool:
        """Return whether a class (or the node of a unit) depends on weights only."""
        value = self.values.get(number)
        return value is not None and value.node.constant

    def changes(self) -> list[int]:
        """The numbers whose e-nodes changed, or that became another's, since this was last asked, here or before the clone."""
        found, self._changes = self._changes, []
        return found

    # ---- terms -------------------------------------------------------------------------------------------------

    def add(self, value: Value) -> Value:
        """A term over classes and constants, as the value of its class.

        Raises:
            ValueError: an input that is no class.
        """
        known = self._number_of(value.node)
        if known is not None:
            return self.value(known)
        return rebuild((value,), self.node)[0]

    def node(self, like: Node, args: Sequence[Value]) -> Values:
        """The classes of the results of a node as `like`, over arguments that are classes or terms over them."""
        return self.values_of(self.entered(like, args))

    def entered(self, like: Node, args: Sequence[Value]) -> tuple[int, ...]:
        """As `node`: the numbers of the results, which stay those of this very node."""
        holes, values, leader = self._holes, self.values, self._leader
        if not args:
            known = self._number_of(like)
            if known is not None:
                return (known,)
            if isinstance(like, Input):
                raise ValueError(f"`{like.name}` is no class of the e-graph")
        over: list[Value] = []
        for arg in args:
            number = holes.get(arg.node)
            if number is None:
                over.append(self.add(arg))
                continue
            while leader[number] != number:
                number = leader[number]
            over.append(values[number])
        return self._enter(self._with(like, over))

    @staticmethod
    def _with(like: Node, args: Sequence[Value]) -> Node:
        return with_args(like, tuple(args))[0].node if args else like

    def _enter(self, node: Node) -> tuple[int, ...]:
        """The numbers of the results of a node over classes."""
        memo = self.memo
        entry = memo.get(node)
        if entry is not None:
            return entry.outs
        kids = tuple([self.find(self.number(arg)) for arg in node.args])
        outs: list[int] = []
        for index, type in enumerate(node.types):
            number = self._number((node, index))
            if isinstance(node, Constant):
                self.values[number] = Value(node)
                self._constants[node] = number
            else:
                self.values[number] = value = hole(number, type, node.constant)
                self._holes[value.node] = number
            self.members[number] = (node,)
            self.users[number] = ()
            outs.append(number)
        unit = -1
        if len(outs) > 1:
            unit = self._number(None)
            self.units[unit] = node
        for kid in dict.fromkeys(kids):
            self.users[kid] += (node,)
        memo[node] = NodeEntry(tuple(outs), kids, unit)
        return memo[node].outs

    def _number(self, made: tuple[Node, int] | None) -> int:
        number = len(self._leader)
        self._leader.append(number)
        self.made.append(made)
        self._changes.append(number)
        return number

    # ---- unions ------------------------------------------------------------------------------------------------

    def union(self, one: int, other: int, reason: object | None) -> bool:
        """Makes two classes one; whether they were two. `rebuild` has to follow before anything is asked.

        Raises:
            ValueError: values of different types.
        """
        keep, drop = self.find(one), self.find(other)
        if keep == drop:
            return False
        a, b = self.values[keep], self.values[drop]
        if a.type_or_none != b.type_or_none:
            raise ValueError(f"{a.type_or_none} and {b.type_or_none} are no types of equal values")
        if self._weight(drop, b) > self._weight(keep, a):
            keep, drop = drop, keep
        self._leader[drop] = keep
        self.unions.append(Union(one, other, reason))
        del self.values[drop]
        here, more = self.members[keep], self.members.pop(drop)
        self.members[keep] = here + tuple([node for node in more if len(node.types) == 1 or node not in here])
        self._work.append(drop)
        self._changes += (keep, drop)
        return True

    def _weight(self, number: int, value: Value) -> tuple[int, int]:
        """The class of two that goes on: a constant stays what it is, then what depends on weights only, then what is read more."""
        node = value.node
        return (2 if isinstance(node, Constant) else 1 if node.constant else 0, len(self.users[number]))

    def rebuild(self) -> None:
        """Makes e-nodes that read merged classes anew; those that become equal are merged in turn."""
        while self._work:
            for node in self.users.pop(self._work.pop()):
                self._renew(node)

    def _renew(self, node: Node) -> None:
        memo, users, members = self.memo, self.users, self.members
        entry = memo.pop(node, None)
        if entry is None:
            # it read two merged classes, and came with the other one
            return
        kids = tuple([self.find(kid) for kid in entry.kids])
        new = self._with(node, self.values_of(kids))
        for kid in dict.fromkeys(entry.kids):
            readers = users.get(kid)
            if readers is not None:
                users[kid] = tuple([one for one in readers if one is not node])
        outs = list(dict.fromkeys([self.find(out) for out in entry.outs]))
        found = memo.get(new)
        added = () if found is not None else (new,)
        for out in outs:
            members[out] = tuple([one for one in members[out] if one is not node]) + added
        self._changes += outs
        if found is None:
            memo[new] = NodeEntry(entry.outs, kids, entry.unit)
            for kid in dict.fromkeys(kids):
                users[kid] += (new,)
            if entry.unit >= 0:
                unit = self.find(entry.unit)
                self.units[unit] = new
                self._changes.append(unit)
        else:
            if entry.unit >= 0:
                self._join(entry.unit, found.unit)
            for mine, theirs in zip(entry.outs, found.outs, strict=True):
                self.union(mine, theirs, None)
        if new.constant:
            for out in outs:
                self._fix(out)

    def _join(self, one: int, other: int) -> None:
        """The units of two equal nodes, of which only the other one stays."""
        drop, keep = self.find(one), self.find(other)
        if drop != keep:
            self._leader[drop] = keep
            del self.units[drop]
            self._changes += (drop, keep)

    def _fix(self, out: int) -> None:
        """Mark a class that turns out to depend on weights only: it stands for itself with another value."""
        old = self.value(out)
        if old.node.constant:
            return
        number = self._number(None)
        value = hole(number, old.type_or_none, True)
        self.values[number] = value
        self._holes[value.node] = number
        self.members[number] = ()
        self.users[number] = ()
        self.union(number, out, None)
