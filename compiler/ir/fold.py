"""The smart constructors behind `scalar.apply`: constants folded, linear sums in one normal form.

Only laws that hold for every number are used, so `0 * x` vanishes only where x is an integer expression (no read, no function).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dslc.ir.polynomials import Polynomial
from dslc.ir.scalar import Num, Number, Scalar, Sym, num, raw_apply, replaced, rewrite, walk


def exact_divide(a: Any, b: Any) -> Any:
    """`a / b`: exact on integers and fractions."""
    if isinstance(a, float) or isinstance(b, float):
        return float(a) / float(b)
    return _whole(Fraction(a) / Fraction(b))


def _whole(value: Any) -> Any:
    # the class itself, as asking an abstract base class takes longer than the arithmetic
    if type(value) is Fraction and value.denominator == 1:
        return int(value)
    return value


def _mixed(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def go(a: Any, b: Any) -> Any:
        if isinstance(a, float) or isinstance(b, float):
            a, b = float(a), float(b)
        return _whole(function(a, b))

    return go


MOST_BITS = 1 << 16  #: bits of an exact number: a short text (`9 ^ 9 ^ 9`) could stand for one that fills the memory


def bits(value: int | Fraction) -> int:
    """Number of bits of an exact number."""
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def bounded(value: Any) -> Any:
    """A number, where it is a float or not too long.

    Raises:
        OverflowError: more than 2^16 bits.
    """
    if isinstance(value, int | Fraction) and bits(value) > MOST_BITS:
        raise OverflowError("a number of too many digits")
    return value


def _power(a: Any, b: Any) -> Any:
    if isinstance(b, int) and isinstance(a, int | Fraction) and not (b < 0 and a == 0):
        if a not in (0, 1, -1) and abs(b) * bits(a) > MOST_BITS:
            raise OverflowError("a power of too many digits")
        return _whole(Fraction(a) ** b)
    return float(a) ** float(b)


def _exact_root(a: Any) -> Any:
    if isinstance(a, int | Fraction) and a >= 0:
        top, bottom = math.isqrt(Fraction(a).numerator), math.isqrt(Fraction(a).denominator)
        if Fraction(top, bottom) ** 2 == a:
            return _whole(Fraction(top, bottom))
    return math.sqrt(a) if a >= 0 else math.nan


def _exact_at(point: int, value: int, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that has a whole value at one point."""
    return lambda a: value if a == point else function(a)


