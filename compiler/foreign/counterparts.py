"""Which operator of the language stands for an operator of the files, by TASO's name of it; what has none is not here.

Without a counterpart: input, weight and any (which compute nothing), shape and size (numbers about a tensor), cast and resize (the
type and the mode have no place in a rule file).
"""

from __future__ import annotations

OPERATORS, FOREIGN = "taso.operators", "taso.foreign"
#: foreign kind -> (file that defines the operator, its name): one shape in, the same out
POINTWISE: dict[str, tuple[str, str]] = {
    "ew_add": (OPERATORS, "ewadd"),
    "ew_mul": (OPERATORS, "ewmul"),
    "relu": (OPERATORS, "relu"),
    "sigmoid": (OPERATORS, "sigmoid"),
    "tanh": (OPERATORS, "tanh"),
    "dropout": (FOREIGN, "dropout"),
    "ew_sub": ("std.pointwise", "sub"),
    "ew_div": ("std.pointwise", "div"),
    "ew_max": ("std.pointwise", "maximum"),
    "ew_min": ("std.pointwise", "minimum"),
    "ew_equal": ("std.logic", "equal"),
    "ew_greater": ("std.logic", "greater"),
    "ew_less": ("std.logic", "less"),
    "logical_not": ("std.logic", "invert"),
    "where": ("std.logic", "select"),
    "exp": ("std.pointwise", "exp"),
    "log": ("std.pointwise", "log"),
    "sqrt": ("std.pointwise", "sqrt"),
    "ceil": ("std.pointwise", "ceil"),
    "round": ("std.pointwise", "round"),
    "leakyrelu": ("std.activation", "leaky_relu"),
}
ACTIVATIONS = {0: "", 1: "sigmoid", 2: "relu", 3: "tanh"}
POOLS = {"pool2d_avg": "pool_avg", "pool2d_max": "pool_max"}
CONSTANTS = {
    "constant_imm": "I_matmul",
    "constant_iconv": "I_conv",
    "constant_one": "I_ewmul",
    "constant_pool": "C_pool",
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
OPEN: dict[str, tuple[str, str, str]] = {
    "pad": ("std.join", "pad", "padding"),
    "slice": ("std.join", "slice", "part"),
    "topk": ("std.order", "topk", "best"),
}
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
