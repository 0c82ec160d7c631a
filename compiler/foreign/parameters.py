"""What the parameters of an operator say. What they may not say raises Clash."""

from __future__ import annotations

from dslc.foreign.counterparts import ACTIVATIONS
from dslc.foreign.rule import Operator
from dslc.foreign.shapes import Clash


def is_open(op: Operator) -> bool:
    """Whether the file names neither strides nor padding: FlexFlow takes those of the operator that it finds."""
    return op.kind == "conv2d" and all(op.get(key) is None for key in ("stride_h", "stride_w", "pad"))


def axis_of(op: Operator) -> int:
    axis = op.get("axis")
    if not isinstance(axis, int) or not 0 <= axis < 8:
        raise Clash(f"`{op.kind}` along axis {axis}")
    return axis


def padding(op: Operator) -> str:
    mode = 0 if is_open(op) else op.get("pad")
    if mode not in (0, 1):
        raise Clash(f"`{op.kind}` with the padding mode {mode}")
    return "same" if mode == 0 else "valid"


def strides(op: Operator) -> tuple[int, int]:
    found = [1 if is_open(op) else op.get(key) for key in ("stride_h", "stride_w")]
    first, second = found
    if not isinstance(first, int) or not isinstance(second, int) or min(first, second) < 1:
        raise Clash(f"`{op.kind}` with strides {first}, {second}")
    return first, second


def activation(op: Operator) -> str:
    mode = op.get("acti")
    if mode is None:
        return ""
    if mode not in ACTIVATIONS:
        raise Clash(f"`{op.kind}` with the activation mode {mode}")
    assert isinstance(mode, int)
    return ACTIVATIONS[mode]


def permutation(op: Operator) -> tuple[int, ...]:
    """The order of the axes: a number in base `numdim` (TASO), digits with `_` between (TENSAT), or two axes exchanged."""
    perm, rank = op.get("perm"), op.get("numdim")
    if perm is None:
        return (1, 0)
    if isinstance(perm, str):
        digits = perm.split("_")
        if not all(digit.isdigit() for digit in digits):
            raise Clash(f"a permutation `{perm}`")
        order = [int(digit) for digit in digits]
    else:
        rank = 2 if rank is None else rank
        if not isinstance(rank, int) or not 1 <= rank <= 8 or perm < 0:
            raise Clash(f"a permutation {perm} of {rank} axes")
        order = []
        for _ in range(rank):
            perm, digit = divmod(perm, rank)
            order.insert(0, digit)
        if perm:
            raise Clash(f"a permutation {op.get('perm')} of {rank} axes")
    if sorted(order) != list(range(len(order))):
        raise Clash(f"{order} is no permutation")
    return tuple(order)


def axes_of(op: Operator) -> tuple[int, ...]:
    """In order: one axis as a number, several as digits with `_` between."""
    value = op.get("axes")
    digits = value.split("_") if isinstance(value, str) else [str(value)]
    if not all(digit.isdigit() and len(digit) == 1 and digit < "8" for digit in digits):
        raise Clash(
            f"`{op.kind}` along axes {value}"
            if value is not None
            else f"`{op.kind}` along axes that the file does not name"
        )
    axes = sorted(map(int, digits))
    if len(set(axes)) < len(axes):
        raise Clash(f"`{op.kind}` along axes {value}")
    return tuple(axes)


def keeps_axes(op: Operator) -> bool:
    """Whether an axis of size 1 stays; as in ONNX, where the file does not say it."""
    value = op.get("keep_dims")
    if value not in (None, 0, 1):
        raise Clash(f"`{op.kind}` with keep_dims {value}")
    return value != 0


def count_of(op: Operator) -> int:
    """By how much `merge_gconv` divides the number of groups."""
    count = op.get("merge_gconv_count")
    if not isinstance(count, int) or not 1 <= count <= 1 << 16:
        raise Clash(f"`{op.kind}` of {count} groups")
    return count


def sizes_of(op: Operator) -> tuple[int, ...] | str | None:
    """The shape of a `reshape`: numbers with `_` between, else the name that stands for it, else None: any."""
    value = op.get("shape")
    if value is None:
        return None
    words = str(value).split("_")
    if not all(word.isdigit() for word in words):
        return str(value)
    if not all(1 <= len(word) <= 9 and int(word) > 0 for word in words) or len(words) > 16:
        raise Clash(f"`{op.kind}` to the shape {value}")
    return tuple(int(word) for word in words)
