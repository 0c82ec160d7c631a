"""Lists (packs, attribute lists, 1-D scopes) and the index functions on them.

Elements are numbers or integer expressions; arithmetic is elementwise, a number is repeated (language.md, semantics 11).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from dslc.ir.fold import FOLD1, FOLD2, bounded
from dslc.ir.scalar import Iter, Num, Scalar, apply, as_scalar
from dslc.semantics.assuming import Assuming, joint
from dslc.semantics.env import Mismatch, ScopeBuilder

List = tuple[Any, ...]


def plain(value: Any) -> Any:
    """A constant scalar expression as its number."""
    return value.value if isinstance(value, Num) else value


def _symbolic(name: str, *args: Any) -> Any:
    """A function of expressions and numbers, as its number where it has one."""
    return plain(apply(name, *map(as_scalar, args)))


def _times(a: Any, b: Any) -> Any:
    return float(a) * float(b) if isinstance(a, float) or isinstance(b, float) else bounded(a * b)


_NUMBERS: Mapping[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": _times, **FOLD2}


def arithmetic(op: str, a: Any, b: Any) -> Any:
    """`a op b` on numbers, scalar expressions and lists of them."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        return tuple(arithmetic(op, x, y) for x, y in paired(a, b))
    if isinstance(a, Scalar) or isinstance(b, Scalar):
        return _symbolic(op, a, b)
    try:
        return _NUMBERS[op](a, b)
    except ZeroDivisionError:
        raise Mismatch(f"division by zero in {a} {op} {b}") from None
    except OverflowError:
        raise Mismatch(f"the result of {_short(a)} {op} {_short(b)} is too large") from None


def _short(value: Any) -> str:
    """A number as a message shows it: one of many digits by its first ones."""
    short = not isinstance(value, int | Fraction) or max(value.numerator, value.denominator) < 10**40
    return str(value) if short else "a number of many digits"


def paired(a: Any, b: Any) -> list[tuple[Any, Any]]:
    """Two operands elementwise; a number goes with every element."""
    if not isinstance(a, tuple):
        return [(a, y) for y in b]
    if not isinstance(b, tuple):
        return [(x, b) for x in a]
    if len(a) != len(b):
        raise Mismatch(f"lists of {len(a)} and {len(b)} elements do not go together")
    return list(zip(a, b, strict=True))


def negate(value: Any) -> Any:
    """`-value`, elementwise."""
    if isinstance(value, tuple):
        return tuple(negate(x) for x in value)
    if isinstance(value, Scalar):
        return _symbolic("-", value)
    return -value


def same(a: Any, b: Any) -> Any:
    """Return whether two values are equal: True, False, or a condition on sizes."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        if len(a) != len(b):
            return False
        return conjunction([same(x, y) for x, y in zip(a, b, strict=True)])
    if isinstance(a, Scalar) or isinstance(b, Scalar):
        if not all(isinstance(one, bool | int | float | Fraction | Scalar) for one in (a, b)):
            return False
        return _symbolic("==", a, b)
    return bool(a == b)


def conjunction(conditions: Sequence[Any]) -> Any:
    """Conditions joined by `and`: True, False, or a condition on sizes."""
    return _joined("and", conditions, True)


def disjunction(conditions: Sequence[Any]) -> Any:
    """Conditions joined by `or`: True, False, or a condition on sizes."""
    return _joined("or", conditions, False)


def _joined(name: str, conditions: Sequence[Any], neutral: bool) -> Any:
    """Conditions as one; `neutral` ones say nothing, and one of the other value decides."""
    total: Any = neutral
    for condition in conditions:
        if condition is (not neutral):
            return condition
        if condition is not neutral:
            total = condition if total is neutral else _symbolic(name, total, condition)
    return total


def compare(op: str, a: Any, b: Any) -> Any:
    """One comparison; `==` and `!=` of two lists compare them whole, everything else is elementwise."""
    if op in {"==", "!="} and isinstance(a, tuple) == isinstance(b, tuple):
        equal = same(a, b)
        if op == "==":
            return equal
        return (not equal) if isinstance(equal, bool) else _symbolic("not", equal)
    if op == "in":
        return disjunction([same(a, x) for x in b])
    if isinstance(a, tuple) or isinstance(b, tuple):
        return tuple(compare(op, x, y) for x, y in paired(a, b))
    if isinstance(a, Scalar) or isinstance(b, Scalar):
        return _symbolic(op, a, b)
    return FOLD2[op](a, b)


def choose(condition: Any, then: Any, otherwise: Any) -> Any:
    """`then if condition else otherwise`, elementwise where the condition is a list or unknown."""
    if isinstance(condition, tuple):
        count = len(condition)
        a = then if isinstance(then, tuple) else (then,) * count
        b = otherwise if isinstance(otherwise, tuple) else (otherwise,) * count
        if len(a) != count or len(b) != count:
            raise Mismatch("the branches of a conditional differ in length")
        return tuple(choose(c, x, y) for c, x, y in zip(condition, a, b, strict=True))
    if isinstance(condition, Scalar):
        if isinstance(then, tuple) or isinstance(otherwise, tuple):
            return tuple(choose(condition, x, y) for x, y in paired(then, otherwise))
        return _symbolic("select", condition, then, otherwise)
    return then if condition else otherwise


def fold(kind: str, values: List) -> Any:
    """sum, prod, max, min, any or all of a list."""
    if kind in {"any", "all"}:
        flat = [fold(kind, value) if isinstance(value, tuple) else value for value in values]
        return conjunction(flat) if kind == "all" else disjunction(flat)
    if not values:
        return {"sum": 0, "prod": 1, "max": -math.inf, "min": math.inf}[kind]
    op = {"sum": "+", "prod": "*", "max": "max", "min": "min"}[kind]
    return functools.reduce(functools.partial(arithmetic, op), values)


def scalar_function(name: str, value: Any) -> Any:
    """A function of one value, elementwise."""
    if isinstance(value, tuple):
        return tuple(scalar_function(name, x) for x in value)
    if not isinstance(value, Scalar) and name in FOLD1:
        try:
            return FOLD1[name](value)
        except (ArithmeticError, ValueError):
            pass
    return _symbolic(name, value)


# ---- index functions -----------------------------------------------------------------------------------------


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the first one: `-1` of rank 3 → 2."""
    found = axis + rank if axis < 0 else axis
    if not 0 <= found < rank:
        raise Mismatch(f"axis {axis} is outside a rank of {rank}")
    return found


