"""What is tried for the unknowns that no left side determines, and what conditions say of them.

The generators that `search` names. They know no benchmark: factors are those that divide an extent and occur as a coefficient or a
modulus in the expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dslc.analysis.iterators import coefficient_of
from dslc.derivation.maps import by_reads, changed, flattened, image, merged, split, together
from dslc.derivation.matching import UnknownBindings
from dslc.derivation.pieces import Box, Map, Operands, Unfit, UnknownTerm, ranges
from dslc.derivation.quotients import groupings, lookups
from dslc.derivation.zeros import cuts, nonzero_box, only_positions, read_at, total
from dslc.ir.scalar import Apply, Iter, Num, Read, Scalar, apply, num, walk
from dslc.ir.scopes import each_of, substitute
from dslc.syntax import tree as t

SHORT = 16  #: extents up to which every part is a size to split by


#: generators that find nothing in an expression without one of these functions
NEEDED: Mapping[str, frozenset[str]] = {"groupings": frozenset({"//"}), "guarded": frozenset({"select"})}


def may_apply(rule: t.Derivation, body: Scalar) -> bool:
    """Whether what `search` looks for may be in an expression: soon told, before the left side is matched."""
    domains = [one.domain for one in rule.statements if isinstance(one, t.Search)]
    wanted = [NEEDED.get(domain.function) for domain in domains if isinstance(domain, t.Call)]
    if not any(wanted):
        return True
    known = {node.name for node in walk(body) if isinstance(node, Apply)}
    return all(names is None or not names.isdisjoint(known) for names in wanted)


@dataclass(frozen=True, slots=True)
class _Factors:
    """Sizes to split by, or to round up to multiples of; `listed`: the rule says which, and no others are tried."""

    numbers: tuple[int, ...]
    listed: bool = False

    def short(self, extent: Scalar) -> tuple[int, ...]:
        return () if self.listed else _short(extent)


@dataclass(frozen=True)
class Unknowns:
    """The unknowns of one application: `iters` of indexes with their boxes, and the term that they are looked for in."""

    rule: t.Derivation
    operands: Operands

    def every(self, found: UnknownBindings) -> Iterator[UnknownBindings]:
        """The bindings with every choice of what `search` looks for, as far as the conditions hold."""
        searches = [each for each in self.rule.statements if isinstance(each, t.Search)]
        for chosen in self._chosen(searches, found):
            try:
                solved = self._solved(chosen)
            except Unfit:
                continue
            if solved is not None:
                yield solved

    def _chosen(self, searches: Sequence[t.Search], found: UnknownBindings) -> Iterator[UnknownBindings]:
        if not searches:
            yield found
            return
        first, *rest = searches
        for value in self._generated(first, found):
            if isinstance(value, Map):
                each = found.put("maps", first.name, value)
                declared = self._declared(first.name)
                if declared is not None and value.box is not None:
                    # what it maps into; or of what it maps that which nothing else says
                    for name in (_id(declared.codomain), *_names(declared.domain)):
                        if name not in found.sets:
                            each = each.put("sets", name, value.box)
                            break
            else:
                each = found.put("sets", first.name, value)
            yield from self._chosen(rest, each)

    def _declared(self, name: str) -> t.MapDecl | None:
        return next(
            (each for each in self.rule.declarations if isinstance(each, t.MapDecl) and each.name == name), None
        )

    # ---- generators ----------------------------------------------------------------------------------------

    def _generated(self, wanted: t.Search, found: UnknownBindings) -> Iterator[Any]:
        node = wanted.domain
        if not isinstance(node, t.Call):
            return
        name = node.function
        if name == "affine_bijections":
            rank = next(
                (entry.value.value for entry in node.kwargs if entry.name == "rank" and isinstance(entry.value, t.Int)),
                None,
            )
            for each in self._bijections(
                self._index_of(node.args[0], found), found, self._factors(node, "factors", found)
            ):
                if rank is None or changed(each) <= rank:
                    yield each
        elif name == "nonzero_box" and len(node.args) == 2:
            term = found.terms[_id(node.args[0])]
            box = nonzero_box(term, self._index_of(node.args[1], found), self.operands)
            if box is not None:
                yield box
        elif name == "nonzero_positions" and len(node.args) == 2:
            yield from self._positions(found.terms[_id(node.args[0])], self._index_of(node.args[1], found), found)
        elif name == "rounded_up":
            yield from self._rounded(self._index_of(node.args[0], found), found, self._factors(node, "to", found))
        elif name == "guarded" and len(node.args) == 2:
            yield from self._guarded(found.terms[_id(node.args[0])], self._index_of(node.args[1], found), found)
        elif name == "flattenings":
            flat = flattened(*self._index_of(node.args[0], found), self.operands)
            if flat is not None:
                yield flat
        elif name == "groupings" and len(node.args) == 2:
            yield from self._grouped(
                wanted.name, found.terms[_id(node.args[0])], self._index_of(node.args[1], found)[0], found
            )
        elif name == "sections":
            whole = found.maps[_id(node.args[0])]
            if whole.back is not None:
                yield Map(whole.back_params, whole.back)
        elif name == "halves":
            yield from self._halves(self._box(node.args[0], found))

    def _factors(self, node: t.Call, option: str, found: UnknownBindings) -> _Factors:
        """The numbers that an option of a generator lists; else what the expression suggests: its coefficients and moduli."""
        given = next((entry.value for entry in node.kwargs if entry.name == option), None)
        if isinstance(given, t.Int | t.ListExpr):
            items = given.elements if isinstance(given, t.ListExpr) else (given,)
            return _Factors(
                tuple(sorted({item.value for item in items if isinstance(item, t.Int) and item.value > 1})), True
            )
        suggested = {each for term in found.terms.values() for each in coefficients(term.body)}
        return _Factors(tuple(sorted(each for each in suggested if each > 1)))

    def _index_of(self, node: t.Expr, found: UnknownBindings) -> tuple[tuple[Iter, ...], Box]:
        """The iterators that run through a declared set, and their box."""
        name = _id(node)
        for declared in self.rule.declarations:
            if isinstance(declared, t.IndexDecl):
                for binder in declared.binders:
                    if _id(binder.range) == name and binder.name in found.indexes:
                        return found.indexes[binder.name], found.sets[name]
        raise Unfit("no index runs through this set")

    def _box(self, node: t.Expr, found: UnknownBindings) -> Box:
        try:
            return found.sets[_id(node)]
        except KeyError:
            raise Unfit("no such set") from None

    def _bijections(
        self, index: tuple[tuple[Iter, ...], Box], found: UnknownBindings, factors: _Factors
    ) -> Iterator[Map]:
        """Unimodular changes of one iterator to an expression that is read at, splits by factors, and merges.

        The order of iterators is no matter: operators are matched by the groups that iterators are in."""
        iters, box = index
        if not iters:
            return
        reads = [(k, each) for term in found.terms.values() for k, each in by_reads(term, iters, box, self.operands)]
        yield from (each for _, each in reads)
        yield from together(iters, reads, self.operands)
        fewer = [*lookups([*found.terms.values()], iters, box, self.operands)]
        yield from (each for _, each in fewer)
        yield from together(iters, fewer, self.operands)
        indexes = [
            index
            for term in found.terms.values()
            for node in walk(term.body)
            if isinstance(node, Read)
            for index in node.index
        ]
        splits: dict[int, list[tuple[int, Map]]] = {}
        # by the number that each iterator stands beside: a stride for rows, another one for columns
        beside: dict[int, tuple[int, Map]] = {}
        for k, it in enumerate(iters):
            near = [index for index in indexes if it in index.free and (len(index.free) > 1 or index is not it)]
            short = factors.short(box.extents[k]) if any(self._is_window(it, index, found) for index in near) else ()
            for factor in sorted({*factors.numbers, *short}):
                if factors.listed or factor in short or any(factor in _numbers(index) for index in near):
                    parts = split(iters, box, k, factor, self.operands)
                    if parts is not None:
                        splits.setdefault(factor, []).append((k, parts))
                        if any(factor in _numbers(index) for index in near):
                            beside.setdefault(k, (factor, parts))
        for alike in splits.values():
            # the dimensions of a window are alike
            yield from together(iters, alike, self.operands) if len(alike) > 1 else (alike[0][1],)
        if len({factor for factor, _ in beside.values()}) > 1:
            yield from together(iters, [(k, parts) for k, (_, parts) in beside.items()], self.operands)
        for k in range(len(iters) - 1):
            if any(_joins(index, iters[k], iters[k + 1], box.extents[k + 1]) for index in indexes):
                whole = merged(iters, box, k, self.operands)
                if whole is not None:
                    yield whole

    def _is_window(self, it: Iter, index: Scalar, found: UnknownBindings) -> bool:
        """Whether an iterator is the shortest of an index, as that of a window is beside the positions that it slides over."""
        try:
            sizes = {each: most - least for each, (least, most) in self._ranges(found).items()}
        except Unfit:
            return False
        others = [sizes[other] for other in index.free if other is not it and other in sizes]
        return bool(others) and it in sizes and all(sizes[it] <= other for other in others)

    def _rounded(self, index: tuple[tuple[Iter, ...], Box], found: UnknownBindings, factors: _Factors) -> Iterator[Box]:
        """Boxes with the extents rounded up that are equal: by numbers that their iterators stand beside, and parts of windows."""
        iters, box = index
        reads = [
            at
            for term in found.terms.values()
            for node in each_of(Read, term.body)
            for at in node.index
            if len(at.free) > 1
        ]
        for value in dict.fromkeys(box.extents):
            if not isinstance(value, Num) or not isinstance(value.value, int):
                continue
            places = [k for k, extent in enumerate(box.extents) if extent is value]
            near = [(iters[k], at) for k in places for at in reads if iters[k] in at.free]
            short = factors.short(value) if any(self._is_window(it, at, found) for it, at in near) else ()
            beside = [each for each in factors.numbers if factors.listed or any(each in _numbers(at) for _, at in near)]
            for factor in sorted({*beside, *short}):
                up = -(-value.value // factor) * factor
                # more than half of it is asked for
                if value.value < up < 2 * value.value:
                    yield replace(box, extents=tuple(num(up) if k in places else e for k, e in enumerate(box.extents)))

    def _positions(
        self, term: UnknownTerm, index: tuple[tuple[Iter, ...], Box], found: UnknownBindings
    ) -> Iterator[Map]:
        """Of a sum the positions that a guard leaves: `phi(x, z)` where all but one of an iterator are 0, z being the others."""
        iters, box = index
        try:
            at = self._ranges(found)
        except Unfit:
            return
        chosen = only_positions(term.body, iters, box, at, self.operands)
        if not chosen:
            return
        kept = [k for k, it in enumerate(iters) if it not in chosen]
        outer = tuple(it for name, own in found.indexes.items() if own is not iters for it in own)
        places = self.operands.fresh(len(kept))
        values = [chosen.get(it, it) for it in iters]
        own = {iters[k]: place for k, place in zip(kept, places, strict=True)}
        left = Box(tuple(box.low[k] for k in kept), tuple(box.extents[k] for k in kept))
        yield Map((*outer, *places), tuple(substitute(value, own) for value in values), box=left)

    def _grouped(self, name: str, term: UnknownTerm, index: tuple[Iter, ...], found: UnknownBindings) -> Iterator[Map]:
        declared = self._declared(name)
        if declared is None:
            return
        # of what the map is declared for all but the index itself
        sets = [each for each in _names(declared.domain) if found.sets.get(each) is not None]
        owners = {self._set_of(own): found.indexes[own] for own in found.indexes}
        outer = tuple(it for each in sets for it in owners.get(each, ()) if it not in index)
        try:
            whole = groupings(term, index, outer, self._ranges(found), self.operands)
        except Unfit:
            return
        if whole is not None:
            yield whole

    def _set_of(self, index: str) -> str:
        """The set that an index is declared with."""
        for declared in self.rule.declarations:
            if isinstance(declared, t.IndexDecl):
                for binder in declared.binders:
                    if binder.name == index and isinstance(binder.range, t.Name):
                        return binder.range.id
        raise Unfit("an index without a set")

    def _halves(self, box: Box) -> Iterator[Box]:
        for k, extent in enumerate(box.extents):
            if isinstance(extent, Num) and isinstance(extent.value, int) and extent.value > 1:
                yield replace(box, extents=(*box.extents[:k], num((extent.value + 1) // 2), *box.extents[k + 1 :]))

    def _guarded(self, term: UnknownTerm, index: tuple[tuple[Iter, ...], Box], found: UnknownBindings) -> Iterator[Box]:
        """The first parts of a box that end where a guard of the term changes: of what is put together its first piece.

        Where nothing is summed there are none, as a choice between parts is what the rule would make again.
        """
        iters, box = index
        if not any(own for own in found.indexes.values() if own is not iters):
            return
        for k, cut in sorted(cuts(term.body, iters)):
            low, extent = box.low[k], box.extents[k]
            if isinstance(low, Num) and isinstance(extent, Num) and 0 < cut - low.value < extent.value:
                yield replace(box, extents=(*box.extents[:k], num(cut - low.value), *box.extents[k + 1 :]))

    # ---- conditions ----------------------------------------------------------------------------------------

    def _solved(self, found: UnknownBindings) -> UnknownBindings | None:
        """The bindings with the sets that conditions determine; None where a condition does not hold or is not known to."""
        for declared in self.rule.declarations:
            if isinstance(declared, t.Where):
                for condition in declared.conditions:
                    solved = self._held(condition, found)
                    if solved is None:
                        return None
                    found = solved
        return found

    def _held(self, node: t.Expr, found: UnknownBindings) -> UnknownBindings | None:
        if isinstance(node, t.Call):
            return found if self._predicate(node, found) else None
        if isinstance(node, t.ForAll):
            return found if self._zero_outside(node, found) else None
        if isinstance(node, t.Compare) and len(node.operands) == 2:
            left, right = node.operands
            if node.ops[0] == "<=":
                return self._within(left, right, found)
            if node.ops[0] == "==":
                return self._equal(left, right, found)
        raise Unfit("a condition that is not known")

    def _predicate(self, node: t.Call, found: UnknownBindings) -> bool:
        if node.function == "bijective":
            return found.maps[_id(node.args[0])].back is not None
        if node.function == "reads" and len(node.args) == 2:
            return set(found.indexes[_id(node.args[1])]) <= read_at(found.terms[_id(node.args[0])].body)
        if node.function == "total" and len(node.args) == 2:
            term, box = found.terms[_id(node.args[0])], self._set(node.args[1], found)
            return total(term, {**self._ranges(found), **ranges(self._iters_like(box, term), box)}, self.operands)
        if node.function == "unlike" and len(node.args) == 2:
            first, second = (self._set(arg, found) for arg in node.args)
            return len(first.low) != len(second.low) or first.extents[1:] != second.extents[1:]
        raise Unfit("a predicate that is not known")

    def _ranges(self, found: UnknownBindings) -> dict[Scalar, tuple[int, int]]:
        """Where the iterators of every index that is bound run."""
        at: dict[Scalar, tuple[int, int]] = {}
        for declared in self.rule.declarations:
            if isinstance(declared, t.IndexDecl):
                for binder in declared.binders:
                    name = binder.range.id if isinstance(binder.range, t.Name) else ""
                    if binder.name in found.indexes and name in found.sets:
                        at.update(ranges(found.indexes[binder.name], found.sets[name]))
        return at

    def _iters_like(self, box: Box, term: UnknownTerm) -> tuple[Iter, ...]:
        """The first vector of iterators of a term: those that run through the box."""
        for param in term.params:
            if isinstance(param, tuple) and len(param) == len(box.low):
                return param
        raise Unfit("no iterators for this box")

    def _within(self, left: t.Expr, right: t.Expr, found: UnknownBindings) -> UnknownBindings | None:
        if isinstance(right, t.Binary) and right.op == "|":
            return self._covered(left, right, found)
        return found if self._set(left, found).within(self._set(right, found)) else None

    def _covered(self, left: t.Expr, right: t.Binary, found: UnknownBindings) -> UnknownBindings | None:
        """`X <= U | V`: where V is unknown it is what is left, as a box."""
        whole, first = self._set(left, found), self._set(right.left, found)
        name = _id(right.right)
        rest = _rest(whole, first)
        if rest is None:
            return None
        if name not in found.sets:
            return found.put("sets", name, rest)
        return found if rest.within(found.sets[name]) else None

    def _equal(self, left: t.Expr, right: t.Expr, found: UnknownBindings) -> UnknownBindings | None:
        if isinstance(left, t.Call) and isinstance(right, t.Call) and left.function == right.function:
            a, b = (self.operands.values[found.tensors[_id(each.args[0])]] for each in (left, right))
            if left.function == "shape":
                return found if a.type.shape == b.type.shape else None
            if left.function == "dtype":
                return found if a.type.dtype is b.type.dtype else None
        if isinstance(left, t.Name):
            value = self._set(right, found)
            if left.id not in found.sets:
                return found.put("sets", left.id, value)
            return found if found.sets[left.id] == value else None
        raise Unfit("an equation that is not known")

    def _set(self, node: t.Expr, found: UnknownBindings) -> Box:
        if isinstance(node, t.Call) and node.function == "image" and len(node.args) == 2:
            mapped = found.maps[_id(node.args[0])]
            return image(mapped.params, mapped.values, self._set(node.args[1], found))
        if isinstance(node, t.Call) and node.function == "hull" and len(node.args) == 2:
            return self._set(node.args[0], found).hull(self._set(node.args[1], found))
        if isinstance(node, t.Binary) and node.op == "*":
            return self._set(node.left, found) * self._set(node.right, found)
        return self._box(node, found)

    def _zero_outside(self, node: t.ForAll, found: UnknownBindings) -> bool:
        """`forall x in X - V: f(x, y) == 0`."""
        if not (isinstance(node.domain, t.Binary) and node.domain.op == "-" and isinstance(node.body, t.Compare)):
            raise Unfit("a condition that is not known")
        call = node.body.operands[0]
        if not isinstance(call, t.Call) or call.function not in found.terms:
            raise Unfit("a condition that is not known")
        if node.name not in found.indexes:
            raise Unfit("a condition that is not known")
        whole, part = self._set(node.domain.left, found), self._set(node.domain.right, found)
        index = (found.indexes[node.name], whole)
        # a larger box than the index runs through: what is read beside a tensor there is 0
        beyond = not whole.within(self._own_set(node.name, found))
        box = nonzero_box(found.terms[call.function], index, self.operands, beyond)
        return box is not None and box.within(part)

    def _own_set(self, name: str, found: UnknownBindings) -> Box:
        """What an index runs through on the left side."""
        own = self._set_of(name)
        if own not in found.sets:
            raise Unfit("an index without a set")
        return found.sets[own]


def _id(node: t.Expr | None) -> str:
    if not isinstance(node, t.Name):
        raise Unfit("a name is wanted")
    return node.id


def _rest(whole: Box, part: Box) -> Box | None:
    """What is left of a box beside a part that is smaller along one iterator, from its first position on; None where more differs."""
    differ = [k for k, (a, b) in enumerate(zip(whole.extents, part.extents, strict=True)) if a is not b]
    if len(differ) != 1 or whole.low != part.low:
        return None
    (k,) = differ
    first, extent = apply("+", part.low[k], part.extents[k]), apply("-", whole.extents[k], part.extents[k])
    return Box((*whole.low[:k], first, *whole.low[k + 1 :]), (*whole.extents[:k], extent, *whole.extents[k + 1 :]))


def coefficients(body: Scalar) -> set[int]:
    """Coefficients and moduli of the positions that an expression reads at."""
    return {each for node in walk(body) if isinstance(node, Read) for index in node.index for each in _numbers(index)}


def _numbers(index: Scalar) -> set[int]:
    return {
        abs(int(arg.value))
        for part in walk(index) if isinstance(part, Apply) and part.name in {"*", "//", "%"}
        for arg in part.args if isinstance(arg, Num) and isinstance(arg.value, int)
    }  # fmt: skip


def _joins(index: Scalar, outer: Iter, inner: Iter, size: Scalar) -> bool:
    """Whether something is read at `outer * size(inner) + inner`."""
    if not {outer, inner} <= index.free or not isinstance(size, Num):
        return False
    return coefficient_of(index, inner) == 1 and coefficient_of(index, outer) == size.value and size.value != 1


def _short(extent: Scalar) -> tuple[int, ...]:
    """Sizes of parts of a short extent, a window's say: all that are at most its half, rounded up."""
    if not isinstance(extent, Num) or not isinstance(extent.value, int) or extent.value > SHORT:
        return ()
    return tuple(range(2, (extent.value + 1) // 2 + 1))


def _names(node: t.Expr) -> tuple[str, ...]:
    """The sets of a product of sets."""
    return (*_names(node.left), *_names(node.right)) if isinstance(node, t.Binary) else (_id(node),)
