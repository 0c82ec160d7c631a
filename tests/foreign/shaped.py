"""Rules shaped like those of the published files: TASO's inputs by number, its parameters in its generator's order."""

from __future__ import annotations

from dslc.foreign.rule import ForeignRule, Operator, Output, RuleTensor

X1, X2, X3, W4, W5, W6 = (RuleTensor(-k) for k in range(1, 7))
IMAGE, IMAGE2, KERNEL, KERNEL2, SCALAR = (
    RuleTensor(-7),
    RuleTensor(-8),
    RuleTensor(-10),
    RuleTensor(-11),
    RuleTensor(-20),
)
NARROW = RuleTensor(-13)


def at(operator: int, output: int = 0) -> RuleTensor:
    return RuleTensor(operator, output)


def matmul(a: RuleTensor, b: RuleTensor) -> Operator:
    return Operator("matmul", (a, b), (("acti", 0),))


def plain(kind: str, *inputs: RuleTensor) -> Operator:
    return Operator(kind, inputs)


def conv(
    x: RuleTensor, w: RuleTensor, acti: int = 0, stride: int = 1, pad: int = 0, kernel: tuple[int, int] = (3, 3)
) -> Operator:
    sizes = (("kernel_h", kernel[0]), ("kernel_w", kernel[1]), ("stride_h", stride), ("stride_w", stride))
    return Operator("conv2d", (x, w), (*sizes, ("pad", pad), ("acti", acti)))


def pool(x: RuleTensor, kind: str = "pool2d_avg") -> Operator:
    number = {"pool2d_max": 6, "pool2d_avg": 7}[kind]
    sizes = (("kernel_h", 3), ("kernel_w", 3), ("stride_h", 1), ("stride_w", 1))
    return Operator(kind, (x,), (("op_type", number), *sizes, ("pad", 0), ("acti", 0)))


def concat(axis: int, rank: int, *inputs: RuleTensor) -> Operator:
    return Operator("concat", inputs, (("num_inputs", len(inputs)), ("axis", axis), ("numdim", rank)))


def split(axis: int, x: RuleTensor) -> Operator:
    return Operator("split", (x,), (("num_outputs", 2), ("axis", axis)))


def transpose(x: RuleTensor) -> Operator:
    return Operator("transpose", (x,), (("numdim", 2), ("perm", 2), ("outshuffle", 0)))


def sized(kind: str, *inputs: RuleTensor) -> Operator:
    return Operator(kind, inputs, (("kernel_h", 3), ("kernel_w", 3)))


def rule(source: list[Operator], target: list[Operator], *outputs: tuple[RuleTensor, RuleTensor]) -> ForeignRule:
    if not outputs:
        outputs = ((at(len(source) - 1), at(len(target) - 1)),)
    return ForeignRule("", tuple(source), tuple(target), tuple(Output(a, b) for a, b in outputs))


#: true for all shapes
RIGHT = (
    rule([matmul(X1, W4), matmul(at(0), W5)], [matmul(W4, W5), matmul(X1, at(0))]),
    rule(
        [matmul(X1, W4), matmul(X1, W5)],
        [concat(1, 2, W4, W5), matmul(X1, at(0)), split(1, at(1))],
        (at(0), at(2)),
        (at(1), at(2, 1)),
    ),
    rule([transpose(X1), transpose(X2), plain("ew_add", at(0), at(1))], [plain("ew_add", X1, X2), transpose(at(0))]),
    rule([plain("relu", X1), transpose(at(0))], [transpose(X1), plain("relu", at(0))]),
    rule([matmul(X1, W4), plain("mul", at(0), SCALAR)], [plain("mul", W4, SCALAR), matmul(X1, at(0))]),
    rule([conv(IMAGE, KERNEL), plain("relu", at(0))], [conv(IMAGE, KERNEL, acti=2)]),
    rule(
        [conv(IMAGE, KERNEL, acti=2), conv(IMAGE, KERNEL2, acti=2)],
        [concat(0, 4, KERNEL, KERNEL2), conv(IMAGE, at(0), acti=2), split(1, at(1))],
        (at(0), at(2)),
        (at(1), at(2, 1)),
    ),
    rule([pool(IMAGE)], [sized("constant_pool"), conv(IMAGE, at(0))]),
    rule([sized("constant_iconv"), conv(IMAGE, at(0), acti=2)], [plain("relu", IMAGE)]),
    rule([conv(IMAGE, NARROW, kernel=(1, 3))], [sized("enlarge", NARROW), conv(IMAGE, at(0))]),
    rule([pool(IMAGE, "pool2d_max"), pool(IMAGE2, "pool2d_max"), concat(1, 4, at(0), at(1))],
         [concat(1, 4, IMAGE, IMAGE2), pool(at(0), "pool2d_max")]),
    rule([plain("constant_imm"), matmul(X1, at(0)), plain("relu", at(1))], [plain("relu", X1)]),
)  # fmt: skip

#: false for most
WRONG = (
    rule([matmul(X1, W4)], [matmul(W4, X1)]),
    rule([conv(IMAGE, KERNEL, acti=2), conv(IMAGE2, KERNEL, acti=2), plain("ew_add", at(0), at(1))],
         [plain("ew_add", IMAGE, IMAGE2), conv(at(0), KERNEL, acti=2)]),
    # an enlarged kernel computes more windows where nothing is padded
    rule([concat(0, 2, X1, X2), plain("relu", at(0))], [concat(0, 2, X2, X1), plain("relu", at(0))]),
)  # fmt: skip