def axes_of(axes: Any, rank: int) -> tuple[int, ...]:
    """Axes counted from the first one, none twice."""
    out = tuple(axis_of(int(axis), rank) for axis in (axes if isinstance(axes, tuple) else (axes,)))
    if len(set(out)) != len(out):
        raise Mismatch(f"axes {list(out)} repeat")
    return out


def broadcast(*shapes: List, assuming: Assuming | None = None) -> List:
    """The common shape of tensors that broadcast."""
    rank = max(len(shape) for shape in shapes)
    columns = zip(*[(1,) * (rank - len(shape)) + shape for shape in shapes], strict=True)
    return tuple(_joint(column, assuming) for column in columns)


def _joint(sizes: tuple[Any, ...], assuming: Assuming | None) -> Any:
    """The broadcast of one axis. Against an unknown size a known one above 1 wins (the model would be wrong otherwise)."""
    found: Any = 1
    for size in sizes:
        if size is found or size == 1:
            continue
        if found == 1:
            found = size
        elif assuming and (isinstance(found, Scalar) or isinstance(size, Scalar)):
            found = plain(joint(found, size, assuming))
        elif isinstance(found, Scalar) and isinstance(size, int):
            found = size
        elif not (isinstance(found, int) and isinstance(size, Scalar)) and same(found, size) is not True:
            raise Mismatch(f"sizes {found} and {size} do not broadcast")
    return found


def fit(index: List, shape: List, builder: ScopeBuilder | None) -> List:
    """The part of an index that reads a tensor which is broadcast to it."""
    if len(shape) > len(index):
        raise Mismatch("a tensor of higher rank than the result does not broadcast")
    return tuple(_fit_one(i, size, builder) for i, size in zip(index[len(index) - len(shape) :], shape, strict=True))


def _fit_one(index: Any, size: Any, builder: ScopeBuilder | None) -> Any:
    if not isinstance(size, Scalar):
        return 0 if size == 1 else index
    if builder and isinstance(index, Iter) and same(builder.extents.get(index), size) is True:
        return index
    return choose(compare("==", size, 1), 0, index)


def ravel(index: List, shape: List) -> Any:
    """A position in a merged dimension: `(i, j)` of `(M, N)` → `i * N + j`."""
    total: Any = 0
    for i, size in paired(index, shape):
        total = arithmetic("+", arithmetic("*", total, size), i)
    return total


def unravel(position: Any, shape: List) -> List:
    """The parts of a position in a merged dimension, the inverse of `ravel`."""
    out: list[Any] = []
    for size in reversed(shape[1:]):
        out.append(arithmetic("%", position, size) if size != 1 else 0)
        position = arithmetic("//", position, size)
    return (position, *reversed(out)) if shape else ()


def merge(rest: Any, chosen: Any, axes: Any) -> List:
    """A list with chosen entries at some axes, and the rest at the others."""
    count = len(axes)
    rank = len(rest) + count
    places = axes_of(axes, rank)
    filled = dict(zip(places, chosen if isinstance(chosen, tuple) else (chosen,) * count, strict=True))
    others = iter(rest)
    return tuple(filled[k] if k in filled else next(others) for k in range(rank))


def without(values: List, axes: Any) -> List:
    """A list without the entries at some axes."""
    places = set(axes_of(axes, len(values)))
    return tuple(value for k, value in enumerate(values) if k not in places)


def only(values: List, axes: Any) -> List:
    """The entries of a list at some axes."""
    return tuple(values[k] for k in axes_of(axes, len(values)))


def _permutation(values: List, perm: List) -> List:
    if sorted(perm) != list(range(len(values))):
        raise Mismatch(f"{list(perm)} is no permutation of {len(values)} axes")
    return perm


def permute(values: List, perm: List) -> List:
    """A list in the order of a permutation."""
    return tuple(values[k] for k in _permutation(values, perm))


def unpermute(values: List, perm: List) -> List:
    """A list in its order before a permutation."""
    return tuple(values[_permutation(values, perm).index(k)] for k in range(len(perm)))


def ceildiv(a: Any, b: Any) -> Any:
    """`a / b` rounded up; of an unknown size by a number as `(a + b - 1) // b`, which is not below 0 where the size isn't."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        return tuple(ceildiv(x, y) for x, y in paired(a, b))
    if isinstance(a, Scalar) and isinstance(b, int) and b > 0:
        return arithmetic("//", arithmetic("+", a, b - 1), b)
    return negate(arithmetic("//", negate(a), b))


#: index functions that need nothing but their arguments
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len,
    "range": lambda n: tuple(range(int(n))),
    "reversed": lambda values: tuple(reversed(values)),
    "take": lambda values, count: values[: int(count)],
    "drop": lambda values, count: values[int(count) :],
    "broadcast": broadcast,
    "permute": permute,
    "unpermute": unpermute,
    "ravel": ravel,
    "unravel": unravel,
    "without": without,
    "only": only,
    "merge": merge,
    "ceildiv": ceildiv,
}
