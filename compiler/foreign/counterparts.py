"""Counterparts in the language of the operators of the files, by TASO's names; those without one are not here.

Without a counterpart: input, weight and any (which compute nothing), shape and size (numbers about a tensor), cast and resize (the
type and the mode have no place in a rule file).
"""

from __future__ import annotations

from dslc.foreign.rule import Operator
from dslc.foreign.shapes import Clash

OPERATORS, FOREIGN = "taso.operators", "taso.foreign"
#: foreign kind -> (file that defines the operator, its name): one shape in, the same out
POINTWISE: dict[str, tuple[str, str]] = {
    **{kind: (OPERATORS, kind) for kind in ("relu", "sigmoid", "tanh")},
    **{kind: ("std.pointwise", kind) for kind in ("exp", "log", "sqrt", "ceil", "round")},
    **{f"ew_{name}": (OPERATORS, f"ew{name}") for name in ("add", "mul")},
    **{f"ew_{name}": ("std.pointwise", name) for name in ("sub", "div")},
    **{f"ew_{name}": ("std.pointwise", f"{name}imum") for name in ("max", "min")},
    **{f"ew_{name}": ("std.logic", name) for name in ("equal", "greater", "less")},
    "dropout": (FOREIGN, "dropout"),
    "logical_not": ("std.logic", "invert"),
    "where": ("std.logic", "select"),
    "leakyrelu": ("std.activation", "leaky_relu"),
}
ACTIVATIONS = {0: "", 1: "sigmoid", 2: "relu", 3: "tanh"}
POOLS = {"pool2d_avg": (OPERATORS, "pool_avg"), "pool2d_max": (OPERATORS, "pool_max")}
CONSTANTS = {
    "constant_imm": (OPERATORS, "I_matmul"),
    "constant_iconv": (OPERATORS, "I_conv"),
    "constant_one": (OPERATORS, "I_ewmul"),
    "constant_pool": (OPERATORS, "C_pool"),
}
REDUCTIONS: dict[str, tuple[str, str]] = {
    **{f"reduce_{name}": ("std.reduce", f"reduce_{name}") for name in ("max", "mean", "min", "prod", "sum")},
    "reduce_argmax": ("std.order", "argmax"),
    "reduce_argmin": ("std.order", "argmin"),
}
#: a batch norm and what TASO's hand-written substitutions fold it into
NORMS: dict[str, tuple[str, str]] = {
    "batchnorm": ("std.norm", "batch_norm"),
    "fuse_conv_batchnorm": (FOREIGN, "fold_scale"),
    "fuse_conv_batchnorm_alpha_var": (FOREIGN, "fold_scale"),
    "fuse_conv_batchnorm_bias": (FOREIGN, "fold_shift"),
}
#: the format has no place for these attributes: they are any, the same wherever the rule leaves them open
OPEN = {"pad": "padding", "slice": "part", "topk": "best"}
#: all kinds that have a counterpart; `transpose` of a matrix and `matmul` with an activation have another one
PLACES: dict[str, tuple[str, str]] = {
    **POINTWISE, **POOLS, **CONSTANTS, **REDUCTIONS, **NORMS,
    "pad": ("std.join", "pad"), "slice": ("std.join", "slice"), "topk": ("std.order", "topk"),
    "squeeze": ("std.layout", "squeeze"), "unsqueeze": ("std.layout", "unsqueeze"), "reshape": ("std.layout", "reshape"),
    "transpose": ("std.layout", "transpose"), "prelu": ("std.activation", "prelu"), "mul": (OPERATORS, "smul"),
    "conv2d": (OPERATORS, "conv"), "linear": (FOREIGN, "dense"),
    **{kind: (OPERATORS, kind) for kind in ("matmul", "enlarge", "concat", "split")},
    **{kind: (FOREIGN, kind) for kind in ("replicate", "reduce", "merge_gconv", "broadcast_add")},
}  # fmt: skip
#: names of outputs where they are not Y, Z
FIELDS = {"topk": ("Values", "Indices")}
ARITY: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(POINTWISE, (1,)),
    **dict.fromkeys(("ew_add", "ew_mul", "ew_sub", "ew_div", "ew_max", "ew_min", "ew_equal", "ew_greater", "ew_less"), (2,)),
    **dict.fromkeys(("mul", "matmul", "linear", "conv2d", "prelu", "broadcast_add"), (2,)),
    **dict.fromkeys((*POOLS, *REDUCTIONS, *OPEN), (1,)),
    **dict.fromkeys(CONSTANTS, (0,)),
    **dict.fromkeys(("transpose", "split", "replicate", "reduce", "merge_gconv", "reshape", "squeeze", "unsqueeze"), (1,)),
    "where": (3,), "enlarge": (1, 2), "batchnorm": (5,), "fuse_conv_batchnorm": (5,), "fuse_conv_batchnorm_alpha_var": (3,),
    "fuse_conv_batchnorm_bias": (4,), "concat": tuple(range(2, 257)),
}  # fmt: skip
KNOWN = frozenset(ARITY)

#: element types of tensors and result, where they are not all those of the rule's numbers
ELEMENTS: dict[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(("ew_equal", "ew_greater", "ew_less"), (("T", "T"), "bool")),
    "logical_not": (("bool",), "bool"),
    "where": (("bool", "T", "T"), "T"),
    **dict.fromkeys(("reduce_argmax", "reduce_argmin"), (("T",), "int64")),
}
#: of these the elements may be of any type
OF_ANY_ELEMENTS = frozenset({"transpose", "concat", "split", "reshape", "squeeze", "unsqueeze", "dropout", "slice"})


def is_open(op: Operator) -> bool:
    """Return whether the file names neither strides nor padding: FlexFlow takes those of the operator that it finds."""
    return op.kind == "conv2d" and all(op.get(key) is None for key in ("stride_h", "stride_w", "pad"))


def axis_of(op: Operator) -> int:
    """The axis along which an operator works."""
    axis = op.get("axis")
    if not isinstance(axis, int) or not 0 <= axis < 8:
        raise Clash(f"`{op.kind}` along axis {axis}")
    return axis


def padding(op: Operator) -> str:
    """The padding, `same` or `valid`."""
    mode = 0 if is_open(op) else op.get("pad")
    if mode not in (0, 1):
        raise Clash(f"`{op.kind}` with the padding mode {mode}")
    return "same" if mode == 0 else "valid"


def strides(op: Operator) -> tuple[int, int]:
    """The strides along both axes of an image."""
    first, second = [1 if is_open(op) else op.get(key) for key in ("stride_h", "stride_w")]
    if not isinstance(first, int) or not isinstance(second, int) or min(first, second) < 1:
        raise Clash(f"`{op.kind}` with strides {first}, {second}")
    return first, second


def activation(op: Operator) -> str:
    """The operator that is applied to the result; empty where there is none."""
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
    """Return whether an axis of size 1 stays; as in ONNX, where the file does not say it."""
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
    return tuple(map(int, words))
