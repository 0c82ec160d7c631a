"""Two programs as expressions: one per output and side (inline), in mixed radix (radix), over sizes that stay unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

from dslc.analysis.conditions import Case, unknowns
from dslc.analysis.poly import atom
from dslc.ir.graph import Value, nodes_of
from dslc.ir.scalar import Iter, Scalar, Sym, apply, as_scalar, rebuild
from dslc.prove.exact.equations import facts, named, solved
from dslc.prove.exact.inline import Inliner
from dslc.prove.exact.radix import Radix, flattened, named_places, quotient_by_size, quotients_left
from dslc.prove.exact.tables import without_onehots, without_tables
from dslc.prove.exact.terms import Effort, Unsolved


class Quotient(Unsolved):
    """A position is divided by what does not divide its range, as far as is seen; with the ranges that there are."""

    def __init__(self, extents: Sequence[Scalar]) -> None:
        super().__init__("a position is divided by a size that does not divide the range")
        self.extents = extents


def posed(
    left: Sequence[Value], right: Sequence[Value], conditions: Sequence[Scalar], effort: Effort
) -> ComparisonProblem:
    """The problem of two lists of outputs. Raises Unsolved, CannotInline and GivenUp where they are no such expressions."""
    try:
        return ComparisonProblem(left, right, conditions, effort)
    except Quotient as problem:
        names, more = named(problem.extents)
        if not names:
            raise
        return ComparisonProblem(left, right, conditions, effort, names, more)


class ComparisonProblem:
    """A problem of comparison; it is never changed.

    `names`: sizes in terms of names for compound extents, with what is known of those (`more`). `opaque`: places that are quotients
    are names as well, and what is shown of them is stronger than what was asked: only that the programs are equal means something.
    """

    def __init__(
        self,
        left: Sequence[Value],
        right: Sequence[Value],
        conditions: Sequence[Scalar],
        effort: Effort,
        names: Mapping[Scalar, Scalar] | None = None,
        more: Sequence[Scalar] = (),
        opaque: bool = False,
    ) -> None:
        self._check = effort.check
        #: the conditions as they were given
        self.given = tuple(conditions)
        #: what sizes are in terms of others, and the conditions in terms of these
        self.known, self.conditions = solved(conditions)
        if names:
            put = cache(lambda node: rebuild(node, names.get))
            self.known = {size: put(meaning) for size, meaning in self.known.items()} | dict(names)
            self.conditions = [*(put(condition) for condition in self.conditions), *more]
        inliner = Inliner(self.known, self._check, self._shorter((*left, *right)))
        #: the tensors that the expressions read
        self.inputs = inliner.inputs
        roots: list[Scalar] = []
        #: the position of each output
        self.positions: list[tuple[Scalar, ...]] = []
        if len(left) != len(right):
            raise Unsolved("the programs have different numbers of outputs")
        for a, b in zip(left, right, strict=True):
            self._same_shape(inliner, a, b)
            position = inliner.position(a)
            roots += [inliner.output(a, position), inliner.output(b, position)]
            self.positions.append(position)
        roots = without_onehots(without_tables(roots, inliner.extents, inliner.inputs))
        self.radix = Radix(inliner.extents, self._facts((*roots, *inliner.extents.values())), self._check)
        self.conditions = [self.radix.simplify(condition) for condition in self.conditions]
        #: iterators that were taken apart, in terms of their parts
        roots, self.parts = self.radix.split(roots)
        #: for every output its element on the left and the one on the right
        self.roots = self._named(roots) if opaque else self._flattened(inliner, roots)
        #: the range of every iterator
        self.extents = inliner.extents

    def variables(self, number: int) -> tuple[Iter, ...]:
        """The iterators of one output, with split ones as their parts."""
        wholes = (self.parts.get(at, at) for at in self.positions[number] if isinstance(at, Iter))
        return tuple(it for whole in wholes for it in sorted(whole.free, key=lambda it: it.name))

    def _shorter(self, outputs: Sequence[Value]) -> Callable[[Scalar, dict[Iter, Scalar]], Scalar]:
        """Indices simplified as soon as they are made, by what is known of the sizes of all tensors."""
        values = (value for node in nodes_of(outputs) for value in node.values)
        sizes = [rebuild(as_scalar(size), self.known.get) for value in values for size in value.type.shape]
        radix = Radix({}, self._facts(sizes), self._check)

        def shorter(index: Scalar, extents: dict[Iter, Scalar]) -> Scalar:
            radix.extents = extents
            return radix.simplify(index) if quotient_by_size(index) else index

        return shorter

    def _same_shape(self, inliner: Inliner, a: Value, b: Value) -> None:
        shapes = [[inliner.size(size) for size in each.type.shape] for each in (a, b)]
        if len(shapes[0]) != len(shapes[1]):
            raise Unsolved(f"the types {a.type} and {b.type} differ")
        radix = Radix({}, self._facts([size for shape in shapes for size in shape]), self._check)
        for one, other in zip(*shapes, strict=True):
            if one is not other and not (radix.least(apply("-", one, other)) and radix.least(apply("-", other, one))):
                raise Unsolved(f"the sizes {one} and {other} are not known to be equal")

    def _flattened(self, inliner: Inliner, roots: list[Scalar]) -> list[Scalar]:
        """Tensors that are still read at quotients by sizes, by their position in memory."""
        for operand in sorted(quotients_left(roots)):
            shape = [inliner.size(size) for size in self.inputs[operand].type.shape]
            roots = [self.radix.simplify(flattened(root, operand, shape)) for root in roots]
        if quotients_left(roots):
            raise Quotient(list(inliner.extents.values()))
        return roots

    def _named(self, roots: list[Scalar]) -> list[Scalar]:
        found = named_places(roots, self.inputs)
        if found is None:
            raise Unsolved("a tensor is read at quotients and otherwise")
        return found

    def _facts(self, roots: Iterable[Scalar]) -> Case:
        """The conditions, and the least values of the sizes."""
        sizes = symbols((*roots, *self.conditions))
        lower = tuple(atom(size) - size.least for size in sizes if size.least is not None)
        return facts(self.conditions) & Case(lower)


def symbols(roots: Iterable[Scalar]) -> list[Sym]:
    """The sizes that expressions are about, by name."""
    return sorted(unknowns(*roots), key=lambda s: s.name)
