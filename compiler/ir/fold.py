"""The smart constructors behind `scalar.apply`: constants folded, linear sums in one normal form.

Only laws that hold for every number are used, so `0 * x` vanishes only where x is an integer expression (no read, no function).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dslc.ir.polynomials import Polynomial
from dslc.ir.scalar import Apply, Num, Number, Scalar, Sym, num, raw_apply


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


#: numeric meaning of the vocabulary on plain numbers, used to fold constants
FOLD2: dict[str, Callable[[Any, Any], Any]] = {
    "/": exact_divide,
    "//": _mixed(lambda a, b: a // b),
    "%": _mixed(lambda a, b: a % b),
    "^": _power,
    "min": _mixed(min),
    "max": _mixed(max),
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
}
FOLD1: dict[str, Callable[[Any], Any]] = {
    "abs": abs,
    "sqrt": _exact_root,
    "floor": lambda a: a if math.isinf(a) else math.floor(a),
    "ceil": lambda a: a if math.isinf(a) else math.ceil(a),
    "trunc": lambda a: a if math.isinf(a) else math.trunc(a),
    "not": lambda a: not a,
    "exp": lambda a: 1 if a == 0 else math.exp(a),
    "log": lambda a: 0 if a == 1 else math.log(a),
    "sign": lambda a: (a > 0) - (a < 0),
    "round": lambda a: a if math.isinf(a) else round(a),
    "cos": lambda a: 1 if a == 0 else math.cos(a),
    "cosh": lambda a: 1 if a == 0 else math.cosh(a),
    "acos": lambda a: 0 if a == 1 else math.acos(a),
    "acosh": lambda a: 0 if a == 1 else math.acosh(a),
    "tanh": lambda a: a if a == 0 else math.tanh(a),
    "erf": lambda a: a if a == 0 else math.erf(a),
    "sin": lambda a: a if a == 0 else math.sin(a),
    "tan": lambda a: a if a == 0 else math.tan(a),
    "asin": lambda a: a if a == 0 else math.asin(a),
    "atan": lambda a: a if a == 0 else math.atan(a),
    "sinh": lambda a: a if a == 0 else math.sinh(a),
    "asinh": lambda a: a if a == 0 else math.asinh(a),
    "atanh": lambda a: a if a == 0 else math.atanh(a),
}


def is_index(node: Scalar) -> bool:
    """Return whether an expression is an integer made of sizes, iterators and integer arithmetic only."""
    return node.integral


@lru_cache(maxsize=1 << 16)
def simplify(name: str, args: tuple[Scalar, ...]) -> Scalar:
    """The normal form of a function of scalars: equal integer expressions become one object where that is cheap."""
    if name == "+":
        return _sum(args)
    if name == "-":
        if len(args) == 1:
            return _product((num(-1), args[0]))
        return _sum((args[0], _product((num(-1), args[1]))))
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
    try:
        if len(values) == 2 and name in FOLD2:
            return FOLD2[name](values[0], values[1])  # type: ignore[no-any-return]
        if len(values) == 1 and name in FOLD1:
            return FOLD1[name](values[0])  # type: ignore[no-any-return]
    except (ArithmeticError, ValueError):
        return None
    return None


def _select(condition: Scalar, then: Scalar, otherwise: Scalar) -> Scalar:
    if isinstance(condition, Num):
        return then if condition.value else otherwise
    return then if then is otherwise else raw_apply("select", condition, then, otherwise)


def _order(node: Scalar) -> str:
    return str(node)


def _plus(a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        # an exact zero is no 0.0, which takes the sign of -0.0 away
        one, other = (b, a) if isinstance(b, float) else (a, b)
        return one if other == 0 and not isinstance(other, float) else float(a) + float(b)
    return _whole(a + b)


def _times(a: Any, b: Any) -> Any:
    return float(a) * float(b) if isinstance(a, float) or isinstance(b, float) else _whole(a * b)


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
        for part in arg.args if arg.op == "+" else (arg,):
            coefficient, rest = _terms(part)
            if rest is None:
                constant = _plus(constant, coefficient)
            else:
                terms[rest] = _plus(terms.get(rest, 0), coefficient)
    if isinstance(constant, float) and math.isinf(constant) and all(is_index(rest) for rest in terms):
        return num(constant)  # sizes and positions are finite
    parts = [
        # one of what is no sum is as it is
        rest if coefficient == 1 and type(coefficient) is int and not (rest.op == "+")
        else _product((num(coefficient), rest))
        for rest, coefficient in terms.items()
        if coefficient != 0 or not is_index(rest)
    ]  # fmt: skip
    if constant != 0 or not parts:
        parts.append(num(constant))
    if len(parts) == 1:
        return parts[0]
    return raw_apply("+", *sorted(parts, key=_order))


def _product(args: tuple[Scalar, ...]) -> Scalar:
    coefficient: Any = 1
    factors: list[Scalar] = []
    for arg in args:
        for part in arg.args if arg.op == "*" else (arg,):
            if isinstance(part, Num) and not isinstance(part.value, bool):
                coefficient = _times(coefficient, part.value)
            else:
                factors.append(part)
    if not factors:
        return num(coefficient)
    if coefficient == 0 and all(is_index(factor) for factor in factors):
        return num(0)
    if len(factors) == 1 and factors[0].op == "+" and is_index(factors[0]):
        return _sum(tuple(_product((num(coefficient), part)) for part in factors[0].args))
    if len(factors) > 1 and all(is_index(factor) for factor in factors):
        for k, factor in enumerate(factors):
            if factor.op == "+":
                others = (*factors[:k], *factors[k + 1 :])
                return _sum(tuple(_product((num(coefficient), part, *others)) for part in factor.args))
    ordered = sorted(factors, key=_order) if len(factors) > 1 else factors
    if coefficient == 1 and not isinstance(coefficient, float):
        return ordered[0] if len(ordered) == 1 else raw_apply("*", *ordered)
    return raw_apply("*", num(coefficient), *ordered)


def _divisible(node: Scalar, by: int) -> tuple[Scalar, Scalar]:
    """`node` as by * quotient + remainder, term by term; both integer expressions."""
    parts = node.args if node.op == "+" else (node,)
    quotient: list[Scalar] = []
    rest: list[Scalar] = []
    for part in parts:
        coefficient, factor = _terms(part)
        if factor is not None and isinstance(coefficient, int) and coefficient % by == 0:
            quotient.append(_product((num(coefficient // by), factor)))
        elif factor is None and isinstance(coefficient, int):
            quotient.append(num(coefficient // by))
            rest.append(num(coefficient % by))
        else:
            rest.append(part)
    return _sum(tuple(quotient)), _sum(tuple(rest))


def least(node: Scalar) -> int | None:
    """A lower bound of an integer expression, from those of its symbols; None where none is known."""
    if isinstance(node, Num):
        return node.value if isinstance(node.value, int) else None
    if isinstance(node, Sym):
        return node.least
    if isinstance(node, Apply) and node.args:
        parts = [least(arg) for arg in node.args]
        if node.name == "max":
            return max((part for part in parts if part is not None), default=None)
        if any(part is None for part in parts):
            return 0 if node.name == "abs" else None
        known = [part for part in parts if part is not None]
        if node.name == "+":
            return sum(known)
        if node.name == "min":
            return min(known)
        if min(known) >= 0 and node.name in {"*", "%", "//"}:
            return math.prod(known) if node.name == "*" else _least_quotient(node, known)
    return None


def _least_quotient(node: Apply, known: list[int]) -> int:
    divisor = node.args[1]
    if node.name == "//" and isinstance(divisor, Num) and isinstance(divisor.value, int) and divisor.value > 0:
        return known[0] // divisor.value
    return 0


def _positive(node: Scalar) -> bool:
    low = least(node)
    return low is not None and low > 0


def _ordered(name: str, a: Scalar, b: Scalar) -> bool | None:
    """A comparison of integer expressions, where the bounds of their symbols decide it."""
    if name in {">", ">="}:
        return _ordered("<" if name == ">" else "<=", b, a)
    difference = _sum((b, _product((num(-1), a))))
    low, reverse = least(difference), least(_product((num(-1), difference)))
    if name == "<":
        return True if low is not None and low > 0 else False if reverse is not None and reverse >= 0 else None
    return True if low is not None and low >= 0 else False if reverse is not None and reverse > 0 else None


def _factors(node: Scalar) -> tuple[Any, list[Scalar]]:
    coefficient, rest = _terms(node)
    if rest is None:
        return coefficient, []
    return coefficient, list(rest.args) if rest.op == "*" else [rest]


def _exact_quotient(a: Scalar, b: Scalar) -> Scalar | None:
    """`a // b` where b divides a as polynomials (a divisor is never 0)."""
    if b.op == "+":
        return num(1) if a is b else _quotient_of_sums(a, b)
    divisor, factors = _factors(b)
    terms = []
    for part in a.args if a.op == "+" else (a,):
        coefficient, own = _factors(part)
        for factor in factors:
            if factor not in own:
                return None
            own.remove(factor)
        if not isinstance(coefficient, int) or not isinstance(divisor, int) or divisor == 0 or coefficient % divisor:
            return None
        terms.append(_product((num(coefficient // divisor), *own)))
    return _sum(tuple(terms))


def _quotient_of_sums(a: Scalar, b: Scalar) -> Scalar | None:
    """The division of polynomials; None where something is left."""
    top, by = _polynomial(a), _polynomial(b)
    found = None if top is None or by is None else top.quotient(by)
    return None if found is None else _sum(tuple(_product((num(times), *factors)) for factors, times in found.terms))


def _polynomial(node: Scalar) -> _Sum | None:
    """A sum of products; None where a coefficient is no integer."""
    found: dict[tuple[Scalar, ...], int] = {}
    for part in node.args if node.op == "+" else (node,):
        coefficient, factors = _factors(part)
        if not isinstance(coefficient, int):
            return None
        found[tuple(sorted(factors, key=_Sum.key))] = coefficient
    return _Sum.of_terms(found)


class _Sum(Polynomial[Scalar]):
    """By text, and different nodes of one text apart: a quotient does not depend on which of them comes first."""

    @staticmethod
    def key(node: Scalar) -> tuple[str, int]:
        return _order(node), id(node)


def _binary(name: str, a: Scalar, b: Scalar) -> Scalar:
    if name in {"min", "max"}:
        if a is b:
            return a
        inverse = {"min": math.inf, "max": -math.inf}[name]
        for one, other in ((a, b), (b, a)):
            if isinstance(one, Num) and one.value == inverse:
                return other
            if isinstance(one, Num) and one.value == -inverse and is_index(other):
                return one
        if is_index(a) and is_index(b) and (decided := _ordered("<=", a, b)) is not None:
            return (b if decided else a) if name == "max" else (a if decided else b)
        return raw_apply(name, *sorted((a, b), key=_order))
    if name == "/" and isinstance(b, Num) and b.value != 0:
        return _product((num(exact_divide(1, b.value)), a)) if not isinstance(b.value, float) else raw_apply("/", a, b)
    if name == "/" and a is b and is_index(a):
        return num(1)
    if name == "^" and isinstance(b, Num) and b.value == 1 and not isinstance(b.value, float):
        return a
    if name in {"//", "%"} and is_index(a) and is_index(b):
        if name == "//" and isinstance(b, Num) and isinstance(b.value, int) and b.value < 0:
            return simplify("//", (_product((num(-1), a)), num(-b.value)))
        if isinstance(b, Num) and isinstance(b.value, int) and b.value > 0:
            if b.value == 1:
                return a if name == "//" else num(0)
            quotient, rest = _divisible(a, b.value)
            if isinstance(rest, Num) and isinstance(rest.value, int):
                return _sum((quotient, num(rest.value // b.value))) if name == "//" else num(rest.value % b.value)
            if name == "//":
                return _sum((quotient, raw_apply("//", rest, b)))
            return raw_apply("%", rest, b)
        exact = _exact_quotient(a, b)
        if exact is not None:
            return exact if name == "//" else num(0)
    if name in {"==", "<=", ">="} and a is b and is_index(a):
        return num(True)
    if name in {"!=", "<", ">"} and a is b and is_index(a):
        return num(False)
    if name in {"==", "!="} and is_index(a) and is_index(b):
        difference = _sum((a, _product((num(-1), b))))
        if isinstance(difference, Num):
            return num((difference.value == 0) == (name == "=="))
        if _positive(difference) or _positive(_product((num(-1), difference))):
            return num(name == "!=")
    if name in {"<", "<=", ">", ">=", "==", "!="}:
        for one, other, sign in ((a, b, 1), (b, a, -1)):
            if isinstance(other, Num) and other.value in (math.inf, -math.inf) and is_index(one):
                return num(bool(FOLD2[name](0, sign * other.value)))
    if name in {"<", "<=", ">", ">="} and is_index(a) and is_index(b):
        decided = _ordered(name, a, b)
        if decided is not None:
            return num(decided)
    if name in {"and", "or"}:
        neutral = name == "and"
        for one, other in ((a, b), (b, a)):
            if isinstance(one, Num):
                return other if bool(one.value) == neutral else num(not neutral)
        return a if a is b else raw_apply(name, a, b)
    return raw_apply(name, a, b)