def _finite(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that leaves infinities as they are."""
    return lambda a: a if math.isinf(a) else function(a)


def _odd(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that leaves zeros as they are, with their signs."""
    return lambda a: a if a == 0 else function(a)


#: numeric meaning of the vocabulary on plain numbers, used to fold constants
FOLD2: dict[str, Callable[[Any, Any], Any]] = {
    "/": exact_divide,
    "//": _mixed(operator.floordiv),
    "%": _mixed(operator.mod),
    "^": _power,
    "min": _mixed(min),
    "max": _mixed(max),
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
}
FOLD1: dict[str, Callable[[Any], Any]] = {
    "abs": abs,
    "sqrt": _exact_root,
    "not": operator.not_,
    "sign": lambda a: (a > 0) - (a < 0),
    "round": _finite(round),
    **{name: _finite(getattr(math, name)) for name in ("floor", "ceil", "trunc")},
    **{name: _exact_at(0, 1, getattr(math, name)) for name in ("exp", "cos", "cosh")},
    **{name: _exact_at(1, 0, getattr(math, name)) for name in ("log", "acos", "acosh")},
    **{name: _odd(getattr(math, name)) for name in "tanh erf sin tan asin atan sinh asinh atanh".split()},
}
#: the same by the number of arguments
_FOLD: dict[int, Mapping[str, Callable[..., Any]]] = {1: FOLD1, 2: FOLD2}


@lru_cache(maxsize=1 << 16)
def simplify(name: str, args: tuple[Scalar, ...]) -> Scalar:
    """The normal form of a function of scalars: equal integer expressions become one object where that is cheap."""
    if name == "+":
        return _sum(args)
    if name == "-":
        return _negated(args[0]) if len(args) == 1 else _difference(*args)
    if name == "*":
        return _product(args)
    if name == "select":
        return _select(*args)
    values = [arg.value for arg in args if isinstance(arg, Num)]
    if len(values) == len(args):
        folded = _fold(name, values)
        if folded is not None:
            return num(folded)
    if len(args) == 2:
        return _binary(name, args[0], args[1])
    return raw_apply(name, *args)


def _fold(name: str, values: list[Number]) -> Number | None:
    function = _FOLD.get(len(values), {}).get(name)
    with suppress(ArithmeticError, ValueError):
        return function(*values) if function else None
    return None


def _select(condition: Scalar, then: Scalar, otherwise: Scalar) -> Scalar:
    if isinstance(condition, Num):
        return then if condition.value else otherwise
    return then if then is otherwise else raw_apply("select", condition, then, otherwise)


def _plus(a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        # an exact zero is no 0.0, which takes the sign of -0.0 away
        one, other = (b, a) if isinstance(b, float) else (a, b)
        return one if other == 0 and not isinstance(other, float) else float(a) + float(b)
    return _whole(a + b)


_times = _mixed(operator.mul)


def _parts(node: Scalar, name: str) -> tuple[Scalar, ...]:
    """The operands of a sum or a product; the expression itself where it is another."""
    return node.args if node.op == name else (node,)


def _negated(node: Scalar) -> Scalar:
    return _product((num(-1), node))


def _difference(a: Scalar, b: Scalar) -> Scalar:
    return _sum((a, _negated(b)))


def _terms(node: Scalar) -> tuple[Number, Scalar | None]:
    """A product as coefficient and the rest (None for a bare number)."""
    if isinstance(node, Num):
        return node.value, None
    if node.op == "*" and isinstance(node.args[0], Num):
        rest = node.args[1:]
        return node.args[0].value, rest[0] if len(rest) == 1 else raw_apply("*", *rest)
    return 1, node


def _sum(args: tuple[Scalar, ...]) -> Scalar:
    constant: Any = 0
    terms: dict[Scalar, Any] = {}
    for arg in args:
        for part in _parts(arg, "+"):
            coefficient, rest = _terms(part)
            if not rest:
                constant = _plus(constant, coefficient)
            else:
                terms[rest] = _plus(terms.get(rest, 0), coefficient)
    if isinstance(constant, float) and math.isinf(constant) and all(rest.integral for rest in terms):
        return num(constant)  # sizes and positions are finite
    parts = [
        # one of what is no sum is as it is
        rest if coefficient == 1 and type(coefficient) is int and rest.op != "+"
        else _product((num(coefficient), rest))
        for rest, coefficient in terms.items()
        if coefficient != 0 or not rest.integral
    ]  # fmt: skip
    if constant != 0 or not parts:
        parts.append(num(constant))
    if len(parts) == 1:
        return parts[0]
    return raw_apply("+", *sorted(parts, key=str))


def _product(args: tuple[Scalar, ...]) -> Scalar:
    coefficient: Any = 1
    factors: list[Scalar] = []
    for arg in args:
        for part in _parts(arg, "*"):
            if isinstance(part, Num) and not isinstance(part.value, bool):
                coefficient = _times(coefficient, part.value)
            else:
                factors.append(part)
    if not factors:
        return num(coefficient)
    if coefficient == 0 and all(factor.integral for factor in factors):
        return num(0)
    if all(factor.integral for factor in factors):
        for k, factor in enumerate(factors):
            if factor.op == "+":
                others = (*factors[:k], *factors[k + 1 :])
                return _sum(tuple(_product((num(coefficient), part, *others)) for part in factor.args))
    ordered = sorted(factors, key=str) if len(factors) > 1 else factors
    if coefficient == 1 and not isinstance(coefficient, float):
        return ordered[0] if len(ordered) == 1 else raw_apply("*", *ordered)
    return raw_apply("*", num(coefficient), *ordered)


def _divisible(node: Scalar, by: int) -> tuple[Scalar, Scalar]:
    """`node` as by * quotient + remainder, term by term; both integer expressions."""
    quotient: list[Scalar] = []
    rest: list[Scalar] = []
    for part in _parts(node, "+"):
        coefficient, factor = _terms(part)
        if factor and isinstance(coefficient, int) and coefficient % by == 0:
            quotient.append(_product((num(coefficient // by), factor)))
        elif not factor and isinstance(coefficient, int):
            quotient.append(num(coefficient // by))
            rest.append(num(coefficient % by))
        else:
            rest.append(part)
    return _sum(tuple(quotient)), _sum(tuple(rest))


def _whole_number(node: Scalar) -> int | None:
    return node.value if isinstance(node, Num) and isinstance(node.value, int) else None


def least(node: Scalar) -> int | None:
    """A lower bound of an integer expression, from those of its symbols; None where none is known."""
    if isinstance(node, Num):
        return _whole_number(node)
    if isinstance(node, Sym):
        return node.least
    known = [part for part in map(least, node.args) if part is not None]
    if node.op == "max":
        return max(known, default=None)
    if not known or len(known) < len(node.args):
        return 0 if node.op == "abs" else None
    if node.op == "+":
        return sum(known)
    if node.op == "min":
        return min(known)
    if min(known) >= 0 and node.op in {"*", "%", "//"}:
        divisor = _whole_number(node.args[1])
        quotient = known[0] // divisor if node.op == "//" and divisor is not None and divisor > 0 else 0
        return math.prod(known) if node.op == "*" else quotient
    return None


def _ordered(name: str, a: Scalar, b: Scalar) -> bool | None:
    """A comparison of integer expressions, where the bounds of their symbols decide it."""
    if name in {">", ">="}:
        return _ordered("<" if name == ">" else "<=", b, a)
    difference, strict = _difference(b, a), name == "<"
    low, reverse = least(difference), least(_negated(difference))
    if low is not None and low >= strict:
        return True
    return False if reverse is not None and reverse > -strict else None


def _exact_quotient(a: Scalar, b: Scalar) -> Scalar | None:
    """`a // b` where b divides a as polynomials (a divisor is never 0)."""
    top, by = _polynomial(a), _polynomial(b)
    found = None if not top or not by else top.quotient(by)
    return None if found is None else _sum(tuple(_product((num(times), *factors)) for factors, times in found.terms))


def _polynomial(node: Scalar) -> _Sum | None:
    """A sum of products; None where a coefficient is no integer."""
    found: dict[tuple[Scalar, ...], int] = {}
    for part in _parts(node, "+"):
        coefficient, rest = _terms(part)
        if not isinstance(coefficient, int):
            return None
        found[tuple(sorted(_parts(rest, "*"), key=_Sum.key)) if rest else ()] = coefficient
    return _Sum.of_terms(found)


class _Sum(Polynomial[Scalar]):
    """By text, and different nodes of one text apart: a quotient does not depend on which of them comes first."""

    @staticmethod
    def key(node: Scalar) -> tuple[str, int]:
        return str(node), id(node)


def _extreme(name: str, a: Scalar, b: Scalar) -> Scalar:
    inverse = {"min": math.inf, "max": -math.inf}[name]
    for one, other in ((a, b), (b, a)):
        if one is other or (isinstance(one, Num) and one.value == inverse):
            return other
        if isinstance(one, Num) and one.value == -inverse and other.integral:
            return one
    if a.integral and b.integral and (decided := _ordered("<=", a, b)) is not None:
        return b if decided == (name == "max") else a
    return raw_apply(name, *sorted((a, b), key=str))


def _divided(name: str, a: Scalar, b: Scalar) -> Scalar:
    """A quotient, or a remainder, of integer expressions."""
    by = _whole_number(b) or 0
    if name == "//" and by < 0:
        return simplify("//", (_negated(a), num(-by)))
    if by == 1:
        return a if name == "//" else num(0)
    if by > 0:
        quotient, rest = _divisible(a, by)
        left = _whole_number(rest)
        if name == "//":
            return _sum((quotient, raw_apply("//", rest, b) if left is None else num(left // by)))
        return raw_apply("%", rest, b) if left is None else num(left % by)
    exact = None if a is num(0) and b.op != "+" else _exact_quotient(a, b)
    if not exact:
        return raw_apply(name, a, b)
    return exact if name == "//" else num(0)


def _compared(name: str, a: Scalar, b: Scalar) -> Scalar:
    whole = a.integral and b.integral
    if a is b and whole:
        return num(name in {"==", "<=", ">="})
    if name in {"==", "!="} and whole:
        difference = _difference(a, b)
        if isinstance(difference, Num):
            return num((difference.value == 0) == (name == "=="))
        if any((low := least(each)) is not None and low > 0 for each in (difference, _negated(difference))):
            return num(name == "!=")
    for one, other, sign in ((a, b, 1), (b, a, -1)):
        if isinstance(other, Num) and other.value in (math.inf, -math.inf) and one.integral:
            return num(bool(FOLD2[name](0, sign * other.value)))
    decided = _ordered(name, a, b) if whole and name not in {"==", "!="} else None
    return raw_apply(name, a, b) if decided is None else num(decided)


def _binary(name: str, a: Scalar, b: Scalar) -> Scalar:
    if name in {"min", "max"}:
        return _extreme(name, a, b)
    if name in {"//", "%"} and a.integral and b.integral:
        return _divided(name, a, b)
    if name in {"<", "<=", ">", ">=", "==", "!="}:
        return _compared(name, a, b)
    if name in {"and", "or"}:
        neutral = name == "and"
        for one, other in ((a, b), (b, a)):
            if isinstance(one, Num):
                return other if bool(one.value) == neutral else num(not neutral)
        return a if a is b else raw_apply(name, a, b)
    if isinstance(b, Num) and not isinstance(b.value, float):
        if name == "/" and b.value != 0:
            return _product((num(exact_divide(1, b.value)), a))
        if name == "^" and b.value == 1:
            return a
    return num(1) if name == "/" and a is b and a.integral else raw_apply(name, a, b)


# ---- for people ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 12)
def shorter(node: Scalar) -> Scalar:
    """An integer with remainders as differences where it is shorter so: `2 * (i // 2) + i % 2` → `i`. No normal form."""
    found = [part for part in walk(node) if part.op == "%"] if node.integral else []
    # one alone, or all of the same iterators: those of mixed radices vanish together
    forms = [replaced(node, part, _difference_of(part)) for part in found]
    forms += [rewrite(node, lambda each, own=part.free: _difference_of(each, own)) for part in found]  # type: ignore[misc]
    best = min([node, *forms], key=lambda form: form.weight)
    return best if best is node else shorter(best)


def _difference_of(node: Scalar, own: frozenset[Any] | None = None) -> Scalar:
    """`a % b` → `a - b * (a // b)`; every other node as it is, and one of other iterators than these."""
    if node.op != "%" or (own and not node.free <= own):
        return node
    return _difference(node.args[0], _product((node.args[1], simplify("//", node.args))))
