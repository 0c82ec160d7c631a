"""Prologue of a kernel: unknown sizes found in the dimensions of its inputs, and the shapes of its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dslc.codegen.emit import Emitter
from dslc.codegen.poly import Poly, of_size
from dslc.codegen.text import NotGenerated, Reason
from dslc.ir.dtype import Dim, TensorType
from dslc.ir.scalar import Scalar, Sym, walk
from dslc.ir.sizes import multiple


@dataclass(frozen=True)
class Signature:
    """Types of the inputs and outputs of a kernel.

    `names` are unknown sizes with what they are called in C++, in the order of the C array `sizes`.
    """

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    names: Mapping[Sym, str]

    def text(self, size: Poly) -> str:
        """A size as C++."""
        return Emitter(dict(self.names), 1, 1).text(size)

    def shape(self, type: TensorType) -> list[str]:
        """The sizes of a tensor as C++."""
        return [self.text(of_size(size)) for size in type.shape]

    def title(self, scopes: int) -> str:
        """A kernel's title in words: its types with the names that sizes have in C++."""
        inputs, outputs = (
            [f"{type.dtype}[{', '.join(self.shape(type))}]" for type in types] for types in (self.inputs, self.outputs)
        )
        return f"{scopes} scopes, {', '.join(inputs)} -> {', '.join(outputs)}"

    def sizes(self) -> list[dict[str, Any]]:
        """Locate each unknown size: a dimension that it is, or else one that is a multiple of it. Raises NotGenerated."""
        found: dict[Sym, tuple[int, str]] = {}
        for k, type in enumerate(self.inputs):
            for axis, size in enumerate(type.shape):
                if (own := multiple(size)) is not None:
                    sym, times = own
                    if sym not in found or times < found[sym][0]:
                        found[sym] = times, f"dims[{k}][{axis}]" + (f" / {times}" if times > 1 else "")
        missing = [sym for sym in self.names if sym not in found]
        if missing:
            raise NotGenerated(Reason.SIZE, ", ".join(str(sym) for sym in missing))
        return [{"name": self.names[sym], "at": k, "found": found[sym][1]} for k, sym in enumerate(self.names)]

    def checks(self) -> Iterator[str]:
        """Conditions on the dimensions that a kernel is given."""
        sizes = [size for type in (*self.inputs, *self.outputs) for size in type.shape]
        parts = [node for size in sizes if isinstance(size, Scalar) for node in walk(size)]
        divided = any(node.op in {"//", "%"} for node in parts)
        for sym, name in self.names.items():
            if sym.least is not None:
                # what is known of a size was used: without it nothing is certain; at 0 the library runs nothing
                nothing = "" if divided else f" || {name} == 0"
                yield f"({name} >= {sym.least}{nothing})"
        for k, type in enumerate(self.inputs):
            for axis, size in enumerate(self.shape(type)):
                yield f"dims[{k}][{axis}] == {size}"


def symbols(size: Dim) -> Iterator[Sym]:
    """The unknown sizes in a size."""
    if isinstance(size, Scalar):
        for node in walk(size):
            if isinstance(node, Sym):
                yield node
