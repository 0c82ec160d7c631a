"""Shorter forms of functions of functions: proved over the reals, measured in floating point, and taken where nothing needs more."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pytest

from dslc.codegen.generate import generate
from dslc.codegen.group import parts_of
from dslc.codegen.identities import DEFINED, IDENTITIES, Identity, Limit, instance, shortened
from dslc.codegen.text import KernelText, Variant
from dslc.interpret import Exact, run_scopes
from dslc.interpret.floats import FUNCTIONS
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import Dim, DType, TensorType
from dslc.ir.graph import Graph, Scope, Value, input_value, scope_value
from dslc.ir.scalar import Apply, Num, Read, Scalar, apply, iterator, num, raw_apply, read, rebuild, walk
from dslc.semantics.library import standard
from tests.codegen.groups import N, Room, group, needs_compiler
from tests.codegen.native import Library, build

A, B = read(0, ()), read(1, ())


def written(body: Scalar) -> Scalar:
    """In the language's own functions."""

    def definition(each: Scalar) -> Scalar | None:
        known = isinstance(each, Apply) and each.name in DEFINED
        return instance(DEFINED[each.name], {0: written(each.args[0])}) if known and isinstance(each, Apply) else None

    return rebuild(body, definition)


def symbolic(body: Scalar, *values: Any) -> Any:
    """What it is of symbols."""
    operands = [input_value(f"x{k}", TensorType(DType.F64, ())) for k in range(len(values))]
    scope = scope_value(Scope((), written(body), DType.F64), tuple(operands))
    arrays = {one: np.array(value, dtype=object) for one, value in zip(operands, values, strict=True)}
    return run_scopes([scope], arrays, Exact())[0][()]


@pytest.mark.parametrize("identity", IDENTITIES, ids=lambda one: one.name)
def test_equal_over_the_reals(identity: Identity) -> None:
    """With symbols for the unknowns: positive ones, and a negative one where the forms have a value there."""
    import sympy

    b = sympy.Symbol("b", positive=True)
    for a in (sympy.Symbol("a", positive=True), sympy.Symbol("a", negative=True)):
        after = symbolic(identity.after, a, b)
        for form in identity.before:
            before = symbolic(form, a, b)
            value = before.subs({a: sympy.Rational(-1, 2), b: 3}).evalf()
            if a.is_negative and (not value.is_real or any(one.limit is Limit.ZERO for one in identity.outside)):
                continue
            assert sympy.simplify((before - after).rewrite(sympy.exp)) == 0, f"{before} is not {after}"


def points(dtype: DType) -> Any:
    """Of every magnitude, and dense where functions bend."""
    small = 10.0 ** np.linspace(-37, 37, 371)
    parts = [small, -small, np.linspace(-115, 115, 461), np.linspace(-1.5, 2.5, 401), np.linspace(-25, 25, 201)]
    return np.concatenate(parts).astype(NUMPY[dtype])


SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 3e38, -3e38, 1e-40, 6e4, -6e4, 88.0, 89.0, -89.0, -105.0)
TYPES = (DType.F32, DType.F64)


def operators(body: Scalar, dtype: DType, size: Dim = N) -> Graph:
    """An operator of one element each: `Y[i] = body`."""
    args = tuple(input_value(f"x{k}", TensorType(dtype, (size,))) for k in range(2))
    whole = scope_value(Scope((size,), instance(body, {k: read(k, (iterator("i0"),)) for k in range(2)}), dtype), args)
    return Graph(args, (whole,))


@pytest.fixture(scope="module")
def library() -> tuple[Library, dict[tuple[str, DType], KernelText]]:
    texts = {
        (each.name, dtype): generate(
            standard(), operators(each.before[0], dtype), Variant(width=16 if dtype is DType.F32 else 8)
        )
        for each in IDENTITIES
        for dtype in TYPES
    }
    return build(list(texts.values()), seconds=300), texts


@needs_compiler
@pytest.mark.parametrize("identity", IDENTITIES, ids=lambda one: one.name)
def test_errors_are_as_stated(identity: Identity, library: tuple[Library, dict[tuple[str, DType], KernelText]]) -> None:
    """Against the form of before, in 60 digits."""
    import mpmath
    import sympy

    a, b = sympy.symbols("a b", real=True)
    before, share = (
        sympy.lambdify((a, b), symbolic(each, a, b), "mpmath") for each in (identity.before[0], identity.share or A)
    )
    built, texts = library
    mpmath.mp.dps = 60
    for dtype in TYPES:
        x = points(dtype)
        y = np.resize(np.array([0.5, 3.0, 1e-20, 1e20], NUMPY[dtype]), x.size)
        (found,) = built.run(texts[identity.name, dtype].name, [x, y])
        exact = [
            _real(before, mpmath.mpf(float(one)), mpmath.mpf(float(other))) for one, other in zip(x, y, strict=True)
        ]
        with np.errstate(all="ignore"):
            plain = in_its_type(identity.before[0], dtype, [x, y])
        info = np.finfo(NUMPY[dtype])
        checked = 0
        for k, value in enumerate(exact):
            # beyond what the type holds, on the way as well, is the next test's
            inside = np.isfinite(plain[k]) and not (
                x[k] < 0 and any(one.limit is Limit.ZERO for one in identity.outside)
            )
            if value is None or not inside or not 1e-37 < abs(value) < float(info.max):
                continue
            checked += 1
            against = abs(value) if identity.share is None else share(mpmath.mpf(float(x[k])), mpmath.mpf(float(y[k])))
            error = abs(mpmath.mpf(float(found[k])) - value) / mpmath.mpf(float(np.spacing(NUMPY[dtype].type(against))))
            assert error <= identity.error + 0.01, f"of {x[k]!r}, {y[k]!r}: {found[k]!r}, not {value}"
        assert checked > 300


