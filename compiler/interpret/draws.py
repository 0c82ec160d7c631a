"""Pools from which random instances are drawn: sizes, ranks, attributes and numbers of a rule, and the elements of its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np

from dslc.interpret.domain import Shape
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType, TensorType, integer_range
from dslc.records import record
from dslc.semantics.values import Numbers, far_sizes, values


@record
class InstanceDraws:
    """Possible values of names; a value that is more often in a tuple is drawn more often.

    `ranks`: of packs; `entries`: integer attributes; `numbers`: float attributes and free numbers; `casts`: targets of casts besides
    the type at hand; `fixed`: names that are given, element types among them.
    """

    sizes: tuple[int, ...] = (1, 2, 2, 3, 3, 4, 5, 8)
    ranks: tuple[int, ...] = (0, 1, 2, 3)
    entries: tuple[int, ...] = (0, 0, 1, 1, 1, 2, 2, 3)
    numbers: tuple[Fraction, ...] = (
        Fraction(1, 2),
        Fraction(2),
        Fraction(-3, 4),
        Fraction(5, 4),
        Fraction(3),
        Fraction(1, 8),
    )
    casts: tuple[DType, ...] = (DType.F32, DType.I64)
    fixed: Mapping[str, Any] = field(default_factory=dict)


ORDINARY = InstanceDraws()
#: numbers of every sign, for what only a sign tells apart
SIGNED = replace(ORDINARY, numbers=tuple(Fraction(n, 4) for n in (-8, -4, -3, -1, 0, 1, 2, 4, 5, 12)))

_SMALL = InstanceDraws(
    ranks=(0, 1, 2, 3, 4, 5, 6),
    entries=(-2, -1, 0, 0, 1, 1, 1, 2, 2, 3),
    numbers=tuple(Fraction(n, 4) for n in (-8, -4, -3, -2, -1, 0, 0, 1, 2, 4, 5, 8, 12)),
    casts=tuple(DType),
)
_WIDE = replace(
    _SMALL,
    sizes=(
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        9,
        11,
        12,
        13,
        16,
        17,
        19,
        23,
        24,
        29,
        31,
        32,
        36,
        37,
        41,
        43,
        47,
        48,
        53,
        59,
        60,
        61,
        64,
    ),
    ranks=(0, 1, 1, 2, 2, 3),
    entries=(-3, -1, 0, 1, 2, 3, 4, 5, 7, 8),
)
_TINY = replace(_SMALL, sizes=(1, 1, 2, 2, 3))


def adversarial(near: Numbers, rng: np.random.Generator) -> InstanceDraws:
    """Draws that look for mistakes: tiny, small or wide ones, with the numbers that a rule names and those beside them."""
    base = (_TINY, _SMALL, _WIDE, ORDINARY)[int(rng.choice(4, p=(0.35, 0.35, 0.2, 0.1)))]
    if not near.every or rng.random() < (0.2 if near.own else 0.4):
        return base
    whole = [n for n in near.whole if abs(n) <= 64]
    beside = tuple(n + k for n in whole for k in (-1, 0, 1))
    named = tuple(n for n in near.every if abs(n) < 1 << 20)
    return replace(
        base,
        sizes=(*base.sizes, *(n for n in beside if n > 0), *far_sizes(near)),
        ranks=(*base.ranks, *(n for n in beside if 0 <= n <= 6)),
        entries=(*base.entries, *values("int", near=near)),
        numbers=(
            *(n + k * Fraction(1, 64) for n in named for k in (-1, 1)),
            *values("float", near=near),
            *_inside(near),
        ),
    )


def _inside(near: Numbers) -> tuple[Fraction, ...]:
    """The numbers of a rule itself, and what lies between them and 0, and just beyond: there guards let little in."""
    parts = (Fraction(1), Fraction(1, 2), Fraction(63, 64), Fraction(3, 2))
    return tuple(n * part for n in near.own if n and abs(n) < 1 << 20 for part in parts) * 2


# ---- elements ----------------------------------------------------------------------------------------------------

#: `small`: a few numbers around 0; `positions`: small and not negative, so that they may be positions; `spread`: over the type's
#: range; `extremes`: its ends, 0, and powers of two and what is beside them; `equal`: one number everywhere; `named`: numbers that
#: the rule names, and those beside them; `zeros`; `positive`: floats above 0; `beside`: all beside one power
#: of two, at which another type ends to hold every integer
Manner = Literal["small", "extremes", "positions", "named", "equal", "spread", "positive", "zeros", "beside"]
MANNERS: tuple[Manner, ...] = get_args(Manner)


def elements(
    type: TensorType, manner: Manner, rng: np.random.Generator, named: Sequence[Fraction] = (), most: int = 4,
    powers: Sequence[int] = (),
) -> Any:  # fmt: skip
    """A random tensor of its numpy type. Floats have few digits, so that sums of products are exact.

    `most`: positions are smaller; `powers`: those of two that are told apart.
    """
    shape = type.sizes
    dtype = type.dtype
    if dtype is DType.BOOL:
        if manner in {"zeros", "equal"}:
            return np.full(shape, manner == "equal" and rng.random() < 0.5)
        return rng.integers(0, 2, shape).astype(bool)
    if manner == "zeros":
        return np.zeros(shape, NUMPY[dtype])
    if manner == "equal":
        one = elements(TensorType(dtype, ()), ("small", "extremes", "named")[int(rng.integers(3))], rng, named, most)
        return np.full(shape, one)
    if manner == "beside":
        return _beside(dtype, shape, rng, powers or (8, 11, 24, 53))
    return (
        _floats(dtype, shape, manner, rng, named)
        if dtype.is_float
        else _integers(dtype, shape, manner, rng, named, most)
    )


def _beside(dtype: DType, shape: Shape, rng: np.random.Generator, powers: Sequence[int]) -> Any:
    """Numbers of a type that are beside one power of two, or its opposite."""
    most = 1 << (15 if dtype is DType.F16 else 64)
    low, high = (-most, most) if dtype.is_float else integer_range(dtype)
    near = [sign << power for power in powers for sign in (1, -1) if low < sign << power < high] or [1]
    base = near[int(rng.integers(len(near)))]
    pool = np.array([n for n in range(base - 1, base + 3) if low <= n <= high], dtype=NUMPY[dtype])
    return rng.choice(pool, shape)


def _floats(dtype: DType, shape: Shape, manner: Manner, rng: np.random.Generator, named: Sequence[Fraction]) -> Any:
    out: Any
    if manner == "positive":
        out = rng.integers(1, 33, shape) / 8
    elif manner == "named" and named:
        near = [float(n) + d for n in named if abs(n) <= 64 for d in (0.0, 0.0, -1 / 64, 1 / 64)] or [0.0]
        out = rng.choice(np.asarray(near), shape)
    elif manner == "extremes":
        out = rng.choice(np.asarray([0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 64.0, -64.0]), shape)
    elif manner == "positions":
        out = rng.integers(-3, 4, shape) * 1.0
    elif manner == "spread":
        out = rng.integers(-1 << 10, 1 << 10, shape) / 16
    else:
        out = rng.integers(-32, 33, shape) / 8
    return np.asarray(out).astype(NUMPY[dtype])


def _integers(
    dtype: DType, shape: Shape, manner: Manner, rng: np.random.Generator, named: Sequence[Fraction], most: int
) -> Any:
    info = np.iinfo(NUMPY[dtype])
    low, high = int(info.min), int(info.max)
    if manner == "spread":
        return rng.integers(low, high, shape, dtype=NUMPY[dtype], endpoint=True)
    if manner == "positions":
        return rng.integers(0, min(high, max(most, 1) - 1), shape, dtype=NUMPY[dtype], endpoint=True)
    if manner == "extremes":
        bits = info.bits
        # where floats of 16, 32 and 64 bits end to hold every integer, too
        powers = [1 << min(k, bits - 1) for k in (bits // 2 - 1, bits // 2, bits - 2, bits - 1, 11, 24, 53)]
        pool = [
            low,
            low + 1,
            high,
            high - 1,
            0,
            1,
            -1,
            2,
            *(s * p + d for p in powers for d in (-1, 0, 1) for s in (1, -1)),
        ]
    elif manner == "named" and named:
        pool = [int(n) + d for n in named for d in (-1, 0, 1)]
    else:
        pool = [-3, -2, -1, 0, 1, 2, 3, 4]
    fitting = [k for k in pool if low <= k <= high] or [0, 1]
    return np.array(
        [fitting[int(k)] for k in rng.integers(len(fitting), size=shape).reshape(-1)], dtype=NUMPY[dtype]
    ).reshape(shape)


def type_in_turn(attempt: int) -> tuple[DType, ...]:
    """The element type of a draw: floats first; where they hardly fit, every second time another type, the common ones oftener."""
    if attempt < FLOATS_FIRST or attempt % 2 == 0:
        return (DType.F32,)
    return (_OTHERS[attempt // 2 % len(_OTHERS)],)


FLOATS_FIRST = 100  #: draws of which every one is tried on floats; of later ones every second

_RARE = [one for one in DType if one not in (DType.F32, DType.I64, DType.BOOL)]
_OTHERS = [one for rare in _RARE for one in (DType.I64, DType.BOOL, rare)]
