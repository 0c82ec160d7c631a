"""Writes one module of a network as PyTorch exports it, node for node.

    python -m benchmarks.modules mish mish.onnx
    python -m benchmarks.modules box-iou boxes.onnx
    python -m benchmarks.modules totals totals.onnx

`mish` is the activation of YOLOv4, over one of its feature maps (256 channels of 26 x 26); `box-iou` is `torchvision.ops.box_iou`, how
far 1000 boxes of a detector overlap 64 others; `totals` is `(x @ w).sum(dim=1)`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping

import numpy as np
import onnx

from benchmarks.kernel_models import Writer


def mish() -> onnx.ModelProto:
    """``x * tanh(softplus(x))``."""
    w = Writer()
    x = w.input("x", 1, 256, 26, 26)
    return w.model(w.op("Mul", x, w.op("Tanh", w.op("Softplus", x))))


def box_iou(count: int = 1000, others: int = 64) -> onnx.ModelProto:
    """Areas of intersections over areas of unions, for boxes given by two corners."""
    w = Writer()
    first, second = w.input("boxes", count, 4), w.input("others", others, 4)

    def column(of: str, index: int, axis: int = 1) -> str:
        return w.op("Gather", of, w.weight(np.int64(index)), axis=axis)

    def area(of: str) -> str:
        width = w.op("Sub", column(of, 2), column(of, 0))
        return w.op("Mul", width, w.op("Sub", column(of, 3), column(of, 1)))

    def corner(of: str, begin: int) -> str:
        return w.op("Slice", of, w.ints(begin), w.ints(begin + 2), w.ints(-1), w.ints(1))

    areas = area(first), area(second)
    rows = w.op("Unsqueeze", first, w.ints(1))
    low = w.op("Max", corner(rows, 0), corner(second, 0))
    high = w.op("Min", corner(rows, 2), corner(second, 2))
    size = w.op("Clip", w.op("Sub", high, low), w.number(0))
    common = w.op("Mul", column(size, 0, axis=2), column(size, 1, axis=2))
    union = w.op("Sub", w.op("Add", w.op("Unsqueeze", areas[0], w.ints(1)), areas[1]), common)
    return w.model(w.op("Div", common, union))


def totals() -> onnx.ModelProto:
    """The sum of each row of a product of matrices."""
    w = Writer()
    product = w.op("MatMul", w.input("x", 256, 512), w.input("w", 512, 1024))
    return w.model(w.op("ReduceSum", product, w.ints(1), keepdims=0))


MODULES: Mapping[str, Callable[[], onnx.ModelProto]] = {"mish": mish, "box-iou": box_iou, "totals": totals}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.modules", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=MODULES)
    parser.add_argument("file", metavar="FILE.onnx")
    given = parser.parse_args()
    onnx.save(MODULES[given.name](), given.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
