"""Positions in mixed radix: `//` and `%` by symbolic sizes vanish, because an iterator over `A * B` becomes two, over A and over B.

Three steps, each of which changes no value: quotients are taken apart where the ranges of the iterators allow it; iterators that are
still divided are split, on both sides of the comparison alike; a tensor that is read at quotients all the same is read by its position
in memory, `unravel(p, S)` at `p`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from dslc.analysis.conditions import Case, unknowns
from dslc.analysis.poly import (
    COMPARISONS,
    Monomial,
    NotIntegral,
    Poly,
    as_poly,
    atom,
    compared,
    monomial_of,
    polynomial,
    scalar_of,
)
from dslc.analysis.prove import nonnegative
from dslc.analysis.reads import ReadLoop
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Value, input_value
from dslc.ir.scalar import (
    Iter,
    Num,
    Read,
    Reduce,
    Scalar,
    Sym,
    apply,
    iterator,
    num,
    read,
    rebuild,
    reduce,
    rewrite,
    scalars,
    walk,
)

ROUNDS = 6  #: rounds of cutting, as long as one cuts something


# the same question comes from every instance of a rule
_nonnegative = lru_cache(maxsize=1 << 14)(nonnegative)


#: iterators that are split, each in terms of its parts
_Splits = dict[Iter, tuple[Scalar, tuple[Iter, ...]]]


class _Facts:
    """Facts, by the unknowns that they connect."""

    def __init__(self, facts: Case) -> None:
        self._every = facts
        self._group: dict[Sym, frozenset[Sym]] = {}
        for poly in (*facts.nonneg, *facts.zero):
            group = _unknowns(poly).union(*(self._group.get(name, _NONE) for name in _unknowns(poly)))
            self._group.update(dict.fromkeys(group, group))
        self._found: dict[frozenset[Sym], Case] = {}

    def about(self, *scalars: Scalar) -> Case:
        """The facts that are connected with some expressions by common unknowns."""
        reached = frozenset().union(*(self._group.get(name, _NONE) for name in unknowns(*scalars)))
        if reached not in self._found:
            self._found[reached] = Case(*(
                tuple(poly for poly in polys if not _unknowns(poly) or _unknowns(poly) & reached)
                for polys in (self._every.nonneg, self._every.zero)
            ))  # fmt: skip
        return self._found[reached]


_NONE: frozenset[Sym] = frozenset()


@lru_cache(maxsize=1 << 14)
def _unknowns(poly: Poly) -> frozenset[Sym]:
    return unknowns(*poly.atoms)


class Radix:
    """The ranges of the iterators, and what is known of the sizes."""

    def __init__(self, extents: dict[Iter, Scalar], facts: Case, check: Callable[[], None]) -> None:
        self.extents = extents
        self._facts = _Facts(facts)
        self._check = check
        self._memo: dict[Scalar, Scalar] = {}
        self._proved: dict[Scalar, bool] = {}

    # ---- quotients -------------------------------------------------------------------------------------------------

    def simplify(self, root: Scalar) -> Scalar:
        """The same expression, with quotients and remainders taken apart, and with comparisons decided that are not affine."""
        return rewrite(root, self._simpler, self._memo)

    def _simpler(self, node: Scalar) -> Scalar:
        self._check()
        if node.op in {"//", "%"} and not (isinstance(node.args[1], Num) and is_affine(node.args[0])):
            return self._divided(node.op, *node.args)
        if node.op in COMPARISONS and not all(is_affine(arg) for arg in node.args):
            decided = self._decided(node.op, *node.args)
            return self._by_digits(node) if decided is None else num(decided)
        return node

    def _by_digits(self, node: Scalar) -> Scalar:
        """`s * q + r >= 0` is `q >= 0` where `0 <= r < s`: comparisons of positions in mixed radix, by their leading digits."""
        try:
            difference = compared(node.op, *node.args)
        except NotIntegral:
            return node
        for stride in sorted(
            {m for monomial, _ in difference.terms if (m := _sizes_in(monomial))}, key=lambda m: (-len(m), str(m))
        ):
            by = monomial_of(stride)
            quotient, rest = _parts(difference, by)
            for digit, low in ((quotient, rest), (quotient - 1, rest + by)):
                if not self._inside(scalar_of(low), scalar_of(by)):
                    continue
                high = scalar_of(digit)
                if node.op in {"==", "!="}:
                    same = apply("and", apply("==", high, num(0)), apply("==", scalar_of(low), num(0)))
                    return self.simplify(same if node.op == "==" else apply("not", same))
                return self.simplify(apply(">=", high, num(0)))
        return node

    def _divided(self, name: str, top: Scalar, by: Scalar) -> Scalar:
        try:
            above, divisor = polynomial(top), polynomial(by)
        except NotIntegral:
            return apply(name, top, by)
        if divisor.is_constant and divisor.constant <= 0:
            return apply(name, top, by)
        quotient, rest = _parts(above, divisor)
        whole, left = scalar_of(quotient), scalar_of(rest)
        if self._inside(left, by):
            return whole if name == "//" else left
        if not isinstance(by, Num) and self.least(apply("+", left, by)) and self._negative(apply("-", left, by)):
            low = apply(">=", left, num(0))  # one turn at most: a position that counts from the end
            if name == "%":
                return apply("select", low, left, apply("+", left, by))
            return apply("+", whole, apply("select", low, num(0), num(-1)))
        if name == "%":
            inner = _as(left, "%")
            if inner is not None and multiple(inner[1], by) is not None:
                return self._divided("%", inner[0], by)
            return apply("%", left, by)
        inner = _as(left, "//")
        if inner is not None:  # (a // b) // c is a // (b * c)
            return apply("+", whole, self._divided("//", inner[0], apply("*", inner[1], by)))
        inner = _as(left, "%")
        if inner is not None and (below := multiple(inner[1], by)) is not None:  # (a % (b * c)) // b is a // b % c
            return apply("+", whole, self._divided("%", self._divided("//", inner[0], by), below))
        return apply("+", whole, apply("//", left, by))

    def _inside(self, node: Scalar, size: Scalar) -> bool:
        """Return whether `0 <= node < size` is proved."""
        if isinstance(node, Iter) and self.extents.get(node) is size:
            return True
        if isinstance(node, Num):
            return bool(node.value == 0) or (
                self.least(node) and self.least(apply("-", size, apply("+", node, num(1))))
            )
        return self.least(apply("-", apply("-", size, node), num(1))) and self.least(node)

    def least(self, goal: Scalar) -> bool:
        """Return whether `goal >= 0` is proved from the ranges and the conditions."""
        if goal not in self._proved:
            # where a range is the smaller one of two, an iterator stays in both
            smaller = ((it, extent) for it in _by_name(goal.free) if (extent := _as(self.extents.get(it), "min")))
            self._proved[goal] = self._least(goal, self.extents) or any(
                self._least(goal, {**self.extents, it: part}) for it, parts in smaller for part in parts
            )
        return self._proved[goal]

    def _least(self, goal: Scalar, extents: Mapping[Iter, Scalar]) -> bool:
        loops: dict[Iter, ReadLoop] = {}
        todo = _by_name(goal.free)
        while todo:
            it = todo.pop()
            if it not in loops and it in extents:
                loops[it] = ReadLoop(it, extents[it], "traversal")
                todo.extend(_by_name(extents[it].free))
        ranges = tuple(loops.values())
        return _nonnegative(goal, ranges, self._facts.about(goal, *(loop.extent for loop in ranges)))

    def _decided(self, name: str, left: Scalar, right: Scalar) -> bool | None:
        if left.reads or right.reads:
            return None
        if name in {">", ">="}:
            return self._decided("<" if name == ">" else "<=", right, left)
        above, below = apply("-", right, left), apply("-", left, right)
        if name in {"<", "<="}:
            goal = above if name == "<=" else below
            holds = True if self.least(goal) else False if self._negative(goal) else None
            return holds if name == "<=" or holds is None else not holds
        if self._negative(above) or self._negative(below):
            return name == "!="
        return name == "==" if self.least(above) and self.least(below) else None

    def _negative(self, node: Scalar) -> bool:
        return self.least(apply("-", num(-1), node))

    # ---- splitting -------------------------------------------------------------------------------------------------

    def split(self, roots: Sequence[Scalar]) -> tuple[list[Scalar], dict[Iter, Scalar]]:
        """The expressions over split iterators, and what each split iterator is in terms of its parts."""
        current = [self.simplify(root) for root in roots]
        parts: dict[Iter, Scalar] = {}
        for _ in range(ROUNDS):
            new = self._splits(current)
            if not new:
                break
            values: dict[Scalar, Scalar] = {it: value for it, (value, _) in new.items()}
            parts = {it: rebuild(value, values.get) for it, value in parts.items()}
            parts |= {it: value for it, (value, _) in new.items()}
            self.extents.update({it: rebuild(extent, values.get) for it, extent in self.extents.items()})
            self._memo.clear()
            current = [self.simplify(self._rebound(root, new)) for root in current]
        return current, parts

    def _splits(self, roots: Sequence[Scalar]) -> _Splits:
        divisors: dict[Iter, dict[Scalar, None]] = {}
        for node in (node for root in roots for node in walk(root)):
            if node.op in {"//", "%"}:
                # `i // a % b` is about `a` (found by itself) and `a * b`
                top, by = node.args
                inner = _as(top, "//") if node.op == "%" else None
                top, by = (top, by) if inner is None else (inner[0], apply("*", inner[1], by))
                if isinstance(top, Iter):
                    divisors.setdefault(top, {})[by] = None
        out: _Splits = {}
        for it, found in (divisors or self._mixed(roots)).items():
            chain = self._chain(it, list(found))
            if not chain:
                continue
            names: list[Iter] = []
            value: Scalar = num(0)
            above = self.extents[it]
            for step, by in enumerate([*chain, num(1)]):
                part = iterator(f"{it.name}/{step}")
                extent = apply("//", above, by)
                if extent is not num(1):
                    self.extents[part] = extent
                    names.append(part)
                    value = apply("+", value, apply("*", by, part))
                above = by
            out[it] = (value, tuple(names))
        return out

    def _mixed(self, roots: Sequence[Scalar]) -> dict[Iter, dict[Scalar, None]]:
        """Iterators that read as a whole what is read in mixed radix elsewhere, with the strides of that."""
        reads = [node for root in roots for node in scalars(Read, root)]
        strides: dict[tuple[int, int], dict[Monomial, None]] = {}
        plain: dict[tuple[int, int], list[Iter]] = {}
        for node in reads:
            for axis, index in enumerate(node.index):
                try:
                    poly = polynomial(index)
                except NotIntegral:
                    continue
                place = (node.operand, axis)
                for monomial, coefficient in poly.terms:
                    if sizes := _sizes_in(monomial):
                        strides.setdefault(place, {})[sizes] = None
                    elif len(monomial) == 1 and isinstance(monomial[0], Iter) and coefficient == 1:
                        plain.setdefault(place, []).append(monomial[0])
        out: dict[Iter, dict[Scalar, None]] = {}
        for place, found in strides.items():
            for it in plain.get(place, ()):
                for sizes in found:
                    out.setdefault(it, {})[scalar_of(monomial_of(sizes))] = None
        return out

    def in_range(self, digits: Sequence[Poly], strides: Sequence[Monomial]) -> bool:
        """Return whether the digits of an index (those of larger strides first) are the only ones that give it."""
        for above, stride, digit in zip(strides, strides[1:], digits[1:], strict=False):
            radix = monomial_of(above).quotient(monomial_of(stride))
            if not radix or not self._inside(scalar_of(digit), scalar_of(radix)):
                return False
        return True

    def _chain(self, it: Iter, divisors: list[Scalar]) -> list[Scalar]:
        """Divisors of the extent, the largest first, each of which is a multiple of the next."""
        extent = self.extents.get(it)
        chain: list[Scalar] = []
        fitting = [by for by in divisors if extent and by is not extent and multiple(extent, by)]
        for by in sorted(fitting, key=_larger_first):
            if not chain or multiple(chain[-1], by):
                chain.append(by)
        return chain

    def _rebound(self, root: Scalar, new: _Splits) -> Scalar:
        """The expression over the parts of the iterators that are split, where they are used and where they are bound."""
        memo: dict[Scalar, Scalar] = {}

        def leaf(node: Scalar) -> Scalar | None:
            if isinstance(node, Iter):
                return new[node][0] if node in new else node
            if not isinstance(node, Reduce):
                return None
            iters: list[Iter] = []
            for it in node.iters:
                iters.extend(new[it][1] if it in new else (it,))
            extents = tuple(rebuild(self.extents[it], leaf, memo) for it in iters)
            where = rebuild(node.where, leaf, memo) if node.where else None
            return reduce(node.kind, tuple(iters), extents, rebuild(node.body, leaf, memo), where)

        return rebuild(root, leaf, memo)


# ---- positions in memory -------------------------------------------------------------------------------------------


def quotients_left(roots: Iterable[Scalar]) -> set[int]:
    """The operands that are read at quotients by sizes which could not be taken apart."""
    return {
        node.operand
        for root in roots
        for node in scalars(Read, root)
        if any(quotient_by_size(index) for index in node.index)
    }


def quotient_by_size(index: Scalar) -> bool:
    """Return whether an index has a quotient or a remainder that isl cannot take."""
    return any(
        part.op in {"//", "%"} and bool(part.free) and not (isinstance(part.args[1], Num) and is_affine(part.args[0]))
        for part in walk(index)
    )


def flattened(root: Scalar, operand: int, shape: Sequence[Scalar]) -> Scalar:
    """Reads of one operand by its position in memory, with `(p // d) * d + p % d` joined to `p`."""

    def after(node: Scalar) -> Scalar:
        if not (isinstance(node, Read) and node.operand == operand):
            return node
        position: Scalar = num(0)
        for index, size in zip(node.index, shape, strict=True):
            position = apply("+", apply("*", position, size), index)
        return read(operand, (_joined(position),))

    return rewrite(root, after)


def _joined(position: Scalar) -> Scalar:
    try:
        poly = polynomial(position)
    except NotIntegral:
        return position
    for _ in range(ROUNDS):
        joined = next((new for part in sorted(poly.atoms, key=str) if (new := _join(poly, part))), None)
        if not joined:
            break
        poly = joined
    return scalar_of(poly)


def _join(poly: Poly, rest: Scalar) -> Poly | None:
    """`c * d * (p // d) + c * (p % d)` is `c * p`."""
    if not (rest.op == "%" and poly.degree_in(rest) == 1):
        return None
    top, by = rest.args
    inner = _as(top, "//")
    quotient = apply("//", top, by) if inner is None else apply("//", inner[0], apply("*", inner[1], by))
    slope, without = poly.split(rest)
    if quotient not in without.atoms or without.degree_in(quotient) != 1:
        return None
    steep, left = without.split(quotient)
    return left + slope * polynomial(top) if steep == slope * polynomial(by) else None


# ---- polynomials ---------------------------------------------------------------------------------------------------


def is_affine(node: Scalar) -> bool:
    """Return whether isl can take the expression as it is: no products of unknowns, quotients by numbers only."""
    if node.op in {"//", "%"} and not isinstance(node.args[1], Num):
        return False
    if node.op == "*" and sum(not isinstance(arg, Num) for arg in node.args) > 1:
        return False
    return all(is_affine(child) for child in node.children)


def _by_name(iters: Iterable[Iter]) -> list[Iter]:
    return sorted(iters, key=lambda it: it.name)


def _as(node: Scalar | None, name: str) -> tuple[Scalar, Scalar] | None:
    return (node.args[0], node.args[1]) if node and node.op == name else None


def multiple(node: Scalar, by: Scalar) -> Scalar | None:
    """`node / by` where that is a polynomial."""
    try:
        found = polynomial(node).quotient(polynomial(by))
    except NotIntegral:
        return None
    return scalar_of(found) if found else None


def _larger_first(by: Scalar) -> tuple[int, int, str]:
    poly = polynomial(by)
    return -poly.degree, -max((abs(c) for _, c in poly.terms), default=0), str(by)


def _parts(top: Poly, by: Poly) -> tuple[Poly, Poly]:
    """(q, r) with `top == q * by + r`, term by term, or by the slopes of the iterators where `by` is a sum."""
    quotient = as_poly(0)
    if len(by.terms) == 1:
        for monomial, coefficient in top.terms:
            part = Poly.of_terms({monomial: coefficient}).quotient(by)
            quotient = quotient + part if part else quotient
    else:
        for it in sorted((a for a in top.atoms if isinstance(a, Iter)), key=str):
            if top.degree_in(it) == 1 and (part := top.split(it)[0].quotient(by)):
                quotient = quotient + part * atom(it)
        if part := sizes_only(top).quotient(by):
            quotient = quotient + part
    return quotient, top - quotient * by


def _sizes_in(monomial: Monomial) -> Monomial:
    """The sizes that an iterator is multiplied by; empty where there is none."""
    return tuple(factor for factor in monomial if not factor.free) if any(factor.free for factor in monomial) else ()


def sizes_only(poly: Poly) -> Poly:
    """The terms without iterators."""
    return Poly.of_terms({m: c for m, c in poly.terms if all(not factor.free for factor in m)})


def named_places(roots: Sequence[Scalar], inputs: list[Value]) -> list[Scalar] | None:
    """The expressions over names for places that are quotients by sizes; None where a tensor is read otherwise too.

    `inputs`: the tensors that are read; those of truth values are added.
    """
    found: dict[tuple[int, int], set[Scalar]] = {}
    for node in {part: None for root in roots for part in walk(root)}:
        if isinstance(node, Read):
            for axis, index in enumerate(node.index):
                found.setdefault((node.operand, axis), set()).add(_shape(index))
    places = {place for place, shapes in found.items() if any(map(quotient_by_size, shapes))}
    if any(len(found[place]) > 1 for place in places):
        return None
    truths: dict[Scalar, int] = {}
    memo: dict[Scalar, Scalar] = {}

    def leaf(node: Scalar) -> Scalar | None:
        if node.op in COMPARISONS and not node.reads and quotient_by_size(node):
            at = tuple(_by_name(node.free))
            shape = _shape(node)
            if shape not in truths:
                truths[shape] = len(inputs)
                inputs.append(input_value(f"truth {len(truths)}", TensorType(DType.BOOL, tuple(1 for _ in at))))
            return read(truths[shape], at)
        if isinstance(node, Read) and any((node.operand, axis) in places for axis in range(len(node.index))):
            index: list[Scalar] = []
            for axis, part in enumerate(node.index):
                index.extend(_by_name(part.free) if (node.operand, axis) in places else (rebuild(part, leaf, memo),))
            return read(node.operand, tuple(index), rebuild(node.other, leaf, memo) if node.other else None)
        return None

    return [rebuild(root, leaf, memo) for root in roots]


def _shape(node: Scalar) -> Scalar:
    """The expression without the names of its iterators."""
    names: dict[Scalar, Scalar] = {it: iterator(f"#{k}") for k, it in enumerate(_by_name(node.free))}
    return rebuild(node, names.get)
