"""Generators of the unknowns that no left side determines, and conditions on them.

The generators that `search` names. They know no benchmark: factors are those that divide an extent and occur as a coefficient or a
modulus in the expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from dslc.analysis.iterators import coefficient_of
from dslc.derivation.left_sides import UnknownBindings, id_of, sets_of_indexes
from dslc.derivation.maps import Change, by_reads, changed, changed_by, flattened, merged, split, together
from dslc.derivation.pieces import Box, Iters, Map, Operands, Ranges, Unfit, UnknownTerm, ranges
from dslc.derivation.quotients import groupings, lookups
from dslc.derivation.zeros import cuts, nonzero_box, only_positions, read_at, total
from dslc.ir.scalar import Apply, Iter, Num, Read, Scalar, apply, num, scalars
from dslc.ir.scopes import each_of, substitute
from dslc.semantics.walk import conditions_in
from dslc.syntax import tree as t

SHORT = 16  #: extents up to which every part is a size to split by


#: generators that find nothing in an expression without one of these functions
NEEDED: Mapping[str, frozenset[str]] = {"groupings": frozenset({"//"}), "guarded": frozenset({"select"})}


def may_apply(rule: t.Derivation, body: Scalar) -> bool:
    """Return whether what `search` looks for may be in an expression: soon told, before the left side is matched."""
    domains = [one.domain for one in rule.statements if isinstance(one, t.Search)]
    wanted = [NEEDED.get(domain.function) for domain in domains if isinstance(domain, t.Call)]
    if not any(wanted):
        return True
    known = {node.name for node in scalars(Apply, body)}
    return all(names is None or not names.isdisjoint(known) for names in wanted)


Index = tuple[Iters, Box]


class Unknowns:
    """The unknowns of one application: iterators of indexes with their boxes, and the term that they are looked for in."""

    def __init__(self, rule: t.Derivation, operands: Operands) -> None:
        self.operands = operands
        self.sets = sets_of_indexes(rule)
        self.searches = [each for each in rule.statements if isinstance(each, t.Search)]
        self.maps = {each.name: each for each in rule.declarations if isinstance(each, t.MapDecl)}
        self.conditions = conditions_in(rule.declarations)

    def every(self, found: UnknownBindings) -> Iterator[UnknownBindings]:
        """The bindings with every choice of what `search` looks for, as far as the conditions hold."""
        for chosen in self._chosen(self.searches, found):
            with suppress(Unfit):
                for condition in self.conditions:
                    chosen = self._held(condition, chosen)
                yield chosen

    def _chosen(self, searches: Sequence[t.Search], found: UnknownBindings) -> Iterator[UnknownBindings]:
        if not searches:
            yield found
            return
        first, *rest = searches
        for value in self._generated(first, found):
            if isinstance(value, Map):
                each = found.put("maps", first.name, value)
                declared = self.maps.get(first.name)
                if declared and value.box:
                    # the image; or of the preimage the part that nothing else says
                    for name in (id_of(declared.codomain), *_names(declared.domain)):
                        if name not in found.sets:
                            each = each.put("sets", name, value.box)
                            break
            else:
                each = found.put("sets", first.name, value)
            yield from self._chosen(rest, each)

    # ---- generators ----------------------------------------------------------------------------------------

    def _generated(self, wanted: t.Search, found: UnknownBindings) -> Iterator[Map | Box]:
        node = wanted.domain
        if not isinstance(node, t.Call):
            return
        match node.function, node.args:
            case "affine_bijections", (domain, *_):
                ranks = [
                    each.value.value for each in node.kwargs if each.name == "rank" and isinstance(each.value, t.Int)
                ]
                for each in self._bijections(self._index_of(domain, found), found, *_factors(node, "factors", found)):
                    if not ranks or changed(each) <= ranks[0]:
                        yield each
            case "nonzero_box", (term, domain):
                box = nonzero_box(found.terms[id_of(term)], self._index_of(domain, found), self.operands)
                if box:
                    yield box
            case "nonzero_positions", (term, domain):
                yield from self._positions(found.terms[id_of(term)], self._index_of(domain, found), found)
            case "rounded_up", (domain, *_):
                yield from self._rounded(self._index_of(domain, found), found, *_factors(node, "to", found))
            case "guarded", (term, domain):
                yield from self._guarded(found.terms[id_of(term)], self._index_of(domain, found), found)
            case "flattenings", (domain, *_):
                flat = flattened(*self._index_of(domain, found), self.operands)
                if flat:
                    yield flat
            case "groupings", (term, domain):
                yield from self._grouped(wanted.name, found.terms[id_of(term)], self._index_of(domain, found)[0], found)
            case "sections", (name, *_):
                whole = found.maps[id_of(name)]
                if whole.back is not None:
                    yield Map(whole.back_params, whole.back)
            case "halves", (domain, *_):
                box = found.box(domain)
                for k, extent in enumerate(box.extents):
                    if isinstance(extent, Num) and isinstance(extent.value, int) and extent.value > 1:
                        yield _first_part(box, k, (extent.value + 1) // 2)

    def _index_of(self, node: t.Expr, found: UnknownBindings) -> Index:
        """The iterators that run through a declared set, and their box."""
        wanted = id_of(node)
        for name, own in self.sets.items():
            if own == wanted and name in found.indexes:
                return found.indexes[name], found.sets[own]
        raise Unfit("no index runs through this set")

    def _bijections(self, index: Index, found: UnknownBindings, factors: Sequence[int], listed: bool) -> Iterator[Map]:
        """Unimodular changes of one iterator to an expression that is read at, splits by factors, and merges.

        The order of iterators is no matter: operators are matched by the groups that iterators are in.
        """
        iters, box = index
        if not iters:
            return
        for changes in (
            [each for term in found.terms.values() for each in by_reads(term, iters, box, self.operands)],
            [*lookups([*found.terms.values()], iters, box, self.operands)],
        ):
            for some in (*([each] for each in changes), together(iters, changes)):
                if some:
                    yield changed_by(iters, box, some, self.operands)
        indexes = _indexes(found)
        splits: dict[int, list[Change]] = {}
        # by the number that each iterator stands beside: a stride for rows, another one for columns
        beside: dict[int, tuple[int, Change]] = {}
        for k, it in enumerate(iters):
            near = [index for index in indexes if it in index.free and (len(index.free) > 1 or index is not it)]
            numbers = set().union(*map(_numbers, near))
            short = () if listed else self._short(box.extents[k], [(it, index) for index in near], found)
            for factor in sorted({*factors, *short}):
                if listed or factor in short or factor in numbers:
                    parts = split(iters, box, k, factor, self.operands)
                    if parts:
                        splits.setdefault(factor, []).append(parts)
                        if factor in numbers:
                            beside.setdefault(k, (factor, parts))
        # the dimensions of a window are alike
        several = [alike[:1] if len(alike) == 1 else together(iters, alike) for alike in splits.values()]
        if len({factor for factor, _ in beside.values()}) > 1:
            several.append(together(iters, [parts for _, parts in beside.values()]))
        yield from (changed_by(iters, box, some, self.operands) for some in several if some)
        for k in range(len(iters) - 1):
            if any(_joins(index, iters[k], iters[k + 1], box.extents[k + 1]) for index in indexes):
                whole = merged(iters, box, k, self.operands)
                if whole:
                    yield whole

    def _short(self, extent: Scalar, near: Sequence[tuple[Iter, Scalar]], found: UnknownBindings) -> Sequence[int]:
        """Sizes of parts of a short extent, all that are at most its half, rounded up.

        They are for an iterator that is the shortest of an index, as that of a window is beside the positions that it slides over.
        """
        if not isinstance(extent, Num) or not isinstance(extent.value, int) or extent.value > SHORT:
            return ()
        with suppress(Unfit):
            sizes = {each: most - least for each, (least, most) in self._ranges(found).items()}
            for it, index in near:
                others = [sizes[other] for other in index.free if other is not it and other in sizes]
                if others and it in sizes and sizes[it] <= min(others):
                    return range(2, (extent.value + 1) // 2 + 1)
        return ()

    def _rounded(self, index: Index, found: UnknownBindings, factors: Sequence[int], listed: bool) -> Iterator[Box]:
        """Boxes with the extents rounded up that are equal: by numbers that their iterators stand beside, and parts of windows."""
        iters, box = index
        reads = [at for at in _indexes(found) if len(at.free) > 1]
        for value in dict.fromkeys(box.extents):
            if not isinstance(value, Num) or not isinstance(value.value, int):
                continue
            places = [k for k, extent in enumerate(box.extents) if extent is value]
            near = [(iters[k], at) for k in places for at in reads if iters[k] in at.free]
            short = () if listed else self._short(value, near, found)
            beside = [each for each in factors if listed or any(each in _numbers(at) for _, at in near)]
            for factor in sorted({*beside, *short}):
                up = -(-value.value // factor) * factor
                # more than half of it is asked for
                if value.value < up < 2 * value.value:
                    yield replace(box, extents=tuple(num(up) if k in places else e for k, e in enumerate(box.extents)))

    def _positions(self, term: UnknownTerm, index: Index, found: UnknownBindings) -> Iterator[Map]:
        """Of a sum the positions that a guard leaves: `phi(x, z)` where all but one of an iterator are 0, z being the others."""
        iters, box = index
        try:
            chosen = only_positions(term.body, iters, box, self._ranges(found), self.operands)
        except Unfit:
            return
        if not chosen:
            return
        kept = [k for k, it in enumerate(iters) if it not in chosen]
        outer = tuple(it for name, own in found.indexes.items() if own is not iters for it in own)
        places = self.operands.fresh(len(kept))
        values = [chosen.get(it, it) for it in iters]
        own = {iters[k]: place for k, place in zip(kept, places, strict=True)}
        left = Box(tuple(box.low[k] for k in kept), tuple(box.extents[k] for k in kept))
        yield Map((*outer, *places), tuple(substitute(value, own) for value in values), box=left)

    def _grouped(self, name: str, term: UnknownTerm, index: Iters, found: UnknownBindings) -> Iterator[Map]:
        if name not in self.maps:
            return
        # of what the map is declared for all but the index itself
        sets = [each for each in _names(self.maps[name].domain) if each in found.sets]
        owners = {self.sets[own]: iters for own, iters in found.indexes.items()}
        outer = tuple(it for each in sets for it in owners.get(each, ()) if it not in index)
        with suppress(Unfit):
            whole = groupings(term, index, outer, self._ranges(found), self.operands)
            if whole:
                yield whole

    def _guarded(self, term: UnknownTerm, index: Index, found: UnknownBindings) -> Iterator[Box]:
        """The first parts of a box that end where a guard of the term changes: of what is put together its first piece.

        Where nothing is summed there are none, as a choice between parts is what the rule would make again.
        """
        iters, box = index
        if not any(own for own in found.indexes.values() if own is not iters):
            return
        for k, cut in sorted(cuts(term.body, iters)):
            low, extent = box.low[k], box.extents[k]
            if isinstance(low, Num) and isinstance(extent, Num) and 0 < cut - low.value < extent.value:
                yield _first_part(box, k, cut - int(low.value))

    # ---- conditions ----------------------------------------------------------------------------------------

    def _held(self, node: t.Expr, found: UnknownBindings) -> UnknownBindings:
        """The bindings with the set that a condition determines; raises Unfit where it does not hold or is not known to."""
        match node:
            case t.Call(function="bijective", args=(name,)):
                held = found.maps[id_of(name)].back is not None
            case t.Call(function="reads", args=(name, index)):
                held = set(found.indexes[id_of(index)]) <= read_at(found.terms[id_of(name)].body)
            case t.Call(function="total", args=(name, domain)):
                term, box = found.terms[id_of(name)], found.box(domain)
                # the first vector of iterators that may run through the box
                own = [param for param in term.params if isinstance(param, tuple) and len(param) == len(box.low)]
                if not own:
                    raise Unfit("no iterators for this box")
                held = total(term, {**self._ranges(found), **ranges(own[0], box)}, self.operands)
            case t.Call(function="unlike", args=(left, right)):
                first, second = found.box(left), found.box(right)
                held = len(first.low) != len(second.low) or first.extents[1:] != second.extents[1:]
            case t.ForAll(
                name=name,
                domain=t.Binary(op="-", left=whole, right=part),
                body=t.Compare(operands=(t.Call() as call, *_)),
            ):
                held = self._is_zero_between(name, call.function, found.box(whole), found.box(part), found)
            case t.Compare(ops=("<=",), operands=(left, t.Binary(op="|") as right)):
                # `X <= U | V`: where V is unknown it is what is left, as a box
                rest, name = _rest(found.box(left), found.box(right.left)), id_of(right.right)
                if name not in found.sets:
                    return found.put("sets", name, rest)
                held = rest.within(found.sets[name])
            case t.Compare(ops=("<=",), operands=(left, right)):
                held = found.box(left).within(found.box(right))
            case t.Compare(ops=("==",), operands=(t.Call(args=(left,)) as one, t.Call(args=(right,)) as other)) if (
                one.function == other.function in {"shape", "dtype"}
            ):
                a, b = (self.operands.values[found.tensors[id_of(each)]].type for each in (left, right))
                held = a.shape == b.shape if one.function == "shape" else a.dtype is b.dtype
            case t.Compare(ops=("==",), operands=(t.Name(id=name), right)):
                value = found.box(right)
                if name not in found.sets:
                    return found.put("sets", name, value)
                held = found.sets[name] == value
            case _:
                raise Unfit("a condition that is not known")
        if not held:
            raise Unfit("a condition that does not hold")
        return found

    def _ranges(self, found: UnknownBindings) -> Ranges:
        """The ranges of the iterators of every index that is bound."""
        at: Ranges = {}
        for name, own in self.sets.items():
            if name in found.indexes and own in found.sets:
                at.update(ranges(found.indexes[name], found.sets[own]))
        return at

    def _is_zero_between(self, name: str, term: str, whole: Box, part: Box, found: UnknownBindings) -> bool:
        """`forall x in X - V: f(x, y) == 0`."""
        own = self.sets.get(name, "")
        if term not in found.terms or name not in found.indexes or own not in found.sets:
            raise Unfit("a condition that is not known")
        # a larger box than the index runs through: what is read beside a tensor there is 0
        beyond = not whole.within(found.sets[own])
        box = nonzero_box(found.terms[term], (found.indexes[name], whole), self.operands, beyond)
        return box is not None and box.within(part)


def _factors(node: t.Call, option: str, found: UnknownBindings) -> tuple[Sequence[int], bool]:
    """Sizes to split by, or to round up to multiples of; True where an option lists them, and no others are tried.

    Else they are the coefficients and moduli of the expression.
    """
    given = next((entry.value for entry in node.kwargs if entry.name == option), None)
    listed = isinstance(given, t.Int | t.ListExpr)
    if isinstance(given, t.Int | t.ListExpr):
        items = given.elements if isinstance(given, t.ListExpr) else (given,)
        numbers = {item.value for item in items if isinstance(item, t.Int)}
    else:
        numbers = set().union(*map(_numbers, _indexes(found)))
    return sorted(each for each in numbers if each > 1), listed


def _indexes(found: UnknownBindings) -> list[Scalar]:
    """All that terms read at."""
    return [at for term in found.terms.values() for node in each_of(Read, term.body) for at in node.index]


def _first_part(box: Box, k: int, size: int) -> Box:
    return replace(box, extents=(*box.extents[:k], num(size), *box.extents[k + 1 :]))


def _rest(whole: Box, part: Box) -> Box:
    """The rest of a box beside a part that is smaller along one iterator, from its first position on; Unfit where more differs."""
    differ = [k for k, (a, b) in enumerate(zip(whole.extents, part.extents, strict=True)) if a is not b]
    if len(differ) != 1 or whole.low != part.low:
        raise Unfit("more than one iterator differs")
    (k,) = differ
    first, extent = apply("+", part.low[k], part.extents[k]), apply("-", whole.extents[k], part.extents[k])
    return Box((*whole.low[:k], first, *whole.low[k + 1 :]), (*whole.extents[:k], extent, *whole.extents[k + 1 :]))


def _numbers(index: Scalar) -> set[int]:
    return {
        abs(int(arg.value))
        for part in scalars(Apply, index) if part.name in {"*", "//", "%"}
        for arg in part.args if isinstance(arg, Num) and isinstance(arg.value, int)
    }  # fmt: skip


def _joins(index: Scalar, outer: Iter, inner: Iter, size: Scalar) -> bool:
    """Return whether something is read at `outer * size(inner) + inner`."""
    if not {outer, inner} <= index.free or not isinstance(size, Num):
        return False
    return coefficient_of(index, inner) == 1 and coefficient_of(index, outer) == size.value and size.value != 1


def _names(node: t.Expr) -> tuple[str, ...]:
    """The sets of a product of sets."""
    return (*_names(node.left), *_names(node.right)) if isinstance(node, t.Binary) else (id_of(node),)
