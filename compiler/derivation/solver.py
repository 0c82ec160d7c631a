"""Operator matching by tables (EinNet, section 5.1, Figure 8): a scope by one call of an operator between changes of layout.

Iterators are given to the pattern's by where they stand; then sizes and attributes (strides, dilations, pads, widths) are solved for,
and each operand is a scope that has at the operator's positions what the expression reads there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import islice, permutations
from typing import Any

from dslc.analysis.iterators import coefficient_of
from dslc.analysis.numeric import DataDependent, in_bounds, interval
from dslc.analysis.poly import scalar_of
from dslc.derivation.assignments import (
    Along,
    Assignment,
    MovedWindow,
    WindowSearch,
    integer,
    put,
    solved_least,
    solved_linear,
    unknowns,
)
from dslc.derivation.pieces import Box, Operands, Ranges, ScopeView, Unfit, inside, product_of
from dslc.derivation.tables import TOTAL, Group, OperatorPattern, Window, around, leaves_in
from dslc.ir.dtype import Dim
from dslc.ir.graph import ScopeNode, Value
from dslc.ir.scalar import Iter, Num, Read, Scalar, Sym, apply, as_scalar, flat, num, read, walk
from dslc.ir.scopes import each_of, substitute
from dslc.ir.sizes import sized
from dslc.records import record
from dslc.semantics.apply import apply as call
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules
from dslc.semantics.lists import plain

WAYS = 24  #: ways to match one pattern that are looked at


class MissReason(Enum):
    """The reason why a scope is not an operator."""

    NO_TABLE = "the operator's equation has no iterator table"
    NO_PRODUCT = "the expression is computed in another way"
    GROUP = "an iterator stands where the operator has none"
    NOT_AFFINE = "no index moves along as the operator's does"
    SIZES = "no sizes and attributes fit"
    PADS = "positions before or after the data that the operator does not take"
    TYPES = "element types that the operator does not take"
    INTENSITY = "beside the operator too much is left to compute for operators that are generated"
    KNOWN = "the operator was found at these sizes before"


@record
class Miss:
    """A reason, and the iterators that did not fit: the places where they stand, in words."""

    why: MissReason
    what: str = ""
    #: of `GROUP`: where the iterators stand that have no place, and where the operator's do
    group: Group | None = None
    groups: tuple[Group, ...] = ()

    def __str__(self) -> str:
        return f"{self.why.value}{f': {self.what}' if self.what else ''}"


#: how far a match came: the later the nearer
_ORDER = {why: k for k, why in enumerate(MissReason)}


def nearer(a: Miss | None, b: Miss) -> Miss:
    """Of two reasons that of the match that came further."""
    return b if not a or _ORDER[b.why] > _ORDER[a.why] else a


#: a call but for what its operands hold: the operator, its attributes' numbers, and the shapes
Shaped = tuple[str, tuple[int, ...], tuple[tuple[Dim, ...], ...]]


def shaped(op: str, attrs: Iterable[Any], shapes: Iterable[Sequence[Dim]]) -> Shaped:
    """A call but for what its operands hold. Attributes and sizes may be numbers or scalars of known value."""
    return op, tuple(map(plain, flat(tuple(attrs)))), tuple(tuple(map(plain, shape)) for shape in shapes)


class Matching:
    """One pattern and one expression."""

    def __init__(
        self, rules: Rules, pattern: OperatorPattern, view: ScopeView, operands: Operands, units: bool = False,
        skipped: Callable[[Shaped], bool] | None = None, margins: bool = False,
    ) -> None:  # fmt: skip
        """Matches a pattern with a view.

        Args:
            margins: whether positions at which the operator would read its own padding are of no interest.
            units: whether what is read alone is taken for a product with ones: `sum[r] A[i + r]` for `sum[r] A[i + r] * 1`.
            skipped: which calls are not made, as they are of no interest any more.
        """
        self.outer: Scalar | None = None
        self.units, self.skipped, self.margins = units, skipped, margins
        if pattern.outer is not None and view.kind is None:
            total, outer = around(view.body)
            inner = inside(view, total, operands) if total else None
            if inner:
                view, self.outer = forward(inner), outer
        self.rules, self.pattern, self.view, self.operands = rules, pattern, view, operands
        self.extents = dict(zip((*view.iters, *view.sums), (*view.box.extents, *view.sum_extents), strict=True))

    def every(self, whole: bool = True) -> Iterator[Value | Miss]:
        """Equal values by the operator, and why there are not more.

        `whole`: all that moves along a dimension of the operator does so here too; else its windows have one position.
        """
        view, pattern = self.view, self.pattern
        body, iters = view.body, (*view.iters, *view.sums)
        if view.kind != pattern.kind or body.binds or (pattern.outer is None) != (self.outer is None):
            yield Miss(MissReason.NO_PRODUCT)
            return
        found = False
        products: list[Value] = []
        numbers = {leaf.operand: k for k, leaf in pattern.leaves.items()}
        for leaves in self._leaves():
            found = True
            factors = {numbers[k]: factor for k, factor in leaves.items()}
            # ones are there for all that is summed
            free = {k: factor.free if factor.reads else view.sums for k, factor in factors.items()}
            groups = {it: (frozenset(k for k, own in free.items() if it in own), it in view.iters) for it in iters}
            for way in self._ways(factors, groups, whole):
                if isinstance(way, Miss):
                    yield way
                    continue
                for own in (True, False):
                    made = self._made(way, factors, own)
                    if isinstance(made, Value) and not pattern.windows:
                        # the other way round it computes the same: which layouts are there already decides
                        products.append(made)
                        break
                    yield made
                    if is_found(made):
                        if not pattern.windows and not products:
                            return
                        break
        if products:
            yield min(products, key=_changes)
        if not found:
            yield Miss(MissReason.NO_PRODUCT)

    def _leaves(self) -> Iterator[Mapping[int, Scalar]]:
        """Parts of the expression for each read of the pattern, in the reduction and in what is computed of it."""
        for leaves in self._factors():
            if not self.pattern.outer or not self.outer:
                yield leaves
                continue
            for others in leaves_in(self.pattern.outer, self.outer):
                # of the sum itself nothing is known but that it is there
                free = all(TOTAL not in walk(part) for part in others.values())
                if free and all(leaves.get(operand, part) is part for operand, part in others.items()):
                    yield {**leaves, **others}

    def _factors(self) -> Iterator[Mapping[int, Scalar]]:
        pattern, body = self.pattern.body, self.view.body
        yield from leaves_in(pattern, body)
        if self.units and isinstance(body, Read) and pattern.op == "*":
            for reads in permutations(pattern.args):
                if len(reads) == 2 and all(isinstance(each, Read) for each in reads):
                    first, second = (each.operand for each in reads if isinstance(each, Read))
                    yield {first: body, second: num(1)}

    # ---- iterators ---------------------------------------------------------------------------------------------

    def _ways(
        self, factors: Mapping[int, Scalar], groups: Mapping[Iter, Group], whole: bool
    ) -> Iterator[Assignment | Miss]:
        sought = WindowSearch(self.pattern, factors, groups, Along.WHOLE if whole else Along.FIRST)
        ways = list(islice(sought.ways(), WAYS))
        if not ways:
            places = [
                f"{len(w.terms)} iterators along dimension {dim} of operand {k}" for k, dim, w in self.pattern.windows
            ]
            yield Miss(MissReason.NOT_AFFINE, ", ".join(places))
        for way in ways if whole else ways[-1:]:
            # of windows of one position those along the last dimensions
            yield self._plain(way, groups)

    def _plain(self, way: Assignment, groups: Mapping[Iter, Group]) -> Assignment | Miss:
        """The other iterators, all that stand alike together."""
        plain = self.pattern.plain
        left: dict[Group, list[Iter]] = {}
        for it, group in groups.items():
            if it not in way.taken and (group[0] or self.extents[it] is not num(1)):
                left.setdefault(group, []).append(it)
        for group in left:
            if group not in plain:
                own = tuple(dict.fromkeys(self.pattern.group(it) for it in self.pattern.extents))
                sizes = " * ".join(str(self.extents[it]) for it in left[group])
                what = f"{_words(group)} ({sizes} positions); its iterators are of {', of '.join(map(_words, own))}"
                return Miss(MissReason.GROUP, what, group, own)
        given = dict(way.given)
        for group, (first, *others) in plain.items():
            given[first] = tuple(left.get(group, ()))
            given.update(dict.fromkeys(others, ()))
        return replace(way, given=given)

    # ---- sizes and attributes --------------------------------------------------------------------------------------

    def _extent(self, way: Assignment, it: Iter) -> Scalar:
        return product_of(self.extents[own] for own in way.given[it])

    def _solved(self, way: Assignment, factors: Mapping[int, Scalar], own: bool) -> dict[Sym, Scalar] | None:
        """The unknown sizes and attributes; None where there are none, or none are found.

        `own`: the data as it is with the operator's padding, else all that is read as data of its own.
        """
        pattern, known = self.pattern, dict(way.known)
        equations = [(extent, self._extent(way, it)) for it, extent in pattern.extents.items()]
        if not solved_linear(equations, known):
            return None
        for each in way.moved:
            window = pattern.dims[each.operand][each.dim]
            assert isinstance(window, Window)
            constant = scalar_of(window.constant)
            free = unknowns(constant, known)
            if len(free) == 1 and pattern.shapes[each.operand][each.dim] not in known:
                rest = substitute(each.rest, {it: num(0) for it in each.rest.free})
                if own and (not isinstance(rest, Num) or each.rest is not rest or each.unit != 1):
                    return None
                if not solved_linear([(constant, rest if own else num(0))], known):
                    return None
                found = known[free[0]]
                if not isinstance(found, Num) or not isinstance(found.value, int) or found.value < 0:
                    return None
            size = pattern.shapes[each.operand][each.dim]
            factor = factors[each.operand]
            if own and isinstance(size, Sym) and size not in known and isinstance(factor, Read):
                known[size] = as_scalar(self.operands.values[factor.operand].type.shape[each.at])
        sizes = {size for shape in pattern.shapes for size in shape if isinstance(size, Sym)}
        for equation in equations:
            free = unknowns(equation[0], known)
            # attributes that are padding stay 0 where the data have what is read
            if not own and len(free) > 1:
                known.update({name: num(0) for name in free if name not in sizes})
            free = unknowns(equation[0], known)
            if len(free) > 1 or (free and not solved_least(equation, free[0], known)):
                return None
        items = [item for item in flat(tuple(pattern.attrs.values())) if isinstance(item, Scalar)]
        names = [name for item in items for name in unknowns(item, known)]
        known.update({name: num(int(name not in sizes)) for name in names})
        return known if all(put(extent, known) is wanted for extent, wanted in equations) else None

    # ---- values ------------------------------------------------------------------------------------------------

    def _made(self, way: Assignment, factors: Mapping[int, Scalar], own: bool) -> Value | Miss:
        known = self._solved(way, factors, own)
        if known is None:
            return Miss(MissReason.SIZES)
        pattern = self.pattern
        attrs = {name: sized(value, lambda part: put(part, known)) for name, value in pattern.attrs.items()}
        if self.skipped is not None:
            shapes = [[put(size, known) for size in shape] for shape in pattern.shapes]
            if self.skipped(shaped(pattern.op, attrs.values(), shapes)):
                return Miss(MissReason.KNOWN)
        try:
            args = [self._operand(way, k, factors[k], known) for k in range(len(pattern.shapes))]
        except Unfit as unfit:
            return (None if own or self.margins else self._cropped(way, known)) or Miss(MissReason.PADS, str(unfit))
        try:
            (made,) = call(self.rules, pattern.op, args, attrs)
        except (Mismatch, EvalError) as problem:
            return Miss(MissReason.TYPES, str(problem))
        if made.type.dtype is not self.view.dtype:
            return Miss(MissReason.TYPES, f"{made.type.dtype} instead of {self.view.dtype}")
        groups = pattern.scope.counts
        if len(made.type.shape) != len(groups):
            return Miss(MissReason.SIZES)
        index: list[Scalar] = []
        iters, view = iter(pattern.scope.iters), self.view
        for count in groups:
            position: Scalar = num(0)
            for it in (it for each in islice(iters, count) for it in way.given[each]):
                position = apply("+", apply("*", position, self.extents[it]), it)
            index.append(position)
        return self.operands.scope(view.iters, view.box, read(self.operands.number(made), tuple(index)), view.dtype)

    def _cropped(self, way: Assignment, known: Mapping[Sym, Scalar]) -> Value | None:
        """The operator on more positions than are wanted, so that what it pads with is read for the others alone."""
        if self.pattern.outer:
            return None
        try:
            windows = [(each, self.pattern.dims[each.operand][each.dim]) for each in way.moved]
            reaches = [
                ([(it, integer(put(scalar_of(slope), known))) for term, slope in window.terms for it in way.given[term]],
                 *self._reach(way, window, known), integer(put(self.pattern.shapes[each.operand][each.dim], known)))
                for each, window in windows if isinstance(window, Window)
            ]  # fmt: skip
        except Unfit:
            return None
        margins = margins_of(reaches, self.view)
        if margins is None:
            return None
        larger = Matching(
            self.rules, self.pattern, enlarged(self.view, margins), self.operands, self.units, self.skipped, True
        )
        found = next((made for made in larger.every() if isinstance(made, Value)), None)
        return cropped(found, self.view, margins, self.operands) if found else None

    def _reach(self, way: Assignment, window: Window, known: Mapping[Sym, Scalar]) -> tuple[int, int]:
        """The least and the greatest position of a window."""
        low = high = integer(put(scalar_of(window.constant), known))
        for it, slope in window.terms:
            reach = integer(put(scalar_of(slope), known)) * (integer(self._extent(way, it)) - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high

    def _operand(self, way: Assignment, operand: int, factor: Scalar, known: Mapping[Sym, Scalar]) -> Value:
        """The expression's operand at the operator's positions; raises Unfit where the two differ beside the data."""
        pattern = self.pattern
        names: list[Iter] = []
        box: list[Scalar] = []
        groups: list[int] = []
        body = factor
        outside = False
        for d, dim in enumerate(pattern.dims[operand]):
            size = put(pattern.shapes[operand][d], known)
            if not isinstance(dim, Window):
                own = [it for each in dim for it in way.given[each]] or [*self.operands.fresh()]
                names += own
                box += [self.extents.get(it, num(1)) for it in own]
                groups.append(len(own))
                continue
            (place,) = self.operands.fresh()
            (moved,) = (each for each in way.moved if (each.operand, each.dim) == (operand, d))
            constant = put(scalar_of(dim.constant), known)
            position = apply("+", apply("*", num(moved.unit), apply("-", place, constant)), moved.rest)
            assert isinstance(body, Read)
            self._beside(way, moved, dim, position, place, size, body, known)
            body = read(body.operand, (*body.index[: moved.at], position, *body.index[moved.at + 1 :]), body.other)
            names.append(place)
            box.append(size)
            groups.append(1)
            outside = True
        single = {it: num(0) for it, extent in zip(names, box, strict=True) if extent is num(1)}
        body = substitute(body, single)
        within = _known_ranges(zip(names, box, strict=True))
        if isinstance(body, Read):
            value = self.operands.values[body.operand]
            inside = in_bounds(body.index, value.type.shape, within)
            shape = tuple(size if isinstance(size, Scalar) else num(size) for size in value.type.shape)
            place_of = tuple(num(0) if it in single else it for it in names)
            if set(groups) == {1} and shape == tuple(box) and (inside or not body.other) and body.index == place_of:
                return value
            if outside and not body.other and not inside:
                body = read(body.operand, body.index, num(0))
        elif outside:
            raise Unfit("a window over what is computed")
        return self.operands.scope(names, Box.of(box), body, self._dtype(factor), tuple(groups))

    def _dtype(self, factor: Scalar) -> Any:
        kinds = {self.operands.values[part.operand].type.dtype for part in each_of(Read, factor)}
        return kinds.pop() if len(kinds) == 1 else self.view.dtype

    def _beside(
        self, way: Assignment, moved: MovedWindow, window: Window, position: Scalar, place: Iter, size: Scalar, factor: Read,
        known: Mapping[Sym, Scalar],
    ) -> None:  # fmt: skip
        """Raises Unfit unless what the operator takes for data beside its own is what the expression reads there."""
        if self.margins:
            return
        low, high = self._reach(way, window, known)
        count = integer(size)
        other = self.pattern.leaves[moved.operand].other
        data = self.operands.values[factor.operand].type.shape[moved.at]
        if not isinstance(data, int):
            raise Unfit("an unknown size")
        if low >= 0 and high < count:
            return
        if not isinstance(other, Num) or factor.other is not other:
            raise Unfit("nothing is read beside the data")
        ranges = _known_ranges(self.extents.items())
        for at in (*([(low, -1)] if low < 0 else []), *([(count, high)] if high >= count else [])):
            try:
                least, most = interval(position, {**ranges, place: at})
            except DataDependent as unknown:
                raise Unfit("positions that are not known") from unknown
            if not (most < 0 or least >= data):
                raise Unfit("data beside the operator's")


def _known_ranges(extents: Iterable[tuple[Iter, Scalar]]) -> Ranges:
    return {it: (0, int(size.value) - 1) for it, size in extents if isinstance(size, Num)}


def is_found(made: Value | Miss) -> bool:
    """Return whether a scope is an operator, made or not."""
    return isinstance(made, Value) or made.why is MissReason.KNOWN


def _changes(made: Value) -> int:
    """The number of changes of layout before and behind an operator."""
    node = made.node
    assert isinstance(node, ScopeNode)
    (result,) = node.args
    body = node.scope.body
    kept = result.type == made.type and isinstance(body, Read) and body.index == node.scope.iters
    return (not kept) + sum(isinstance(arg.node, ScopeNode) for arg in result.node.args)


def forward(view: ScopeView) -> ScopeView:
    """Sums that run against the result's positions turned round: `A[i - r] * B[r]` → `A[i - 2 + r] * B[2 - r]`."""
    turned: dict[Iter, Scalar] = {}
    for node in each_of(Read, view.body):
        for at in node.index:
            if len(at.free) < 2 or at.free.isdisjoint(view.sums):
                continue
            slopes = {it: coefficient_of(at, it) or 0 for it in at.free}
            along = [slope for it, slope in slopes.items() if it in view.iters]
            for it, extent in zip(view.sums, view.sum_extents, strict=True):
                if it in slopes and any(slope * slopes[it] < 0 for slope in along) and isinstance(extent, Num):
                    turned[it] = apply("-", num(int(extent.value) - 1), it)
    return replace(view, body=substitute(view.body, turned)) if turned else view


