"""A fast first look at types: declared types whose dimensions are plain names, numbers and at most one pack.

Exact solving is `dslc.semantics.types.solve`; this filter only refuses what that would refuse, and needs no evaluation.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, TypeAlias

from dslc.ir.dtype import DTYPES, TensorType
from dslc.records import record
from dslc.syntax import tree as t


@record
class QuickType:
    """`before` and `after` the pack: a name, a number, or None for any other expression; `pack` is its name, "" if it has none."""

    dtype: str
    before: tuple[str | int | None, ...]
    pack: str | None
    after: tuple[str | int | None, ...]

    def fits(self, actual: TensorType, names: dict[str, Any]) -> bool:
        """Return whether the type can match; binds sizes, the pack and the element type in `names`."""
        found = self.bindings(actual)
        return found is not None and bound(found, names)

    def bindings(self, actual: TensorType) -> Bindings | None:
        """List the bindings of names, one after the other; None where the type cannot match."""
        shape = actual.shape
        fixed = len(self.before) + len(self.after)
        if len(shape) < fixed if self.pack is not None else len(shape) != fixed:
            return None
        out: list[tuple[str, Any]] = []
        if self.dtype not in DTYPES:
            out.append((self.dtype, actual.dtype))
        elif DTYPES[self.dtype] is not actual.dtype:
            return None
        split = len(shape) - len(self.after)
        for declared, size in (*zip(self.before, shape, strict=False), *zip(self.after, shape[split:], strict=False)):
            if isinstance(declared, str):
                out.append((declared, size))
            elif declared is not None and declared != size:
                return None
        if self.pack:
            out.append((self.pack, shape[len(self.before) : split]))
        return tuple(out)


#: names and what they stand for, in the order in which they are bound
Bindings: TypeAlias = tuple[tuple[str, Any], ...]


def bound(found: Bindings, names: dict[str, Any]) -> bool:
    """Binds names, as far as they are not bound to something else."""
    for name, value in found:
        known = names.setdefault(name, value)
        if known is not value and not equal(known, value):
            return False
    return True


def equal(a: Any, b: Any) -> bool:
    """Equality of sizes and attribute values; a number stands for every entry of a list."""
    if type(a) is int and type(b) is int:
        return a == b
    if isinstance(a, tuple):
        if isinstance(b, tuple):
            return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
        return all(equal(x, b) for x in a)
    if isinstance(b, tuple):
        return all(equal(a, y) for y in b)
    if isinstance(a, float | Fraction) or isinstance(b, float | Fraction):
        return _close(a, b)
    return bool(a == b)


def _close(a: Any, b: Any) -> bool:
    """Equal, or equal once both are rounded to single precision (models keep attributes as such)."""
    if a == b:
        return True
    try:
        import numpy as np

        with np.errstate(all="ignore"):
            return bool(np.float32(float(a)) == np.float32(float(b)))
    except (TypeError, ValueError, OverflowError):
        return False


def quick_type(type: t.TypeExpr) -> QuickType | None:
    """None where a type has several packs, which only the rule's guards take apart."""
    dims = type.dims or ()
    packs = [k for k, dim in enumerate(dims) if isinstance(dim, t.Pack)]
    # a merged pack `(*d)` is one dimension, which only exact solving takes apart
    if len(packs) > 1:
        return None
    at = packs[0] if packs else len(dims)
    name = next((dim.value.bare or "" for dim in dims if isinstance(dim, t.Pack)), None)
    return QuickType(type.name, tuple(map(_entry, dims[:at])), name, tuple(map(_entry, dims[at + 1 :])))


def _entry(dim: t.Expr) -> str | int | None:
    if isinstance(dim, t.Name) and "." not in dim.id:
        return dim.id
    return dim.value if isinstance(dim, t.Int) else None