def _real(function: Callable[..., Any], *args: Any) -> Any:
    import mpmath

    try:
        found = function(*args)
    except (ZeroDivisionError, OverflowError):
        return None
    return found if isinstance(found, mpmath.mpf) and mpmath.isfinite(found) else None


def in_its_type(body: Scalar, dtype: DType, values: list[Any]) -> Any:
    """Every function by itself, as a runtime that has an operator for each: what overflows on the way is infinite."""
    if isinstance(body, Read):
        return values[body.operand]
    if isinstance(body, Num):
        return NUMPY[dtype].type(float(body.value))
    assert isinstance(body, Apply)
    function = {"+": np.add, "*": np.multiply, "/": np.divide, "^": np.power, **FUNCTIONS}[body.name]
    args = [in_its_type(each, dtype, values) for each in body.args]
    return function(*args) if len(args) == 1 else reduce(function, args)


@needs_compiler
@pytest.mark.parametrize("identity", IDENTITIES, ids=lambda one: one.name)
def test_leaves_the_numbers_where_the_longer_form_does(
    identity: Identity, library: tuple[Library, dict[tuple[str, DType], KernelText]]
) -> None:
    """NaN, infinities, zeros and numbers at the ends, against the operator's equation as it is written."""
    built, texts = library
    for dtype in TYPES:
        x = np.array(SPECIAL, NUMPY[dtype])
        y = np.full_like(x, 3)
        with np.errstate(all="ignore"):
            expected = in_its_type(identity.before[0], dtype, [x, y])
        (found,) = built.run(texts[identity.name, dtype].name, [x, y])
        # a number next to nothing may be nothing
        assert np.allclose(found, expected, rtol=1e-5, atol=1e-6, equal_nan=True), list(
            zip(x, found, expected, strict=True)
        )


def names(body: Scalar) -> list[str]:
    """The functions of an expression that take time."""
    cheap = {"min", "max"}
    return sorted(
        each.name for each in walk(body) if isinstance(each, Apply) and each.name.isalnum() and each.name not in cheap
    )


@pytest.mark.parametrize(
    "write",
    [
        lambda r, x: r.op("softplus", x),
        lambda r, x: r.op("log", r.op("add", r.op("exp", x), r.number(1.0))),
        lambda r, x: r.op("log", r.op("add", r.number(1.0), r.op("exp", x))),
    ],
    ids=["softplus", "log of exp + 1", "log of 1 + exp"],
)
def test_whatever_was_written(write: Callable[[Room, Value], Value]) -> None:
    """A softplus by its operator or by others, in a chain: one exponential is left of three functions."""
    (part,) = parts_of(
        standard(), group(lambda r: r.op("add", r.op("tanh", write(r, r.op("mul", x := r.input(N), x))), x))
    ).parts
    assert names(part.scope.body) == ["exp"]


def test_what_others_need_stays() -> None:
    """Where the softplus is needed by itself, its tangent is taken of it."""
    softplus = apply("log", apply("+", num(1), apply("exp", A)))
    both = apply("+", softplus, apply("tanh", softplus))
    assert names(shortened(both, (DType.F32,))) == ["exp", "log1p", "tanh"]
    assert names(shortened(apply("tanh", softplus), (DType.F32,))) == ["exp"]


def test_only_floating_point_has_shorter_forms() -> None:
    whole = apply("max", A, apply("*", num(-1), A))
    assert shortened(whole, (DType.I32,)) is whole
    assert shortened(whole, (DType.F32,)) is apply("abs", A)


def test_an_unknown_stands_for_all_that_is_left() -> None:
    """Of a sum, and of a product."""
    several = apply("log", apply("+", num(1), A, B))
    assert shortened(several, (DType.F32, DType.F32)) is raw_apply("log1p", apply("+", A, B))
    quotient = apply("/", apply("*", A, B), apply("sqrt", apply("*", A, A, B)))
    assert "rsqrt" in names(shortened(quotient, (DType.F32, DType.F32)))


def test_numbers_match_by_value() -> None:
    """A constant of a model is a float, a number of an equation is an integer or a fraction."""
    assert shortened(apply("^", apply("^", A, num(2.0)), num(0.5)), (DType.F32,)) is shortened(
        apply("^", apply("*", A, A), num(Fraction(1, 2))), (DType.F32,)
    )
    assert not any(isinstance(each, Read) and each.index for each in walk(shortened(A, (DType.F32,))))
