"""Facts about positions within ranges of iterators: quotients that are 0, remainders that are the position, decided guards."""

from __future__ import annotations

from dslc.analysis.numeric import DataDependent, Interval, Intervals, interval
from dslc.ir.graph import Scope
from dslc.ir.scalar import Iter, Num, Reduce, Scalar, apply, num, rebuild, walk
from dslc.ir.scopes import each_of


def sum_ranges(body: Scalar) -> Intervals:
    """The ranges of the iterators of the summations inside, as far as their extents are known; of one name the widest."""
    found: dict[Scalar, tuple[int, int]] = {}
    for node in each_of(Reduce, body):
        for it, extent in node.ranges:
            if isinstance(extent, Num):
                found[it] = (0, max(found.get(it, (0, 0))[1], int(extent.value) - 1))
    return found


def scope_ranges(scope: Scope) -> dict[Scalar, Interval]:
    """The ranges of a scope's own iterators, as far as their extents are known."""
    return {it: (0, extent - 1) for it, extent in scope.ranges if isinstance(extent, int)}


def unit_positions(scope: Scope) -> dict[Iter, Scalar]:
    """Iterators of a scope that have one position, with that."""
    return {it: num(0) for it, extent in scope.ranges if extent == 1}


def narrowed(body: Scalar, within: Intervals) -> Scalar:
    """Quotients and remainders of what is known to be less than the divisor: `(i // 2, i % 2)` → `(0, i)` where `i < 2`.

    Under a guard too: `A[(i - r) // 2] if (i - r) % 2 == 0` → `A[0] if i - r == 0` where both are less than 2.
    """
    if not any(node.op in {"//", "%", "select"} for node in walk(body)):
        return body
    ranges = {**sum_ranges(body), **within}

    def leaf(node: Scalar) -> Scalar | None:
        if node.op == "select":
            made = _guarded(node, ranges)
            held = decided(made.args[0], ranges) if made.op == "select" else None
            if held is not None:
                made = made.args[1] if held else made.args[2]
            return None if made is node else narrowed(made, within)
        if not (node.op in {"//", "%"} and isinstance(node.args[1], Num)) or node.reads:
            return None
        divisor, value = node.args[1].value, node.args[0]
        try:
            least, most = interval(value, ranges)
        except DataDependent:
            return None
        if least < 0 or most >= divisor:
            return None
        return num(0) if node.op == "//" else narrowed(value, within)

    return rebuild(body, leaf)


def decided(condition: Scalar, ranges: Intervals) -> bool | None:
    """Return whether a condition on positions holds wherever iterators are; None where it does at some of them, or is not known to."""
    if condition.reads:
        return None
    if condition.op in {"and", "or"}:
        least = condition.op == "or"
        parts = [decided(arg, ranges) for arg in condition.args]
        return least if least in parts else None if None in parts else not least
    if condition.op not in {"<", "<=", "=="}:
        return None
    try:
        (low, high), (first, last) = (interval(arg, ranges) for arg in condition.args)
    except DataDependent:
        return None
    if condition.op == "==":
        return False if high < first or last < low else True if low == high == first == last else None
    if condition.op == "<":
        return True if high < first else False if low >= last else None
    return True if high <= first else False if low > last else None


def _guarded(node: Scalar, ranges: Intervals) -> Scalar:
    """A choice under a guard `e % s == 0` where e lies between -s and s: there it is 0."""
    condition, then, otherwise = node.args
    for part in walk(condition):
        if not (part.op == "==" and num(0) in part.args):
            continue
        for each in part.args:
            if not (each.op == "%" and isinstance(each.args[1], Num)) or each.reads:
                continue
            value, divisor = each.args
            try:
                least, most = interval(value, ranges)
            except DataDependent:
                continue
            if isinstance(divisor, Num) and -divisor.value < least and most < divisor.value:
                equal: dict[Scalar, Scalar] = {part: apply("==", value, num(0))}
                condition = rebuild(condition, equal.get)
                if all(own.op == "and" for own in walk(node.args[0]) if part in own.args):
                    # where it does not hold the other branch is taken
                    zero: dict[Scalar, Scalar] = {apply("//", value, divisor): num(0)}
                    then = rebuild(then, zero.get)
    return node if condition is node.args[0] else apply("select", condition, then, otherwise)
