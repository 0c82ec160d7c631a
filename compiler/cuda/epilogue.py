"""Epilogues of convolutions, fused into one call or split: the convolution alone, and a generated kernel behind it.

    y = relu(conv(X, K) + B + Z)  =>  y = conv(X, K); y = relu(y + B + Z)

cuDNN has engines for a convolution with a bias, and with a bias and a cut at 0; what else it computes at once differs by device,
precision, layout and release, and is known only after asking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dslc.cuda.launch import Invoked, Tensor
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Graph, input_value
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules

#: arguments of a call that say what follows
FOLLOWS = ("bias", "residual", "activation")


@dataclass(frozen=True, slots=True)
class Epilogue:
    """A call without what follows it, and what a kernel for that reads: the result first, which it changes where it is."""

    plain: Invoked
    reads: tuple[Tensor, ...]
    relu: bool

    def program(self, rules: Rules) -> Graph:
        """The kernel's expression `relu(y + bias + residual)`, with the parts that are there."""
        holes = tuple(input_value(f"x{k}", TensorType(one.dtype, one.shape)) for k, one in enumerate(self.reads))
        value = holes[0]
        for other in holes[1:]:
            value = apply(rules, "std.add", (value, other), {})[0]
        if self.relu:
            value = apply(rules, "std.relu", (value,), {})[0]
        return Graph(holes, (value,))


def epilogue_of(invoked: Invoked) -> Epilogue | None:
    """A call in two steps; None where nothing follows it."""
    given = invoked.arguments
    bias, residual, result = (given.get(name) for name in ("bias", "residual", "y"))
    relu = given.get("activation") == "RELU"
    if not isinstance(result, Tensor) or not (relu or isinstance(bias, Tensor) or isinstance(residual, Tensor)):
        return None
    # in the order in which elements lie in memory, whether channels come first or last
    order = sorted(range(len(result.shape)), key=lambda k: (-result.strides[k], k))
    reads = [_turned(result, order)]
    if isinstance(bias, Tensor):
        shape = tuple(result.shape[k] if k == 1 else 1 for k in order)
        reads.append(Tensor(bias.pointer, bias.dtype, shape, (1,) * len(shape)))
    if isinstance(residual, Tensor):
        reads.append(_turned(residual, order))
    left = {name: one for name, one in given.items() if name not in FOLLOWS}
    return Epilogue(replace(invoked, arguments=left), tuple(reads), relu)


def _turned(one: Tensor, order: Sequence[int]) -> Tensor:
    return Tensor(one.pointer, one.dtype, tuple(one.shape[k] for k in order), tuple(one.strides[k] for k in order))
