"""Random expressions of the very form of a rule's left side: its unknowns at random.

Sets become small boxes, indexes vectors of one iterator or two, terms products or sums of reads, maps sums of iterators.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from dslc.analysis.numeric import interval
from dslc.derivation.left_sides import UnknownBindings, at_index
from dslc.derivation.pieces import Box, Map, Operands, Unfit, UnknownTerm, ranges
from dslc.derivation.right_sides import RightSide
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Value, input_value
from dslc.ir.scalar import Iter, Num, Scalar, apply, num, read
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t

LARGE = 1 << 12  #: elements of one expression at most


def formed(rule: t.Derivation, formulas: Sequence[t.Formula], seed: int) -> tuple[Value, ...] | None:
    """One value for each formula; None where the rule has a form that no random unknowns have."""
    try:
        return _Formed(rule, formulas, random.Random(seed)).values()
    except (Unfit, KeyError, ValueError):
        return None


class _Formed:
    """One choice of all unknowns of a left side."""

    def __init__(self, rule: t.Derivation, formulas: Sequence[t.Formula], drawn: random.Random) -> None:
        self.rule, self.formulas, self.drawn = rule, formulas, drawn
        self.operands = Operands()
        self.sets: dict[str, Box] = {}
        #: the set of each index
        self.own: dict[str, str] = {}
        self.inputs = 0

    def values(self) -> tuple[Value, ...]:
        found = UnknownBindings()
        self._boxes()
        called = {
            node.function for formula in self.formulas for node in walk_expr(formula.scope) if isinstance(node, t.Call)
        }
        for one in self.rule.declarations:
            if isinstance(one, t.MapDecl) and one.name in called:
                found = found.put("maps", one.name, self._map(one))
        found = self._tensors(found)
        for one in self.rule.declarations:
            if isinstance(one, t.TermDecl):
                for signature in one.signatures:
                    found = found.put("terms", signature.name, self._term(signature))
        for name, box in self.sets.items():
            found = found.put("sets", name, box)
        right = RightSide(self.rule, found, self.operands, DType.F32)
        return tuple(self._built(right, formula) for formula in self.formulas)

    def _built(self, right: RightSide, formula: t.Formula) -> Value:
        made = right.formula(formula)
        if formula.name is not None:
            right.built[formula.name] = made
        size = 1
        for extent in made.value.type.shape:
            size *= extent if isinstance(extent, int) else LARGE + 1
        if size > LARGE:
            raise Unfit("an expression that is too large")
        return made.value

    # ---- sets and maps -------------------------------------------------------------------------------------

    def _boxes(self) -> None:
        binders = [binder for one in self.rule.declarations if isinstance(one, t.IndexDecl) for binder in one.binders]
        self.own = {binder.name: binder.range.id for binder in binders if isinstance(binder.range, t.Name)}
        longest = 2 if len(set(self.own.values())) < 4 else 1
        for name in self.own.values():
            if name not in self.sets:
                self.sets[name] = self._box(self.drawn.randint(1, longest))
        for formula in self.formulas:
            for node in walk_expr(formula.scope):
                if isinstance(node, t.Binder) and isinstance(node.range, t.Name) and node.range.id not in self.sets:
                    self.sets[node.range.id] = self._box(len(self.sets[self.own[node.name]].low))

    def _box(self, rank: int) -> Box:
        return Box.of([self.drawn.choice((2, 3, 4)) for _ in range(rank)])

    def _map(self, one: t.MapDecl) -> Map:
        """Each value a sum of positions; what it maps into is as large as is needed, and at times larger."""
        params: list[Iter] = []
        whole = Box((), ())
        for name in _factors(one.domain):
            params += self.operands.fresh(len(self.sets[name].low))
            whole = whole * self.sets[name]
        at = dict(ranges(params, whole))
        values: list[Scalar] = []
        extents: list[int] = []
        left = list(params)
        self.drawn.shuffle(left)
        (name,) = _factors(one.codomain)
        for _ in self.sets[name].low:
            value: Scalar = num(0)
            for _ in range(min(len(left), self.drawn.randint(1, 2))):
                value = apply("+", value, apply("*", num(self.drawn.choice((1, 1, 2))), left.pop()))
            values.append(value)
            extents.append(interval(value, at)[1] + 1 + self.drawn.choice((0, 0, 1)))
        self.sets[name] = Box.of(extents)
        return Map(tuple(params), tuple(values))

    # ---- terms and tensors ---------------------------------------------------------------------------------

    def _tensors(self, found: UnknownBindings) -> UnknownBindings:
        """Tensors that are read at indexes; those that a term takes as a whole have the shape of its indexes."""
        for node in (each for formula in self.formulas for each in walk_expr(formula.scope)):
            if (
                isinstance(node, t.Subscript)
                and isinstance(node.base, t.Name)
                and node.base.id in self._declared_tensors()
            ):
                vectors = [self._iters(sub.id) for sub in node.subs if isinstance(sub, t.Name)]
                sizes = [
                    extent
                    for sub in node.subs
                    if isinstance(sub, t.Name)
                    for extent in self.sets[self.own[sub.id]].extents
                ]
                number = self._input(sizes)
                whole = read(number, tuple(it for vector in vectors for it in vector))
                term = UnknownTerm(tuple(vectors), whole)
                found = found.put("tensors", node.base.id, number).put("terms", at_index(node.base.id), term)
            elif isinstance(node, t.Call):
                for arg in node.args:
                    if isinstance(arg, t.Name) and arg.id in self._declared_tensors() and arg.id not in found.tensors:
                        names = [each.id for each in node.args if isinstance(each, t.Name) and each.id in self.own]
                        sizes = [extent for name in names for extent in self.sets[self.own[name]].extents]
                        found = found.put("tensors", arg.id, self._input(sizes))
        return found

    def _declared_tensors(self) -> set[str]:
        return {name for one in self.rule.declarations if isinstance(one, t.TensorDecl) for name in one.names}

    def _iters(self, index: str) -> tuple[Iter, ...]:
        return self.operands.fresh(len(self.sets[self.own[index]].low))

    def _term(self, signature: t.Signature) -> UnknownTerm:
        params: list[tuple[Iter, ...] | Iter | int] = []
        places: list[tuple[Scalar, Scalar]] = []
        elements: list[Scalar] = []
        tensors = self._taken(signature)
        for k, name in enumerate(signature.params):
            if name in self.own:
                vector = self._iters(name)
                params.append(vector)
                places += zip(vector, self.sets[self.own[name]].extents, strict=True)
            elif k in tensors:
                # a number that stands for whichever tensor is given
                number = self._input([extent for _, extent in places])
                params.append(number)
                elements.append(read(number, tuple(it for it, _ in places)))
            else:
                (element,) = self.operands.fresh()
                params.append(element)
                elements.append(element)
        for name in self._looked_for("groupings", signature.name):
            own = [vector for vector, each in zip(params, signature.params, strict=True) if self.own.get(each) == name]
            places = self._halved(places, own)
        body = self._body(places, elements)
        for name in self._looked_for("guarded", signature.name):
            # what is looked for is where the term changes along an index
            vectors = [
                vector for vector, each in zip(params, signature.params, strict=True) if self.own.get(each) == name
            ]
            along = [
                place for place in places if any(isinstance(vector, tuple) and place[0] in vector for vector in vectors)
            ]
            it, extent = self.drawn.choice(along)
            if isinstance(extent, Num):
                cut = self.drawn.randrange(1, int(extent.value))
                body = apply("select", apply("<", it, num(cut)), body, self._body(places, elements))
        return UnknownTerm(tuple(params), body)

    def _halved(
        self, places: Sequence[tuple[Scalar, Scalar]], vectors: Sequence[tuple[Iter, ...] | Iter | int]
    ) -> list[tuple[Scalar, Scalar]]:
        """Some of the places known by a quotient alone: `(p + r) // 2` for r."""
        own = {it for vector in vectors if isinstance(vector, tuple) for it in vector}
        beside = [place for place in places if place[0] not in own]
        made: list[tuple[Scalar, Scalar]] = list(beside)
        for it, extent in places:
            if it in own:
                other, more = self.drawn.choice([*beside, (num(0), num(1))])
                whole = apply("//", apply("+", it, other), num(2))
                made.append((whole, apply("+", apply("//", apply("+", extent, more), num(2)), num(1))))
        return made

    def _looked_for(self, generator: str, term: str) -> list[str]:
        """The sets along which the rule looks for something of a term."""
        calls = [
            one.domain for one in self.rule.statements if isinstance(one, t.Search) and isinstance(one.domain, t.Call)
        ]
        named = [
            [arg.id for arg in call.args if isinstance(arg, t.Name)] for call in calls if call.function == generator
        ]
        return [names[1] for names in named if len(names) == 2 and names[0] == term]

    def _taken(self, signature: t.Signature) -> set[int]:
        """Which parameters of a term are whole tensors."""
        calls = [node for formula in self.formulas for node in walk_expr(formula.scope) if isinstance(node, t.Call)]
        return {
            k for node in calls if node.function == signature.name
            for k, arg in enumerate(node.args) if isinstance(arg, t.Name) and arg.id in self._declared_tensors()
        }  # fmt: skip

    def _body(self, places: Sequence[tuple[Scalar, Scalar]], elements: Sequence[Scalar]) -> Scalar:
        """A product of the elements and of one read or two at the places, of which some stand together; or a sum of these."""
        parts = list(elements)
        for _ in range(self.drawn.randint(0 if elements else 1, 2)):
            own = [place for place in places if self.drawn.random() < 0.8] or list(places)
            self.drawn.shuffle(own)
            parts.append(self._read(own))
        whole = parts[0] if len(parts) == 1 else apply(self.drawn.choice("**+"), *parts)
        return apply("+", whole, num(1)) if self.drawn.random() < 0.1 else whole

    def _read(self, places: list[tuple[Scalar, Scalar]]) -> Scalar:
        index: list[Scalar] = []
        sizes: list[Scalar] = []
        beside = False
        while places:
            value, extent = places.pop()
            at: Scalar = value
            if places and self.drawn.random() < 0.3:
                other, more = places.pop()
                at, extent = apply("+", at, other), apply("+", extent, apply("-", more, num(1)))
            if self.drawn.random() < 0.2 and isinstance(extent, Num) and extent.value > 1:
                at, extent, beside = apply("-", at, num(1)), apply("-", extent, num(1)), True
            index.append(at)
            sizes.append(apply("+", extent, num(self.drawn.choice((0, 0, 1)))))
        return read(self._input(sizes), tuple(index), num(0) if beside else None)

    def _input(self, sizes: Sequence[Scalar]) -> int:
        self.inputs += 1
        shape = tuple(int(size.value) for size in sizes if isinstance(size, Num))
        return self.operands.number(input_value(f"T{self.inputs}", TensorType(DType.F32, shape)))


def _factors(node: t.Expr) -> Iterator[str]:
    if isinstance(node, t.Binary) and node.op == "*":
        yield from _factors(node.left)
        yield from _factors(node.right)
    elif isinstance(node, t.Name):
        yield node.id
    else:
        raise Unfit("no product of sets")
