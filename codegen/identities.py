"""Shorter forms of functions of functions: equal over the reals, and as exact in floating point as each line states.

Every line is data: forms that a program may have, what is computed in their place, where an argument is cut off, and what arguments
give NaN or an infinity as the form of before does. Tests prove the equalities over symbols and measure the errors that are stated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from fractions import Fraction
from math import inf, nan

from dslc.ir.dtype import DType
from dslc.ir.element import element_type
from dslc.ir.scalar import Apply, Num, Number, Read, Scalar, apply, num, raw_apply, read, rebuild, scalars, walk
from dslc.records import record


class Limit(Enum):
    """A number that depends on the type that is computed in: for f32 and for f64."""

    #: the largest number whose exponential is finite, and the smallest one whose exponential is not 0
    EXP_HIGH = (88.72284, 709.782712893384)
    MINUS_EXP_HIGH = (-88.72284, -709.782712893384)
    EXP_LOW = (-103.97208, -745.1332191019412)
    #: the largest number whose square is finite
    ROOT = (1.8446743e19, 1.3407807929942596e154)
    MINUS_ROOT = (-1.8446743e19, -1.3407807929942596e154)
    ZERO = (0.0, 0.0)

    def of(self, dtype: DType) -> float:
        return self.value[1] if dtype is DType.F64 else self.value[0]


@record
class Outside:
    """A saturation: beyond the limit, on `side` ("<" or ">"), the value is `value`."""

    side: str
    limit: Limit
    value: float


@record
class Identity:
    """`before`, each of its forms, is `after` over the reals, wherever all forms are defined.

    The unknowns are operands without positions, of which the first is the argument. most: the argument is cut off there, as the value
    does not change any more in either type. outside: where `before` leaves the numbers. error: of `after`, in units of the last place
    of the exact value, or of `share` where that is a difference, as tests/codegen/test_identities.py measures it.
    """

    name: str
    before: tuple[Scalar, ...]
    after: Scalar
    error: float
    share: Scalar | None = None
    most: float | None = None
    outside: tuple[Outside, ...] = ()


A, B = read(0, ()), read(1, ())


def _sum(*args: Scalar) -> Scalar:
    return apply("+", *args)


def _times(*args: Scalar) -> Scalar:
    return apply("*", *args)


def _over(a: Scalar, b: Scalar) -> Scalar:
    return apply("/", a, b)


def _log(a: Scalar) -> Scalar:
    return apply("log", a)


def _exp(a: Scalar) -> Scalar:
    return apply("exp", a)


def instance(pattern: Scalar, values: Mapping[int, Scalar]) -> Scalar:
    """A pattern with expressions in the places of its unknowns."""
    return rebuild(pattern, lambda node: values[node.operand] if isinstance(node, Read) else None)


_ONE, _NONE, _MINUS = num(1), num(0), num(-1)
_SIZES = (apply("max", A, _times(_MINUS, A)), apply("abs", A))
#: log(1 + exp(x)), as it is and so that nothing overflows
_SOFTPLUS = (
    _log(_sum(_ONE, _exp(A))),
    *(_sum(apply("max", A, _NONE), _log(_sum(_ONE, _exp(_times(_MINUS, size))))) for size in _SIZES),
)
_EXP = _exp(A)
_SQUARES = (_times(A, A), apply("^", A, num(2)))
_ROOTS = (apply("sqrt", A), apply("^", A, num(Fraction(1, 2))))
_NO_LOG = (Outside("<", Limit.ZERO, nan),)

#: functions that only generated code has, by what they are in the language
DEFINED: Mapping[str, Scalar] = {"log1p": _log(_sum(_ONE, A)), "rsqrt": _over(_ONE, apply("sqrt", A))}

IDENTITIES: tuple[Identity, ...] = (
    # n / (n + 2) for n = e^a (e^a + 2), which is 1 to the last place beyond 20
    Identity(
        "tanh of softplus", tuple(apply("tanh", form) for form in _SOFTPLUS),
        _over(_times(_EXP, _sum(_EXP, num(2))), _sum(_times(_EXP, _sum(_EXP, num(2))), num(2))), 6, most=20,
    ),
    Identity("exp of softplus", tuple(_exp(form) for form in _SOFTPLUS), _sum(_ONE, _EXP), 3),
    Identity(
        "exp of minus softplus", tuple(_exp(_times(_MINUS, form)) for form in _SOFTPLUS[:1]), _over(_ONE, _sum(_ONE, _EXP)), 4,
    ),
    # a - 1 is exact near 1, where a difference of squares would not be
    Identity(
        "tanh of log", (apply("tanh", _log(A)),),
        _over(_times(_sum(A, _MINUS), _sum(A, _ONE)), _sum(_times(A, A), _ONE)), 4, most=1e9, outside=_NO_LOG,
    ),
    Identity("exp of log", (_exp(_log(A)),), A, 0, outside=_NO_LOG),
    # of the size: the logarithm of -0 is that of 0
    Identity("exp of minus log", (_exp(_times(_MINUS, _log(A))),), _over(_ONE, apply("abs", A)), 0.5, outside=_NO_LOG),
    Identity("exp of half a log", (_exp(_times(num(Fraction(1, 2)), _log(A))),), apply("sqrt", A), 0.5),
    Identity(
        "log of exp", (_log(_EXP),), A, 0, outside=(Outside("<", Limit.EXP_LOW, -inf), Outside(">", Limit.EXP_HIGH, inf)),
    ),
    Identity(
        "log of a quotient of exp", (_log(_over(_EXP, B)),), _sum(A, _times(_MINUS, _log(B))), 3,
        share=_sum(apply("abs", A), apply("abs", _log(B))),
        outside=(Outside("<", Limit.EXP_LOW, -inf), Outside(">", Limit.EXP_HIGH, inf)),
    ),
    Identity("log of a sigmoid", (_log(_over(_ONE, _sum(_ONE, _EXP))),), _times(_MINUS, _log(_sum(_ONE, _EXP))), 4),
    Identity("log of a root", tuple(_log(form) for form in _ROOTS), _times(num(Fraction(1, 2)), _log(A)), 2),
    Identity("reciprocal of exp", (_over(_ONE, _EXP),), _exp(_times(_MINUS, A)), 2),
    Identity(
        "tanh in exponentials",
        (_over(_sum(_EXP, _times(_MINUS, _exp(_times(_MINUS, A)))), _sum(_EXP, _exp(_times(_MINUS, A)))),),
        apply("tanh", A), 6, outside=(Outside("<", Limit.MINUS_EXP_HIGH, nan), Outside(">", Limit.EXP_HIGH, nan)),
    ),
    Identity(
        "root of a square", tuple(instance(form, {0: square}) for form in _ROOTS for square in _SQUARES),
        apply("abs", A), 0, outside=(Outside("<", Limit.MINUS_ROOT, inf), Outside(">", Limit.ROOT, inf)),
    ),
    Identity(
        "reciprocal of a root", (*(_over(_ONE, form) for form in _ROOTS), apply("^", A, num(Fraction(-1, 2)))),
        raw_apply("rsqrt", A), 2,
    ),
    Identity("quotient by a root", tuple(_over(B, form) for form in _ROOTS), _times(B, raw_apply("rsqrt", A)), 3),
    Identity("larger of a number and its negative", _SIZES[:1], _SIZES[1], 0),
    # 1 + x has lost the digits of a small x
    Identity("log of one and more", (_log(_sum(_ONE, A)),), raw_apply("log1p", A), 3),
)  # fmt: skip


def shortened(body: Scalar, operands: tuple[DType, ...]) -> Scalar:
    """A body in which shorter forms stand for those floating-point expressions that nothing else needs a part of.

    Outer ones first: the tangent of a softplus before the softplus's own logarithm.
    """
    if all(node.integral for node in scalars(Apply, body)):
        return body
    users: dict[Scalar, set[Scalar]] = {}
    for node in walk(body):
        for child in node.children:
            users.setdefault(child, set()).add(node)
    types: dict[Scalar, DType | bool] = {}
    known: dict[Scalar, Scalar] = {}

    def leaf(node: Scalar) -> Scalar | None:
        if not isinstance(node, Apply):
            return None
        dtype = element_type(node, operands, types)
        if dtype is None or not dtype.is_float:
            return None
        for identity in IDENTITIES:
            found = _applied(identity, node, users, dtype)
            if found:
                # what comes of it may have a shorter form again
                return rebuild(found, leaf, known)
        return None

    return rebuild(body, leaf, known)


def _applied(identity: Identity, node: Apply, users: Mapping[Scalar, set[Scalar]], dtype: DType) -> Scalar | None:
    for form in identity.before:
        if form.op != node.name:
            continue
        for found, inner in matched(form, node, {}, ()):
            if all(users.get(each, set()) <= set(inner) for each in inner if each is not node):
                return _written(identity, found, dtype)
    return None


def _written(identity: Identity, found: Mapping[int, Scalar], dtype: DType) -> Scalar:
    argument = found[0]
    cut = argument if identity.most is None else apply("min", argument, num(identity.most))
    out = instance(identity.after, {**found, 0: cut})
    for each in identity.outside:
        out = apply("select", apply(each.side, argument, num(each.limit.of(dtype))), num(each.value), out)
    return out


#: functions of arguments in any order, and of one: they take next to no time
_CHEAP = frozenset({"+", "*", "max", "min", "abs"})
#: what unknowns stand for, and the functions that a match takes away
Match = tuple[Mapping[int, Scalar], tuple[Scalar, ...]]


def matched(pattern: Scalar, node: Scalar, values: Mapping[int, Scalar], inner: tuple[Scalar, ...]) -> Iterator[Match]:
    """Match a pattern with an expression. In a sum or product one bare unknown stands for all that is left."""
    if isinstance(pattern, Read):
        bound = values.get(pattern.operand)
        if not bound or bound is node:
            yield {**values, pattern.operand: node}, inner
        return
    if isinstance(pattern, Num):
        if isinstance(node, Num) and _same(pattern.value, node.value):
            yield values, inner
        return
    known = {each.operand for each in scalars(Read, pattern)} <= values.keys()
    if known and instance(pattern, values) is node:
        # numbers that were folded into each other are no longer apart
        yield values, _with(inner, pattern, node)
        return
    if not pattern.op or pattern.op != node.op:
        return
    if pattern.op in _CHEAP and len(pattern.args) > 1:
        yield from _in_any_order(pattern.args, node.args, pattern.op, values, _with(inner, pattern, node))
    elif len(pattern.args) == len(node.args):
        yield from _in_order(pattern.args, node.args, values, _with(inner, pattern, node))


def _in_order(
    patterns: tuple[Scalar, ...], nodes: tuple[Scalar, ...], values: Mapping[int, Scalar], inner: tuple[Scalar, ...]
) -> Iterator[Match]:
    if not patterns:
        yield values, inner
        return
    for found, taken in matched(patterns[0], nodes[0], values, inner):
        yield from _in_order(patterns[1:], nodes[1:], found, taken)


def _in_any_order(
    patterns: tuple[Scalar, ...],
    nodes: tuple[Scalar, ...],
    name: str,
    values: Mapping[int, Scalar],
    inner: tuple[Scalar, ...],
) -> Iterator[Match]:
    if not patterns:
        if not nodes:
            yield values, inner
        return
    if len(patterns) > len(nodes):
        return
    # an unknown last: it takes what nothing else needs
    first = min(patterns, key=lambda each: isinstance(each, Read))
    rest = tuple(each for k, each in enumerate(patterns) if k != patterns.index(first))
    if isinstance(first, Read) and not rest and len(nodes) > 1 and name in {"+", "*"}:
        yield from matched(first, apply(name, *nodes), values, inner)
        return
    for k, node in enumerate(nodes):
        for found, taken in matched(first, node, values, inner):
            yield from _in_any_order(rest, nodes[:k] + nodes[k + 1 :], name, found, taken)


def _same(a: Number, b: Number) -> bool:
    return not isinstance(a, bool) and not isinstance(b, bool) and a == b


def _with(inner: tuple[Scalar, ...], pattern: Scalar, node: Scalar) -> tuple[Scalar, ...]:
    """Duplicate cheap operands for several users."""
    heavy = any(each.name not in _CHEAP for each in scalars(Apply, pattern))
    return (*inner, node) if heavy else inner
