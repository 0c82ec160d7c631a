"""In which floating-point type the outputs of a model are computed: the weakest one on any path to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType
from dslc.ir.graph import Constant, Input, Node
from dslc.onnx.context import Imported

#: from the one with the most digits to the one with the fewest
_DIGITS = (DType.F64, DType.F32, DType.F16, DType.BF16)


def computed_types(model: Imported) -> Mapping[str, Any]:
    """The numpy type with the fewest digits that any node on the way to an output computes in, by the output's name.

    Inputs and weights that are of such a type do not count: they are the same numbers in every model.
    """
    weakest: dict[Node, int] = {}
    for node in model.graph.nodes():
        own = (
            -1
            if isinstance(node, Input | Constant)
            else max((_rank(type.dtype) for type in node.types if type), default=-1)
        )
        weakest[node] = max([own, *(weakest[arg.node] for arg in node.args)])
    names = [output.name for output in model.context.model.graph.output]
    found = zip(names, (weakest[value.node] for value in model.graph.outputs), strict=True)
    return {name: NUMPY[_DIGITS[rank]] for name, rank in found if rank >= 0}


def _rank(dtype: DType) -> int:
    return _DIGITS.index(dtype) if dtype in _DIGITS else -1
