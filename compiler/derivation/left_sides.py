"""Left sides of derivations: what their unknowns stand for in scopes at hand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice, product

from dslc.analysis.numeric import in_bounds
from dslc.derivation.maps import image
from dslc.derivation.pieces import Box, Iters, Map, Operands, Ranges, ScopeView, Unfit, UnknownTerm, ranges, view_of
from dslc.ir.graph import Value
from dslc.ir.scalar import Iter, Num, Read, Scalar, apply, num, read, replaced, scalars
from dslc.ir.scopes import each_of, substitute
from dslc.semantics.checks.forms import inside
from dslc.syntax import tree as t

#: the key of the order of axes of the scope inside that was matched last
_NESTED = "{}"


CHOICES = 1 << 12  #: ways to give iterators to names that are looked at, of one scope


@dataclass(frozen=True)
class UnknownBindings:
    """Bindings of the unknowns, by name. `order`: of each formula the traversal as it stands: index names and places in them."""

    indexes: Mapping[str, Iters] = field(default_factory=dict)
    sets: Mapping[str, Box] = field(default_factory=dict)
    terms: Mapping[str, UnknownTerm] = field(default_factory=dict)
    maps: Mapping[str, Map] = field(default_factory=dict)
    tensors: Mapping[str, int] = field(default_factory=dict)
    formulas: Mapping[str | None, ScopeView] = field(default_factory=dict)
    order: Mapping[str | None, tuple[tuple[str, int], ...]] = field(default_factory=dict)

    def box(self, node: t.Expr) -> Box:
        """The box of a set; raises Unfit where it is not determined."""
        match node:
            case t.Name(id=name) if name in self.sets:
                return self.sets[name]
            case t.Int(value=size):
                return Box.of([size])
            case t.Binary(op="+"):
                return self.box(node.left) + self.box(node.right)
            case t.Binary(op="*"):
                return self.box(node.left) * self.box(node.right)
            case t.Call(function="hull", args=(left, right)):
                return self.box(left).hull(self.box(right))
            case t.Call(function="image", args=(name, domain)):
                mapped = self.maps[id_of(name)]
                return image(mapped.params, mapped.values, self.box(domain))
        raise Unfit("a set that is not determined")

    def put(self, kind: str, name: str | None, value: object) -> UnknownBindings:
        # as `dataclasses.replace` does it, in a fifth of the time
        new = object.__new__(UnknownBindings)
        new.__dict__.update(self.__dict__)
        new.__dict__[kind] = {**self.__dict__[kind], name: value}
        return new


class LeftSide:
    """The left side of a rule, in one application."""

    def __init__(self, rule: t.Derivation, formulas: Sequence[t.Formula], operands: Operands) -> None:
        self.formulas, self.operands = formulas, operands
        self.ranges = sets_of_indexes(rule)
        #: iterators of one position
        self.single: set[Iter] = set()
        #: the index of each `reads(f, x)`
        self.reads = [
            node.args[1].id for one in rule.declarations if isinstance(one, t.Where) for node in one.conditions
            if isinstance(node, t.Call) and node.function == "reads" and len(node.args) == 2 and isinstance(node.args[1], t.Name)
        ]  # fmt: skip
        self.terms = {s.name: s for d in rule.declarations if isinstance(d, t.TermDecl) for s in d.signatures}
        self.maps = {d.name for d in rule.declarations if isinstance(d, t.MapDecl)}
        self.tensors = {n for d in rule.declarations if isinstance(d, t.TensorDecl) for n in d.names}

    def match(self, values: Sequence[Value]) -> Iterator[UnknownBindings]:
        """Every way in which the formulas stand for these values, in their order."""
        yield from self._formulas(0, values, UnknownBindings())

    def _formulas(self, at: int, values: Sequence[Value], found: UnknownBindings) -> Iterator[UnknownBindings]:
        if at == len(self.formulas):
            yield found
            return
        formula = self.formulas[at]
        view = view_of(values[at], self.operands)
        if not view:
            return
        known = found.put("formulas", formula.name, view)
        for each in self._scope(inside(formula.scope), view, known, formula.name, top=True):
            yield from self._formulas(at + 1, values, each)

    # ---- scopes --------------------------------------------------------------------------------------------

    def _scope(
        self, node: t.Expr, view: ScopeView, found: UnknownBindings, name: str | None, top: bool
    ) -> Iterator[UnknownBindings]:
        if not isinstance(node, t.Traversal) or node.where:
            return
        binders = [place for place in node.places if isinstance(place, t.Binder)]
        if len(binders) != len(node.places):
            return
        names = [binder.name for binder in binders]
        single = {it for it, extent in zip(view.iters, view.box.extents, strict=True) if extent is num(1)}
        self.single |= single
        ways = _parts(names, view.iters, found.indexes, single, self._unread(names, view))
        for each, renamed, classes in self._assigned(binders, view.iters, view.box, ways, found):
            where = {it: (n, k) for n, part in zip(names, classes, strict=True) for k, it in enumerate(part)}
            each = each.put("order", name if top else _NESTED, tuple(where[it] for it in view.iters))
            yield from self._body(node.body, replace(view, body=substitute(view.body, renamed)), each)

    def _assigned(
        self,
        binders: Sequence[t.Binder],
        iters: Iters,
        box: Box,
        ways: Iterable[tuple[Iters, ...]],
        found: UnknownBindings,
    ) -> Iterator[tuple[UnknownBindings, dict[Iter, Scalar], tuple[Iters, ...]]]:
        """The bindings of ways to give iterators to names, with known iterators for others of the same name."""
        places = dict(zip(iters, zip(box.low, box.extents, strict=True), strict=True))
        for classes in ways:
            each, renamed = found, dict[Iter, Scalar]()
            for binder, part in zip(binders, classes, strict=True):
                before = each.indexes.get(binder.name, part)
                renamed.update((a, b) for a, b in zip(part, before, strict=True) if a is not b)
                own = Box(tuple(places[it][0] for it in part), tuple(places[it][1] for it in part))
                bound = self._bound(each, binder, part, own)
                if not bound:
                    break
                each = bound
            else:
                yield each, renamed, classes

    def _bound(self, found: UnknownBindings, binder: t.Binder, part: Iters, box: Box) -> UnknownBindings | None:
        """With an index that stands for iterators; None where its set is another box."""
        if isinstance(binder.range, t.Int) and box != Box.of([binder.range.value]):
            return None
        own = _name(binder.range) if binder.range else self.ranges.get(binder.name)
        if own is not None:
            # one set is one box, whatever runs through it
            if found.sets.get(own, box) != box:
                return None
            found = found.put("sets", own, box)
        return found if binder.name in found.indexes else found.put("indexes", binder.name, part)

    def _unread(self, names: Sequence[str], view: ScopeView) -> Mapping[str, Collection[Iter]]:
        """For indexes at which a condition says that terms read: the iterators at which too little is read for that."""
        wanted = {name: self.reads.count(name) for name in names if name in self.reads}
        reads = [each.index for each in each_of(Read, view.body)]
        counts = {it: sum(it in index for index in reads) for it in view.iters}
        return {name: {it for it, count in counts.items() if count < least} for name, least in wanted.items()}

    def _body(self, node: t.Expr, view: ScopeView, found: UnknownBindings) -> Iterator[UnknownBindings]:
        """The outermost summation, and what is below it."""
        if not isinstance(node, t.Reduction):
            if view.kind is None:
                yield from self._element(node, view.body, found)
            return
        names = [binder.name for binder in node.binders]
        if view.kind is None and len(names) == 1 and names[0] not in found.indexes and node.where is None:
            # a sum over nothing
            empty = self._bound(found, node.binders[0], (), Box((), ()))
            if empty:
                yield from self._element(node.body, view.body, empty)
            return
        if view.kind != node.kind or node.where:
            return
        ways = _parts(names, view.sums, found.indexes)
        for each, renamed, _ in self._assigned(node.binders, view.sums, Box.of(view.sum_extents), ways, found):
            yield from self._element(node.body, substitute(view.body, renamed), each)

    # ---- elements ------------------------------------------------------------------------------------------

    def _element(self, node: t.Expr, body: Scalar, found: UnknownBindings) -> Iterator[UnknownBindings]:
        match node:
            case t.Call(function=name) if name in self.terms:
                yield from self._term(node, body, found)
            case t.Nested() | t.Subscript() if isinstance(body, Read):
                yield from self._read(node, body, found)
            case t.Int() | t.Float():
                if isinstance(body, Num) and body.value == number_in(node).value:
                    yield found
            case t.Binary(op="*" | "+" | "-" as op):
                yield from self._several("*" if op == "*" else "+", operands_of(node), body, found)
            case t.Binary(op=op) if body.op == op:
                for left in self._element(node.left, body.args[0], found):
                    yield from self._element(node.right, body.args[1], left)

    def _several(
        self, op: str, nodes: Sequence[tuple[int, t.Expr]], body: Scalar, found: UnknownBindings
    ) -> Iterator[UnknownBindings]:
        """`f(x) * g(x, y)`: every way to give each factor of a product (or each part of a sum) to one of the operands."""
        parts = body.args if body.op == op else (body,)
        if len(parts) < len(nodes):
            return
        for choice in islice(product(range(len(nodes)), repeat=len(parts)), CHOICES):
            if len(set(choice)) < len(nodes):
                continue
            states = [found]
            for k, (sign, node) in enumerate(nodes):
                own = apply(op, *(part for part, j in zip(parts, choice, strict=True) if j == k))
                if sign < 0:
                    own = apply("*", num(-1), own)
                states = [after for each in states for after in self._element(node, own, each)]
            yield from states

    def _term(self, node: t.Call, body: Scalar, found: UnknownBindings) -> Iterator[UnknownBindings]:
        """`f(x, y, A)`: what f stands for, or whether it stands for this."""
        states: list[tuple[tuple[object, ...], Scalar, UnknownBindings]] = [((), body, found)]
        for arg in node.args:
            after: list[tuple[tuple[object, ...], Scalar, UnknownBindings]] = []
            for params, rest, each in states:
                after += [((*params, param), left, known) for param, left, known in self._param(arg, rest, each)]
            states = after
        for params, rest, each in states:
            allowed = {it for p in params for it in (p if isinstance(p, tuple) else (p,)) if isinstance(it, Iter)}
            if not rest.free <= allowed:
                continue
            known = each.terms.get(node.function)
            if not known:
                yield each.put("terms", node.function, UnknownTerm(tuple(params), rest))  # type: ignore[arg-type]
            elif self._same(known, params, rest):
                yield each

    def _param(
        self, arg: t.Expr, body: Scalar, found: UnknownBindings
    ) -> Iterator[tuple[object, Scalar, UnknownBindings]]:
        """An argument of a term: an index, a whole tensor, or an element, which is taken out of the body."""
        if isinstance(arg, t.Name) and arg.id in found.indexes:
            yield found.indexes[arg.id], body, found
        elif isinstance(arg, t.Name) and arg.id in self.tensors:
            numbers = {n.operand for n in scalars(Read, body)}
            known = found.tensors.get(arg.id)
            for number in sorted(numbers & {known} if known is not None else numbers - {*found.tensors.values()}):
                yield number, body, found.put("tensors", arg.id, number)
        elif isinstance(arg, t.Nested | t.Subscript):
            for node in list(scalars(Read, body)):
                for each in self._read(arg, node, found):
                    (place,) = self.operands.fresh()
                    yield place, replaced(body, node, place), each

    def _same(self, known: UnknownTerm, params: Sequence[object], body: Scalar) -> bool:
        """Return whether a term that is known gives this body: where its tensors are others, reads of those are compared."""
        args = [
            (lambda index, number=param: read(number, index)) if isinstance(param, int) else param for param in params
        ]
        try:
            return known(args) is body  # type: ignore[arg-type]
        except Unfit:
            return False

    def _read(self, node: t.Nested | t.Subscript, body: Read, found: UnknownBindings) -> Iterator[UnknownBindings]:
        """`{[z] ...}[phi(x)]`, `P[tau(z)]` or `A[u, x]` as an element that is read."""
        value = self.operands.values[body.operand]
        subs = node.subs or ()
        if isinstance(node, t.Subscript):
            name = _name(node.base)
            if name in found.formulas:
                if found.formulas[name].value == value:
                    yield from self._index(subs, body, found)
            elif name in self.tensors and name not in found.tensors:
                yield from self._tensor(str(name), subs, body, found)
            return
        view = view_of(value, self.operands)
        if view:
            inner = inside(node.scope)
            places = inner.places if isinstance(inner, t.Traversal) else ()
            names = [place.name for place in places if isinstance(place, t.Binder)]
            for each in self._scope(inner, view, found, None, top=False):
                yield from self._index(subs, body, each, names)

    def _tensor(
        self, name: str, subs: Sequence[t.Expr], body: Read, found: UnknownBindings
    ) -> Iterator[UnknownBindings]:
        """A tensor at some iterators: what is read at an index of them, in any order and form."""
        params = tuple(found.indexes[sub.id] for sub in subs if isinstance(sub, t.Name) and sub.id in found.indexes)
        if len(params) == len(subs) and body.free <= {it for vector in params for it in vector}:
            yield found.put("tensors", name, body.operand).put("terms", at_index(name), UnknownTerm(params, body))

    def _index(
        self, subs: Sequence[t.Expr], body: Read, found: UnknownBindings, places: Sequence[str] = ()
    ) -> Iterator[UnknownBindings]:
        """The index of a read: an unknown map, or iterators as they are.

        `places`: those of the scope that is read, whose axes may stand in another order.
        """
        if len(subs) == 1 and isinstance(subs[0], t.Call) and subs[0].function in self.maps:
            call = subs[0]
            params: list[Iter] = []
            for arg in call.args:
                if not isinstance(arg, t.Name) or arg.id not in found.indexes:
                    return
                params += found.indexes[arg.id]
            if body.other and not self._reads_inside(body, found):
                return
            if {it for part in body.index for it in part.free} <= set(params) and call.function not in found.maps:
                yield found.put("maps", call.function, Map(tuple(params), body.index))
            return
        wanted: list[Iter] = []
        for sub in subs:
            if not isinstance(sub, t.Name) or sub.id not in found.indexes:
                return
            wanted += found.indexes[sub.id]
        if len(places) == len(subs):
            at = dict(zip(places, (found.indexes[sub.id] for sub in subs if isinstance(sub, t.Name)), strict=True))
            axes = found.order[_NESTED]
            if any(k >= len(at[name]) for name, k in axes):
                return
            wanted = [at[name][k] for name, k in axes]
        # at the one position of an iterator it may stand as 0
        if len(wanted) == len(body.index) and all(
            it is at or (at is num(0) and it in self.single) for it, at in zip(wanted, body.index, strict=True)
        ):
            yield found

    def _reads_inside(self, body: Read, found: UnknownBindings) -> bool:
        """Return whether it is known that nothing is read beside a value."""
        within: Ranges = {}
        for name, iters in found.indexes.items():
            if self.ranges.get(name) in found.sets:
                try:
                    within.update(ranges(iters, found.sets[self.ranges[name]]))
                except Unfit:
                    return False
        return in_bounds(body.index, self.operands.values[body.operand].type.shape, within)


def operands_of(node: t.Expr, op: str | None = None, sign: int = 1) -> tuple[tuple[int, t.Expr], ...]:
    """`a * b * c` → `a, b, c`, `a - b + c` → `a, -b, c`: with signs."""
    op = op or ("*" if isinstance(node, t.Binary) and node.op == "*" else "+")
    if isinstance(node, t.Binary) and node.op in ({"*"} if op == "*" else {"+", "-"}):
        return *operands_of(node.left, op, sign), *operands_of(node.right, op, -sign if node.op == "-" else sign)
    return ((sign, node),)


def number_in(node: t.Int | t.Float) -> Num:
    """The number of a literal."""
    return num(node.value if isinstance(node, t.Int) else Fraction(node.text))


def sets_of_indexes(rule: t.Derivation) -> dict[str, str]:
    """The set that each index of a rule is declared with."""
    binders = [binder for one in rule.declarations if isinstance(one, t.IndexDecl) for binder in one.binders]
    return {binder.name: binder.range.id for binder in binders if isinstance(binder.range, t.Name)}


def id_of(node: t.Expr | None) -> str:
    """The text of a name; raises Unfit for anything else."""
    if not isinstance(node, t.Name):
        raise Unfit("a name is wanted")
    return node.id


def at_index(name: str) -> str:
    """The name of a tensor of a rule as a term of the iterators that it is read at."""
    return f"{name}[]"


def _name(node: t.Expr | None) -> str | None:
    return node.id if isinstance(node, t.Name) else None


def _parts(
    names: Sequence[str], iters: Iters, known: Mapping[str, Iters], single: Collection[Iter] = (),
    barred: Mapping[str, Collection[Iter]] = {},
) -> Iterator[tuple[Iters, ...]]:  # fmt: skip
    """Every way to give each iterator to one of the names; of several names each gets at least one.

    A name that stands for iterators already gets as many. `single`: iterators of one position, which go with the first name.
    `barred`: iterators that a name does not stand for.
    """
    if len(names) == 1:
        if len(iters) == len(known.get(names[0], iters)):
            yield (iters,)
        return
    wanted = [len(known[name]) if name in known else None for name in names]
    options = [
        [0] if it in single else [k for k, name in enumerate(names) if it not in barred.get(name, ())] for it in iters
    ]
    for choice in islice(product(*options), CHOICES):
        if any(count != choice.count(k) if count is not None else k not in choice for k, count in enumerate(wanted)):
            continue
        classes = tuple(tuple(it for it, k in zip(iters, choice, strict=True) if k == j) for j in range(len(names)))
        yield classes
