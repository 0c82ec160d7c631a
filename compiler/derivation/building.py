"""Right sides of derivations: scopes put together from what the unknowns stand for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dslc.analysis.narrowing import sum_ranges
from dslc.analysis.numeric import in_bounds
from dslc.derivation.matching import UnknownBindings, at_index
from dslc.derivation.pieces import Box, Operands, Tensor, Unfit, Vector, is_part, ranges
from dslc.ir.dtype import DType
from dslc.ir.graph import Value
from dslc.ir.scalar import Iter, Read, Scalar, apply, num, read, rebuild, reduce
from dslc.ir.scopes import each_of, stack
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import FUNCTIONS_1, FUNCTIONS_N


@dataclass(frozen=True, slots=True)
class BuiltValue:
    """A value that stands for a function on a box: its positions are counted from the box's first one."""

    value: Value
    box: Box
    other: Scalar | None = None
    #: the iterators that the value depends on, where it has no other axes
    axes: tuple[int, ...] | None = None
    #: what is left of it, where a rule says so
    only: Box | None = None


class Right:
    """The right side of a rule, in one application; raises Unfit where something is not determined or does not fit."""

    def __init__(self, rule: t.Derivation, found: UnknownBindings, operands: Operands, dtype: DType) -> None:
        self.rule, self.operands, self.dtype = rule, operands, dtype
        self.found = found
        self.built: dict[str, BuiltValue] = {}
        self.ranges = {
            binder.name: binder.range.id
            for declared in rule.declarations if isinstance(declared, t.IndexDecl)
            for binder in declared.binders if isinstance(binder.range, t.Name)
        }  # fmt: skip

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
        if made.only is not None and _sides(made.only) != _sides(before.box):
            raise Unfit("a result on another box")
        if made.box == before.box and made.other is None:
            if made.value.type != before.value.type:
                raise Unfit("a result of another type")
            return made.value
        iters = self.operands.fresh(len(before.iters))
        return self.operands.scope(iters, before.box, self._at(made, iters), before.dtype)

    def formula(self, formula: t.Formula) -> BuiltValue:
        """What one formula makes, of those that are in `built` by now."""
        node = formula.scope
        if isinstance(node, t.Traversal):
            return self._traversal(node, formula.name)
        if isinstance(node, t.Nested) and node.subs is None:
            return self._braced(node, formula.name)
        if isinstance(node, t.Restrict):
            return replace(self._made(node.scope, formula.name), only=self._set(node.domain))
        if isinstance(node, t.Join):
            return self._joined(node, formula.name)
        if isinstance(node, t.Call) and node.function == "stack":
            return self._stacked(node)
        raise Unfit(f"no expression: {type(node).__name__}")

    def _made(self, node: t.Expr, name: str | None) -> BuiltValue:
        if isinstance(node, t.Name) and node.id in self.built:
            return self.built[node.id]
        if isinstance(node, t.Nested) and node.subs is None:
            return self._braced(node, name)
        if isinstance(node, t.Traversal):
            return self._traversal(node, name)
        raise Unfit("no scope")

    def _braced(self, node: t.Nested, name: str | None, top: bool = True, whole: bool = True) -> BuiltValue:
        made = self._traversal(node.scope, name, top, whole or node.other is not None)
        return made if node.other is None else replace(made, other=self._element(node.other, self.found))

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
        names = [arg.id for arg in node.args if isinstance(arg, t.Name)]
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
        if not isinstance(node, t.Traversal) or node.where is not None:
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
        if all(
            node.other is not None or in_bounds(node.index, self.operands.values[node.operand].type.shape, within)
            for node in each_of(Read, body)
        ):
            return body
        return rebuild(body, lambda node: self._read_or_zero(node, within))

    def _read_or_zero(self, node: Scalar, within: Mapping[Scalar, tuple[int, int]]) -> Scalar | None:
        if not isinstance(node, Read) or node.other is not None or any(part.reads for part in node.index):
            return None
        if in_bounds(node.index, self.operands.values[node.operand].type.shape, within):
            return None
        return read(node.operand, node.index, num(0))

    def _box(self, binder: t.Binder) -> Box:
        """What an index of a traversal runs through."""
        if binder.range is not None:
            return self._set(binder.range)
        name = self.ranges.get(binder.name)
        if name is not None and name in self.found.sets:
            return self.found.sets[name]
        raise Unfit(f"the range of {binder.name} is not determined")

    def _set(self, node: t.Expr) -> Box:
        if isinstance(node, t.Name) and node.id in self.found.sets:
            return self.found.sets[node.id]
        if isinstance(node, t.Int):
            return Box.of([node.value])
        if isinstance(node, t.Binary) and node.op == "+":
            return self._set(node.left) + self._set(node.right)
        if isinstance(node, t.Binary) and node.op == "*":
            return self._set(node.left) * self._set(node.right)
        if isinstance(node, t.Call) and node.function == "hull" and len(node.args) == 2:
            return self._set(node.args[0]).hull(self._set(node.args[1]))
        raise Unfit("a range that is not determined")

    # ---- elements ------------------------------------------------------------------------------------------

    def _element(self, node: t.Expr, found: UnknownBindings) -> Scalar:
        if isinstance(node, t.Reduction):
            return self._reduction(node, found)
        if isinstance(node, t.Call) and node.function in found.terms:
            term = found.terms[node.function]
            if len(term.params) != len(node.args):
                raise Unfit("a term of another number of arguments")
            return term([self._argument(arg, param, found) for arg, param in zip(node.args, term.params, strict=True)])
        if isinstance(node, t.Nested | t.Subscript):
            tensor, rest = self._function(node, found)
            return tensor(rest)
        if isinstance(node, t.Conditional):
            condition = self._condition(node.condition, found)
            return apply("select", condition, self._element(node.then, found), self._element(node.otherwise, found))
        if isinstance(node, t.Int | t.Float):
            return num(node.value if isinstance(node, t.Int) else Fraction(node.text))
        if isinstance(node, t.Unary) and node.op == "-":
            return apply("*", num(-1), self._element(node.operand, found))
        if isinstance(node, t.Binary) and node.op in {"+", "-", "*", "/", "//", "%", "^"}:
            return apply(node.op, self._element(node.left, found), self._element(node.right, found))
        if isinstance(node, t.Call) and node.function in FUNCTIONS_1 | FUNCTIONS_N:
            return apply(node.function, *(self._element(arg, found) for arg in node.args))
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
        where = None if node.where is None else self._condition(node.where, found)
        return reduce(node.kind, tuple(iters), tuple(extents), self._element(node.body, found), where)

    def _argument(
        self, node: t.Expr, param: tuple[Iter, ...] | Iter | int, found: UnknownBindings
    ) -> Vector | Scalar | Tensor:
        """What a term takes: a vector of positions, a tensor, or an element."""
        if isinstance(param, Iter):
            return self._element(node, found)
        if isinstance(node, t.Name) and node.id in found.tensors:
            return self._tensor(node.id, found)
        if isinstance(node, t.Subscript) and isinstance(node.base, t.Name) and node.base.id in self.built:
            made = self.built[node.base.id]
            at = self._index(node.subs, found)
            if len(at) < len(made.box.low):
                # part of an index: a tensor of what is left
                return lambda rest: self._at(made, (*at, *rest))
            return self._at(made, at)
        if isinstance(node, t.Nested | t.Subscript):
            return self._element(node, found)
        return self._vector(node, found)

    def _function(self, node: t.Nested | t.Subscript, found: UnknownBindings) -> tuple[Tensor, Vector]:
        at = self._index(node.subs or (), found)
        beside = node.other if isinstance(node, t.Subscript) else node.subs_other
        other = None if beside is None else self._element(beside, found)
        if isinstance(node, t.Subscript):
            if isinstance(node.base, t.Name) and node.base.id in self.built:
                made = _beside(self.built[node.base.id], other)
                return (lambda index: self._at(made, index)), at
            if isinstance(node.base, t.Name) and at_index(node.base.id) in found.terms and other is None:
                term, vectors = found.terms[at_index(node.base.id)], [self._vector(sub, found) for sub in node.subs]
                return (lambda index: term(vectors)), at
            if (
                isinstance(node.base, t.Name)
                and node.base.id in found.tensors
                and at_index(node.base.id) not in found.terms
            ):
                return self._tensor(node.base.id, found, other), at
            raise Unfit("no tensor")
        made = _beside(self._braced(replace(node, subs=None), None, top=False, whole=other is not None), other)
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
        if isinstance(node, t.Name):
            if node.id in found.indexes:
                return found.indexes[node.id]
            if node.id in found.sets and found.sets[node.id].extents:
                # the size of a range
                return found.sets[node.id].extents
        if isinstance(node, t.Int):
            return (num(node.value),)
        if isinstance(node, t.Call):
            name, _, way = node.function.partition(".")
            if name in found.maps:
                at = self._index(node.args, found)
                return found.maps[name].inverse(at) if way == "inverse" else found.maps[name](at)
        if isinstance(node, t.Binary) and node.op in {"+", "-", "*", "//", "%"}:
            left, right = self._vector(node.left, found), self._vector(node.right, found)
            if len(left) == 1 < len(right):
                left = left * len(right)
            if len(right) == 1 < len(left):
                right = right * len(left)
            if (
                node.op in {"+", "-"}
                and isinstance(node.right, t.Name)
                and node.right.id in found.sets
                and len(left) == len(right)
            ):
                # behind a box lies another one along the first iterator
                right = (right[0], *(num(0) for _ in right[1:]))
            if len(left) == len(right):
                return tuple(apply(node.op, a, b) for a, b in zip(left, right, strict=True))
        raise Unfit("no positions")

    def _condition(self, node: t.Expr, found: UnknownBindings) -> Scalar:
        """What is known of positions: vectors are equal where all of their iterators are."""
        if isinstance(node, t.Unary) and node.op == "not":
            return apply("not", self._condition(node.operand, found))
        if isinstance(node, t.Binary) and node.op in {"and", "or"}:
            return apply(node.op, self._condition(node.left, found), self._condition(node.right, found))
        if not isinstance(node, t.Compare):
            raise Unfit("no condition")
        held: Scalar = num(True)
        for op, left, right in zip(node.ops, node.operands, node.operands[1:], strict=False):
            held = apply("and", held, self._compared(op, left, right, found))
        return held

    def _compared(self, op: str, left: t.Expr, right: t.Expr, found: UnknownBindings) -> Scalar:
        try:
            a, b = self._vector(left, found), self._vector(right, found)
        except Unfit:
            a, b = (self._element(left, found),), (self._element(right, found),)
        if len(a) != len(b):
            raise Unfit("no condition")
        if op in {"==", "!="}:
            held: Scalar = num(True)
            for one, other in zip(a, b, strict=True):
                held = apply("and", held, apply("==", one, other))
            return held if op == "==" else apply("not", held)
        if op not in {"<", "<=", ">", ">="} or not a:
            raise Unfit("no condition")
        names = {each.id for side in (left, right) for each in walk_expr(side) if isinstance(each, t.Name)}
        if len(a) > 1 and names.isdisjoint(found.sets):
            raise Unfit("vectors have no order")
        # boxes lie one after the other along the first iterator
        return apply(op, a[0], b[0])


def _beside(made: BuiltValue, other: Scalar | None) -> BuiltValue:
    """With a value outside of it, where a read says one."""
    return made if other is None else replace(made, other=other)


def _sides(box: Box) -> Counter[tuple[Scalar, Scalar]]:
    """First positions and extents, in any order."""
    return Counter(zip(box.low, box.extents, strict=True))


def _inside(iters: Sequence[Scalar], box: Box) -> Scalar:
    held: Scalar = num(True)
    for it, low, extent in zip(iters, box.low, box.extents, strict=True):
        held = apply("and", held, apply("and", apply("<=", low, it), apply("<", it, apply("+", low, extent))))
    return held