def _words(group: Group) -> str:
    operands, result = group
    parts = [*(f"operand {k}" for k in sorted(operands)), *(["the result"] if result else [])]
    return " + ".join(parts) or "nowhere"


#: for iterators of a result the positions before and behind those along them
Margins = Mapping[Iter, tuple[int, int]]


def enlarged(view: ScopeView, margins: Margins) -> ScopeView:
    """A view that begins so many positions earlier along some iterators, and ends later; positions are counted from its first ones."""
    moved: dict[Iter, Scalar] = {it: apply("-", it, num(before)) for it, (before, _) in margins.items()}
    extents = [
        apply("+", extent, num(sum(margins.get(it, ()))))
        for it, extent in zip(view.iters, view.box.extents, strict=True)
    ]
    return replace(view, box=Box(view.box.low, tuple(extents)), body=substitute(view.body, moved))


def cropped(made: Value, view: ScopeView, margins: Margins, operands: Operands) -> Value:
    """A value of an enlarged view, at the positions of the view itself."""
    at = tuple(apply("+", it, num(margins[it][0])) if it in margins else it for it in view.iters)
    return operands.scope(view.iters, view.box, read(operands.number(made), at), view.dtype)


def margins_of(reaches: Sequence[tuple[Sequence[tuple[Iter, int]], int, int, int]], view: ScopeView) -> Margins | None:
    """The margins that keep windows inside of their data; None where there are none to keep, or no single iterator moves a window.

    Args:
        reaches: of each window what moves it, and by how much; its least and its greatest position, and how many there are.
    """
    found: dict[Iter, tuple[int, int]] = {}
    for terms, low, high, count in reaches:
        before, behind = max(0, -low), max(0, high - count + 1)
        if not before and not behind:
            continue
        along = [(it, slope) for it, slope in terms if it in view.iters]
        if len(along) != 1 or along[0][1] < 1 or along[0][0] in found:
            return None
        ((it, slope),) = along
        found[it] = -(-before // slope), -(-behind // slope)
    known = dict(zip(view.iters, view.box.extents, strict=True))
    return found if found and all(isinstance(known[it], Num) for it in found) else None
