"""The element type of a scalar expression, from those of the operands that it reads."""

from __future__ import annotations

from dslc.ir.dtype import DTYPES, DType
from dslc.ir.scalar import Num, Read, Reduce, Scalar

_COMPARISONS = {"==", "!=", "<", "<=", ">", ">=", "and", "or", "not", "isnan", "isinf"}
_KEEPING = {"+", "*", "min", "max", "abs", "sign", "//", "%", "trunc", "floor", "ceil", "round"}


def scalar_dtype(body: Scalar, operands: tuple[DType, ...]) -> DType:
    """The element type of an expression; numbers take the type of what they meet (bare ones are int64 or f32)."""
    found = _dtype(body, operands, {})
    return found if isinstance(found, DType) else (DType.F32 if found else DType.I64)


def element_type(
    body: Scalar, operands: tuple[DType, ...], known: dict[Scalar, DType | bool] | None = None
) -> DType | None:
    """The element type of an expression; None for bare numbers, which take the type of what they meet.

    `known`: what was found for the same operands before, and is found now.
    """
    found = _dtype(body, operands, {} if known is None else known)
    return found if isinstance(found, DType) else None


def _dtype(node: Scalar, operands: tuple[DType, ...], memo: dict[Scalar, DType | bool]) -> DType | bool:
    """An element type, or for bare numbers whether they are floating (True) or integers (False)."""
    if node in memo:
        return memo[node]
    found: DType | bool = False
    if isinstance(node, Read):
        found = operands[node.operand]
    elif isinstance(node, Num):
        found = DType.BOOL if isinstance(node.value, bool) else not isinstance(node.value, int)
    elif isinstance(node, Reduce):
        found = DType.BOOL if node.kind in {"any", "all"} else _dtype(node.body, operands, memo)
    elif node.op:
        if node.op in _COMPARISONS:
            found = DType.BOOL
        elif node.op.startswith("convert:"):
            found = DTYPES[node.op.split(":")[1]]
        else:
            parts = node.args[1:] if node.op == "select" else node.args
            found = _joined([_dtype(part, operands, memo) for part in parts])
            if node.op not in _KEEPING and node.op != "select" and not isinstance(found, DType):
                found = True
    memo[node] = found
    return found


def _joined(kinds: list[DType | bool]) -> DType | bool:
    types = [kind for kind in kinds if isinstance(kind, DType)]
    if types:
        return max(types, key=lambda kind: (kind.is_float, kind is not DType.BOOL, kind.bytes))
    return any(kinds)
