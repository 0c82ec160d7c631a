"""Right sides of derivations: scopes put together from what the unknowns stand for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dslc.analysis.narrowing import sum_ranges
from dslc.analysis.numeric import in_bounds
from dslc.derivation.left_sides import UnknownBindings, at_index, number_in, sets_of_indexes
from dslc.derivation.pieces import Box, Iters, Operands, Tensor, Unfit, Vector, is_part, ranges
from dslc.ir.dtype import DType
from dslc.ir.graph import Value
from dslc.ir.scalar import Iter, Read, Scalar, apply, num, read, rebuild, reduce
from dslc.ir.scopes import stack
from dslc.records import record
from dslc.semantics.walk import nodes
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import FUNCTIONS_1, FUNCTIONS_N


@record
class BuiltValue:
    """A value that stands for a function on a box: its positions are counted from the box's first one."""

    value: Value
    box: Box
    other: Scalar | None = None
    #: the iterators that the value depends on, where it has no other axes
    axes: tuple[int, ...] | None = None
    #: what is left of it, where a rule says so
    only: Box | None = None


@dataclass(eq=False)
class RightSide:
    """The right side of a rule, in one application; raises Unfit where something is not determined or does not fit."""

    rule: t.Derivation
    found: UnknownBindings
    operands: Operands
    dtype: DType
    built: dict[str, BuiltValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ranges = sets_of_indexes(self.rule)

    def build(self, formulas: Sequence[t.Formula]) -> Mapping[str | None, Value]:
        """The value of each formula that is one of the left side's too, of the same type as there."""
        results: dict[str | None, Value] = {}
        for name, view in self.found.formulas.items():
            # what a rule leaves as it is may be read
            if name is not None and all(formula.name != name for formula in formulas):
                self.built[name] = BuiltValue(view.value, view.box)
        for formula in formulas:
            made = self.formula(formula)
            if formula.name is not None:
                self.built[formula.name] = made
            if formula.name in self.found.formulas:
                results[formula.name] = self._whole(formula, made)
        return results

    def _whole(self, formula: t.Formula, made: BuiltValue) -> Value:
        """A result on the very box of what it replaces."""
        before = self.found.formulas[formula.name]
        if made.only and _sides(made.only) != _sides(before.box):
            raise Unfit("a result on another box")
        if made.box == before.box and not made.other:
            if made.value.type != before.value.type:
                raise Unfit("a result of another type")
            return made.value
        iters = self.operands.fresh(len(before.iters))
        return self.operands.scope(iters, before.box, self._at(made, iters), before.dtype)

    def formula(self, formula: t.Formula) -> BuiltValue:
        """The value of one formula, of those that are in `built` by now."""
        node = formula.scope
        match node:
            case t.Restrict(scope=scope, domain=domain):
                return replace(self._made(scope, formula.name), only=self.found.box(domain))
            case t.Join():
                return self._joined(node, formula.name)
            case t.Call(function="stack"):
                return self._stacked(node)
        return self._made(node, formula.name)

    def _made(self, node: t.Expr, name: str | None) -> BuiltValue:
        if node.bare in self.built:
            return self.built[node.bare]
        if isinstance(node, t.Nested) and node.subs is None:
            return self._braced(node, name)
        return self._traversal(node, name)

    def _braced(self, node: t.Nested, name: str | None, top: bool = True, whole: bool = True) -> BuiltValue:
        made = self._traversal(node.scope, name, top, whole or node.other is not None)
        return replace(made, other=self._element(node.other, self.found)) if node.other else made

    def _joined(self, node: t.Join, name: str | None) -> BuiltValue:
        """`P ++ Q`: where the first part has a value it is taken."""
        parts = [self._made(part, None) for part in node.parts]
        before = self.found.formulas[name]
        iters = self.operands.fresh(len(before.iters))
        *others, last = parts
        body = self._at(last, iters)
        for part in reversed(others):
            body = apply("select", _inside(iters, part.box), self._at(part, iters), body)
        return BuiltValue(self.operands.scope(iters, before.box, body, before.dtype), before.box)

    def _stacked(self, node: t.Call) -> BuiltValue:
        names = [arg.bare for arg in node.args if arg.bare]
        try:
            values = [self.operands.values[self.found.tensors[name]] for name in names]
        except KeyError:
            raise Unfit("only tensors are stacked") from None
        if len({value.type for value in values}) != 1:
            raise Unfit("tensors of several types")
        whole = []
        for value in values:
            iters = self.operands.fresh(len(value.type.shape))
            box = Box.of(value.type.shape)
            whole.append(self.operands.scope(iters, box, read(self.operands.number(value), iters), value.type.dtype))
        made = stack(whole)
        return BuiltValue(made, Box.of(made.type.shape))

    # ---- scopes --------------------------------------------------------------------------------------------

    def _traversal(self, node: t.Expr, name: str | None, top: bool = True, whole: bool = True) -> BuiltValue:
        """`top`: whether it is what a formula makes, and not a scope that is read in it; `whole`: whether it has all of its axes."""
        if not isinstance(node, t.Traversal) or node.where:
            raise Unfit("no traversal")
        found = self.found
        iters: dict[tuple[str, int], Iter] = {}
        boxes: dict[Iter, tuple[Scalar, Scalar]] = {}
        for place in node.places:
            if not isinstance(place, t.Binder):
                raise Unfit("a merged dimension")
            box = self._box(place)
            own = self.operands.fresh(len(box.low))
            found = found.put("indexes", place.name, own)
            for k, (it, low, extent) in enumerate(zip(own, box.low, box.extents, strict=True)):
                iters[place.name, k] = it
                boxes[it] = (low, extent)
        order = self.found.order.get(name) if top else None
        # a formula that replaces another one has its axes in the order of that
        chosen = [iters[at] for at in order] if order is not None and set(order) == set(iters) else list(iters.values())
        body = self._element(node.body, found)
        box = Box(tuple(boxes[it][0] for it in chosen), tuple(boxes[it][1] for it in chosen))
        # one position is no repetition, and what stands beside it may have that axis too
        axes = tuple(k for k, it in enumerate(chosen) if it in body.free or (not top and boxes[it][1] is num(1)))
        inner = not whole or (name is not None and name not in self.found.formulas)
        if inner and len(axes) < len(chosen):
            # what is the same along an axis is computed once
            kept = [chosen[k] for k in axes]
            less = Box(tuple(box.low[k] for k in axes), tuple(box.extents[k] for k in axes))
            return BuiltValue(
                self.operands.scope(kept, less, self._defined(body, kept, less), self.dtype), box, None, axes
            )
        return BuiltValue(self.operands.scope(chosen, box, self._defined(body, chosen, box), self.dtype), box)

    def _defined(self, body: Scalar, iters: Sequence[Iter], box: Box) -> Scalar:
        """The body with 0 for what would be read outside a tensor: at positions that a larger box adds, and which nothing reads."""
        try:
            at = dict(ranges(iters, box))
        except Unfit:
            return body

        within = {**at, **sum_ranges(body)}

        def leaf(node: Scalar) -> Scalar | None:
            if not isinstance(node, Read) or node.other or any(part.reads for part in node.index):
                return None
            shape = self.operands.values[node.operand].type.shape
            return None if in_bounds(node.index, shape, within) else read(node.operand, node.index, num(0))

        return rebuild(body, leaf)

    def _box(self, binder: t.Binder) -> Box:
        """The set that an index of a traversal runs through."""
        if binder.range:
            return self.found.box(binder.range)
        return self.found.box(t.Name(self.ranges.get(binder.name, ""), span=binder.span))

    # ---- elements ------------------------------------------------------------------------------------------

    def _element(self, node: t.Expr, found: UnknownBindings) -> Scalar:
        match node:
            case t.Reduction():
                return self._reduction(node, found)
            case t.Call(function=name) if name in found.terms:
                term = found.terms[name]
                if len(term.params) != len(node.args):
                    raise Unfit("a term of another number of arguments")
                return term(
                    [self._argument(arg, param, found) for arg, param in zip(node.args, term.params, strict=True)]
                )
            case t.Nested() | t.Subscript():
                tensor, rest = self._function(node, found)
                return tensor(rest)
            case t.Conditional():
                condition = self._condition(node.condition, found)
                return apply("select", condition, self._element(node.then, found), self._element(node.otherwise, found))
            case t.Int() | t.Float():
                return number_in(node)
            case t.Unary(op="-"):
                return apply("*", num(-1), self._element(node.operand, found))
            case t.Binary(op="+" | "-" | "*" | "/" | "//" | "%" | "^"):
                return apply(node.op, self._element(node.left, found), self._element(node.right, found))
            case t.Call(function=name) if name in FUNCTIONS_1 | FUNCTIONS_N:
                return apply(name, *(self._element(arg, found) for arg in node.args))
        vector = self._vector(node, found)
        if len(vector) != 1:
            raise Unfit("a vector where an element is wanted")
        return vector[0]

    def _reduction(self, node: t.Reduction, found: UnknownBindings) -> Scalar:
        iters: list[Iter] = []
        extents: list[Scalar] = []
        for binder in node.binders:
            box = self._box(binder)
            if box.hull_only:
                raise Unfit("a sum over more than what was mapped")
            own = self.operands.fresh(len(box.low))
            # a sum that begins elsewhere runs from 0 to as many positions
            places = tuple(apply("+", it, low) for it, low in zip(own, box.low, strict=True))
            found = found.put("indexes", binder.name, places)
            iters += own
            extents += box.extents
        where = self._condition(node.where, found) if node.where else None
        return reduce(node.kind, tuple(iters), tuple(extents), self._element(node.body, found), where)

    def _argument(self, node: t.Expr, param: Iters | Iter | int, found: UnknownBindings) -> Vector | Scalar | Tensor:
        """An argument of a term: a vector of positions, a tensor, or an element."""
        if isinstance(param, Iter):
            return self._element(node, found)
        match node:
            case t.Name(id=name) if name in found.tensors:
                return self._tensor(name, found)
            case t.Subscript(base=t.Name(id=name)) if name in self.built:
                made, at = self.built[name], self._index(node.subs, found)
                # part of an index: a tensor of what is left
                return self._at(made, at) if len(at) >= len(made.box.low) else lambda rest: self._at(made, (*at, *rest))
            case t.Nested() | t.Subscript():
                return self._element(node, found)
        return self._vector(node, found)

    def _function(self, node: t.Nested | t.Subscript, found: UnknownBindings) -> tuple[Tensor, Vector]:
        at = self._index(node.subs or (), found)
        beside = node.other if isinstance(node, t.Subscript) else node.subs_other
        other = self._element(beside, found) if beside else None
        if isinstance(node, t.Nested):
            made = self._braced(replace(node, subs=None), None, top=False, whole=other is not None)
        else:
            name = node.base.bare or ""
            term = found.terms.get(at_index(name))
            if name in self.built:
                made = self.built[name]
            elif term and not other:
                vectors = [self._vector(sub, found) for sub in node.subs]
                return (lambda index: term(vectors)), at
            elif not term and name in found.tensors:
                return self._tensor(name, found, other), at
            else:
                raise Unfit("no tensor")
        made = replace(made, other=other) if other else made
        return (lambda index: self._at(made, index)), at

    def _tensor(self, name: str, found: UnknownBindings, other: Scalar | None = None) -> Tensor:
        number = found.tensors[name]
        return lambda index: read(number, index, other)

    def _at(self, made: BuiltValue, index: Vector) -> Scalar:
        if len(index) != len(made.box.low):
            raise Unfit("an index of another rank")
        place = tuple(apply("-", at, low) for at, low in zip(index, made.box.low, strict=True))
        if made.axes is not None:
            place = tuple(place[k] for k in made.axes)
        return read(self.operands.number(made.value), place, made.other)

    def _index(self, subs: Sequence[t.Expr], found: UnknownBindings) -> Vector:
        at = tuple(part for sub in subs for part in self._vector(sub, found))
        if any(map(is_part, at)):
            raise Unfit("a part of a position")
        return at

    def _vector(self, node: t.Expr, found: UnknownBindings) -> Vector:
        """Positions: an index, a map of positions, sums and differences of them."""
        match node:
            case t.Name(id=name) if name in found.indexes:
                return found.indexes[name]
            case t.Name(id=name) if name in found.sets and found.sets[name].extents:
                # the size of a range
                return found.sets[name].extents
            case t.Int(value=value):
                return (num(value),)
            case t.Call(function=function, args=args) if function.partition(".")[0] in found.maps:
                name, _, way = function.partition(".")
                at = self._index(args, found)
                return found.maps[name].inverse(at) if way == "inverse" else found.maps[name](at)
            case t.Binary(op="+" | "-" | "*" | "//" | "%"):
                left, right = self._vector(node.left, found), self._vector(node.right, found)
                if len(left) == 1:
                    left = left * len(right)
                if len(right) == 1:
                    right = right * len(left)
                if node.op in {"+", "-"} and node.right.bare in found.sets:
                    # behind a box lies another one along the first iterator
                    right = (*right[:1], *(num(0) for _ in right[1:]))
                if len(left) == len(right):
                    return tuple(apply(node.op, a, b) for a, b in zip(left, right, strict=True))
        raise Unfit("no positions")

    def _condition(self, node: t.Expr, found: UnknownBindings) -> Scalar:
        """A condition on positions: vectors are equal where all of their iterators are."""
        match node:
            case t.Unary(op="not"):
                return apply("not", self._condition(node.operand, found))
            case t.Binary(op="and" | "or"):
                return apply(node.op, self._condition(node.left, found), self._condition(node.right, found))
            case t.Compare(ops=ops, operands=operands):
                pairs = zip(ops, operands, operands[1:], strict=False)
                return _all(self._compared(*each, found) for each in pairs)
        raise Unfit("no condition")

    def _compared(self, op: str, left: t.Expr, right: t.Expr, found: UnknownBindings) -> Scalar:
        try:
            a, b = self._vector(left, found), self._vector(right, found)
        except Unfit:
            a, b = (self._element(left, found),), (self._element(right, found),)
        if len(a) != len(b):
            raise Unfit("no condition")
        if op in {"==", "!="}:
            held = _all(apply("==", *pair) for pair in zip(a, b, strict=True))
            return held if op == "==" else apply("not", held)
        if op not in {"<", "<=", ">", ">="} or not a:
            raise Unfit("no condition")
        names = {each.id for side in (left, right) for each in nodes(t.Name, side)}
        if len(a) > 1 and names.isdisjoint(found.sets):
            raise Unfit("vectors have no order")
        # boxes lie one after the other along the first iterator
        return apply(op, a[0], b[0])


def _sides(box: Box) -> Counter[tuple[Scalar, Scalar]]:
    """First positions and extents, in any order."""
    return Counter(zip(box.low, box.extents, strict=True))


def _inside(iters: Sequence[Scalar], box: Box) -> Scalar:
    return _all(
        apply("and", apply("<=", low, it), apply("<", it, apply("+", low, extent)))
        for it, low, extent in zip(iters, box.low, box.extents, strict=True)
    )


def _all(conditions: Iterable[Scalar]) -> Scalar:
    held: Scalar = num(True)
    for each in conditions:
        held = apply("and", held, each)
    return held
