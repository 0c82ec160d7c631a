"""Layers as exporters write them: products with biases, attention, normalisations, convolutions and pools."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.differ.builder import DOUBLE, FLOAT, Builder, Tensor
from benchmarks.differ.elementwise import activation


def linear(b: Builder, x: Tensor) -> Tensor | None:
    """MatMul and Add, or Gemm; sometimes two or three that read the same input."""
    if x.dtype not in (FLOAT, DOUBLE) or x.rank < 2 or x.size == 0:
        return None
    width = x.shape[-1]
    outs = []
    for _ in range(b.pick([1, 1, 2, 3])):
        wide = b.pick([width, 2, 3, 4, 8])
        if x.rank == 2 and b.chance(0.5):
            turned = b.chance(0.5)
            weight = b.noise(wide, width, dtype=x.dtype) if turned else b.noise(width, wide, dtype=x.dtype)
            bias = [b.noise(wide, dtype=x.dtype)] if b.chance(0.8) else []
            scales = {"alpha": 0.5, "beta": 2.0} if b.chance(0.15) else {}
            outs.append(b.node("Gemm", [x, weight, *bias], (x.shape[0], wide), transB=int(turned), **scales))
            continue
        product = b.node("MatMul", [x, b.noise(width, wide, dtype=x.dtype)], (*x.shape[:-1], wide))
        if b.chance(0.7):
            pair = [product, b.noise(wide, dtype=x.dtype)]
            product = b.node("Add", pair if b.chance(0.5) else pair[::-1], product.shape)
        outs.append(product)
    return (
        outs[0]
        if len(outs) == 1
        else b.node("Concat", outs, (*x.shape[:-1], sum(out.shape[-1] for out in outs)), axis=x.rank - 1)
    )


def multiplied(b: Builder, x: Tensor) -> Tensor | None:
    """A product with its own transpose, with another value, or a chain of three."""
    if x.dtype not in (FLOAT, DOUBLE) or x.rank < 2 or x.size == 0:
        return None
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    turned = b.node("Transpose", [x], [x.shape[k] for k in perm], perm=perm)
    square = b.node("MatMul", [x, turned], (*x.shape[:-1], x.shape[-2]))
    scaled = (
        b.node("Mul", [square, b.number(1 / math.sqrt(x.shape[-1]), x.dtype)], square.shape)
        if b.chance(0.5)
        else square
    )
    return b.node("MatMul", [scaled, x], x.shape) if b.chance(0.5) else scaled


def attention(b: Builder, x: Tensor) -> Tensor | None:
    if x.dtype != FLOAT or x.rank != 3 or x.size == 0 or x.shape[-1] % 2:
        return None
    n, s, width = x.shape
    heads = 2
    d = width // heads
    parts = []
    for k in range(3):
        wide = b.node("MatMul", [x, b.noise(width, width)], x.shape)
        wide = b.node("Add", [wide, b.noise(width)], x.shape) if b.chance(0.6) else wide
        split = b.node("Reshape", [wide, b.longs(0, -1, heads, d)], (n, s, heads, d))
        perm = [0, 2, 3, 1] if k == 1 and b.chance(0.4) else [0, 2, 1, 3]
        parts.append(b.node("Transpose", [split], [split.shape[j] for j in perm], perm=perm))
    q, key, v = parts
    if key.shape != (n, heads, d, s) or (d == s and b.nodes[-2].op_type != "Transpose"):
        key = b.node("Transpose", [key], (n, heads, d, s), perm=[0, 1, 3, 2]) if key.shape == (n, heads, s, d) else key
    if key.shape != (n, heads, d, s):
        return None
    scores = b.node("MatMul", [q, key], (n, heads, s, s))
    if b.chance(0.5):
        scores = b.node("Div", [scores, b.number(math.sqrt(d))], scores.shape)
    else:
        scores = b.node("Mul", [scores, b.number(b.pick([1 / math.sqrt(d), -0.5]))], scores.shape)
    if b.chance(0.5):
        shape = b.pick([(n, 1, 1, s), (s, s), (1, s), (s,), (s, 1), (), (n, 1, s, s), (1, 1, s, s)])
        scores = b.node("Add", [scores, b.noise(*shape)], scores.shape)
    weights = b.node("Softmax", [scores], scores.shape, axis=3)
    mixed = b.node("MatMul", [weights, v], (n, heads, s, d))
    back = b.node("Transpose", [mixed], (n, s, heads, d), perm=[0, 2, 1, 3])
    flat = b.node("Reshape", [back, b.longs(0, 0, width)], x.shape)
    out = b.node("Add", [b.node("MatMul", [flat, b.noise(width, width)], x.shape), b.noise(width)], x.shape)
    return b.node("Add", [out, x], x.shape)


def normalized(b: Builder, x: Tensor) -> Tensor | None:
    """Layer norm and root mean square norm in their pieces, softmax, batch and instance norm."""
    if x.dtype not in (FLOAT, DOUBLE) or not x.rank or 0 in x.shape:
        return None
    which = b.whole(0, 6)
    last = x.rank - 1
    rows = (*x.shape[:-1], 1)
    if which == 0:
        return b.node(b.pick(["Softmax", "LogSoftmax"]), [x], x.shape, axis=b.whole(0, last))
    if which in (1, 2):

        def mean(value: Tensor) -> Tensor:
            if b.opset >= 18:
                return b.node("ReduceMean", [value, b.longs(-1)], rows, keepdims=1)
            return b.node("ReduceMean", [value], rows, axes=[-1], keepdims=1)

        centred = b.node("Sub", [x, mean(x)], x.shape) if which == 1 else x
        squared = (
            b.node("Pow", [centred, b.number(2, x.dtype)], x.shape)
            if b.chance(0.6)
            else b.node("Mul", [centred, centred], x.shape)
        )
        under = b.node("Add", [mean(squared), b.weight(np.array(1e-3, x.dtype))], rows)
        root = b.node("Sqrt", [under], rows)
        if b.chance(0.6):
            out = b.node("Div", [centred, root], x.shape)
        else:
            out = b.node("Mul", [centred, b.node("Reciprocal", [root], rows)], x.shape)
        out = b.node("Mul", [out, b.noise(x.shape[-1], dtype=x.dtype, positive=True)], x.shape)
        return b.node("Add", [out, b.noise(x.shape[-1], dtype=x.dtype)], x.shape) if which == 1 else out
    if x.dtype != FLOAT:
        return None
    if which == 3 and b.opset >= 17:
        return b.node("LayerNormalization", [x, b.noise(x.shape[-1]), b.noise(x.shape[-1])], x.shape, axis=-1)
    if x.rank < 2:
        return None
    c = x.shape[1]
    if which == 4 and x.rank >= 3:
        return b.node("InstanceNormalization", [x, b.noise(c, positive=True), b.noise(c)], x.shape)
    return b.node(
        "BatchNormalization", [x, b.noise(c, positive=True), b.noise(c), b.noise(c), b.noise(c, positive=True)], x.shape,
        epsilon=b.pick([1e-5, 1e-3]),
    )  # fmt: skip


def convolved(b: Builder, x: Tensor) -> Tensor | None:
    """Convolution, batch norm and activation; sometimes two branches of one input."""
    if x.dtype != FLOAT or not 3 <= x.rank <= 4 or x.size == 0:
        return None
    branches = []
    for _ in range(b.pick([1, 1, 2])):
        out = _conv(b, x)
        if out is None:
            return None
        if b.chance(0.5):
            c = out.shape[1]
            known = [b.noise(c, positive=True), b.noise(c), b.noise(c), b.noise(c, positive=True)]
            out = b.node("BatchNormalization", [out, *known], out.shape)
        elif b.chance(0.3):
            out = b.node(b.pick(["Mul", "Add"]), [out, b.noise(*[out.shape[1]], *[1] * (x.rank - 2))], out.shape)
        if b.chance(0.6):
            out = activation(b, out) or out
        branches.append(out)
    if len(branches) == 1:
        if branches[0].shape == x.shape and b.chance(0.5):
            return b.node("Add", [branches[0], x], x.shape)
        return branches[0]
    if branches[0].shape == branches[1].shape and b.chance(0.5):
        return b.node("Add", branches, branches[0].shape)
    if branches[0].shape[2:] == branches[1].shape[2:]:
        shape = (x.shape[0], branches[0].shape[1] + branches[1].shape[1], *branches[0].shape[2:])
        return b.node("Concat", branches, shape, axis=1)
    return branches[0]


def _conv(b: Builder, x: Tensor) -> Tensor | None:
    n, c, *sizes = x.shape
    groups = b.pick([1, 1, 1, c]) if c > 1 else 1
    filters = groups * b.whole(1, 3)
    kernel = [b.pick([1, 1, 2, 3]) for _ in sizes]
    stride = [b.pick([1, 1, 1, 2, 3])] * len(sizes)
    dilation = [b.pick([1, 1, 1, 2])] * len(sizes)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    bias = [b.noise(filters)] if b.chance(0.5) else []
    weight = b.noise(filters, c // groups, *kernel)
    attrs: dict[str, object] = {"strides": stride, "dilations": dilation, "group": groups, "kernel_shape": kernel}
    if b.chance(0.25) and dilation[0] == 1:
        out = [-(-size // s) for size, s in zip(sizes, stride, strict=True)]
        return b.node(
            "Conv", [x, weight, *bias], (n, filters, *out), **attrs, auto_pad=b.pick(["SAME_UPPER", "SAME_LOWER"])
        )
    pads = [b.whole(0, r // 2) for r in reach] * 2
    out = [(size + 2 * p - r) // s + 1 for size, p, r, s in zip(sizes, pads, reach, stride, strict=False)]
    if min(out) < 1:
        return None
    return b.node("Conv", [x, weight, *bias], (n, filters, *out), **attrs, pads=pads)


def pooled(b: Builder, x: Tensor) -> Tensor | None:
    if x.dtype != FLOAT or not 3 <= x.rank <= 4 or x.size == 0:
        return None
    n, c, *sizes = x.shape
    if b.chance(0.25):
        return b.node(b.pick(["GlobalAveragePool", "GlobalMaxPool"]), [x], (n, c, *[1] * len(sizes)))
    op = b.pick(["MaxPool", "AveragePool", "LpPool", "MaxPool", "AveragePool"])
    kernel = [b.whole(1, min(3, size)) for size in sizes]
    stride = [b.pick([1, 1, 2, 3])] * len(sizes)
    attrs: dict[str, object] = {"kernel_shape": kernel, "strides": stride}
    if op == "AveragePool" and b.chance(0.5):
        attrs["count_include_pad"] = 1
    if b.chance(0.2):
        out = [-(-size // s) for size, s in zip(sizes, stride, strict=True)]
        return b.node(op, [x], (n, c, *out), **attrs, auto_pad=b.pick(["SAME_UPPER", "SAME_LOWER"]))
    pads = [b.whole(0, k // 2) for k in kernel] * 2
    out = [(size + 2 * p - k) // s + 1 for size, p, k, s in zip(sizes, pads, kernel, stride, strict=False)]
    return b.node(op, [x], (n, c, *out), **attrs, pads=pads) if min(out) >= 1 else None


def enlarged(b: Builder, x: Tensor) -> Tensor | None:
    """Channels into space, by a node or by reshapes and a transpose."""
    if x.rank != 4 or x.shape[1] % 4 or 0 in x.shape or x.dtype != FLOAT:
        return None
    n, c, h, w = x.shape
    shape = (n, c // 4, 2 * h, 2 * w)
    if b.chance(0.5):
        return b.node("DepthToSpace", [x], shape, blocksize=2, mode=b.pick(["DCR", "CRD"]))
    split = b.node("Reshape", [x, b.longs(n, c // 4, 2, 2, h, w)], (n, c // 4, 2, 2, h, w))
    turned = b.node("Transpose", [split], (n, c // 4, h, 2, w, 2), perm=[0, 1, 4, 2, 5, 3])
    return b.node("Reshape", [turned, b.longs(*shape)], shape)
