"""Kernels whose loops a library wrote: the template of a lowering, rendered for a group's types and sizes.

The text defines two functions, in a namespace of its own:

    static int64_t tasks(const int64_t* sizes);          // independent tasks, which may run at the same time
    static void run(const int64_t* sizes, const T* X, ..., T* Y, ..., int64_t begin, int64_t end);

with pointers to the lowering's tensors, in their order, and to its results.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from pathlib import Path
from typing import Any

from dslc.codegen.functions import store_type
from dslc.codegen.generate import UNNAMED, named
from dslc.codegen.host.compiler import BuildReason, NotBuilt, first_error, limited
from dslc.codegen.poly import of_size
from dslc.codegen.render import preamble, render
from dslc.codegen.signature import Signature, symbols
from dslc.codegen.text import KernelText
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph
from dslc.ir.scalar import Scalar, Sym
from dslc.outside import in_code
from dslc.records import record

CHARACTERS = 1 << 20  #: characters that a template may make
SECONDS = 10.0  #: seconds that rendering it may take
MEMORY = 1 << 30  #: bytes that rendering it may take


class NotRendered(Exception):
    """A template that makes no text; the message says why. `line`: of the template, 0 where that is not known."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


@record
class Named:
    """A tensor of a lowering by its name, and which input of the kernel it is; or which output, where `out`."""

    name: str
    at: int
    out: bool = False


@record
class Filling:
    """A template with what it is filled in with.

    inputs, outputs: the types of the group.
    tensors: the lowering's tensors and then its results, in their order; the template knows each by its name.
    values: what else it knows: numbers, texts, sizes (known or not), element types, and lists of these.
    title: for people. cost: what the lowering says of its operations (`flops`) and bytes. program: what it is to compute.
    """

    source: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    tensors: tuple[Named, ...]
    values: Mapping[str, Any]
    title: str
    cost: Mapping[str, Any] = field(default_factory=dict)
    program: Graph | None = None

    @property
    def sizes(self) -> dict[Sym, str]:
        """The unknown sizes by the names of a kernel's own."""
        return {sym: f"s{k}" for k, sym in enumerate(dict.fromkeys(_all_symbols(self.inputs)))}

    def text(self) -> str:
        """Render the template, with the unknown sizes in order.

        Raises:
            NotRendered: it makes no text.
        """
        if any(sym not in self.sizes for sym in _all_symbols(self.outputs)):
            raise NotRendered("a size of the result is not known from the inputs' shapes")
        inside = Signature(self.inputs, self.outputs, {sym: f"sizes[{k}]" for k, sym in enumerate(self.sizes)})
        known: dict[str, Any] = {name: _plain(inside, value) for name, value in self.values.items()}
        return rendered(self.source, known | {one.name: _tensor(inside, self.type_of(one)) for one in self.tensors})

    @property
    def file(self) -> str:
        """The template's name as a compiler's messages have it."""
        return ".".join(map(in_code, self.title.rpartition(": ")[2].rpartition("/")[2].split(".")))

    def type_of(self, one: Named) -> TensorType:
        return (self.outputs if one.out else self.inputs)[one.at]

    def pointers(self) -> list[dict[str, Any]]:
        """Parameters of a template's functions, in order."""
        return [
            {"kind": "out" if one.out else "in", "at": one.at, "type": store_type(self.type_of(one).dtype)}
            for one in self.tensors
        ]


def custom_kernel(filling: Filling) -> KernelText:
    """A kernel from a template's text.

    Raises:
        NotRendered: the template makes no text.
        NotGenerated: a size of an input is none that a kernel can learn.
    """
    text, syms = filling.text(), filling.sizes
    signature = Signature(filling.inputs, filling.outputs, syms)
    body = render(
        "custom.cpp.j2",
        name=UNNAMED,
        title=filling.title,
        text=text,
        file=filling.file,
        sizes=signature.sizes(),
        checks=list(signature.checks()),
        needed=list(signature.names.values()),
        shapes=[signature.shape(type) for type in filling.outputs],
        pointers=filling.pointers(),
    )
    name, text = named("k", preamble() + body)
    return KernelText(name, signature.inputs, signature.outputs, tuple(syms), text)


def rendered(source: str, values: Mapping[str, Any], seconds: float = SECONDS, memory: int = MEMORY) -> str:
    """A template of a library, filled in: in a sandbox, and in a process that takes no more time and memory. Raises NotRendered."""
    with tempfile.TemporaryDirectory(prefix="dslc-") as folder:
        given, answered = Path(folder) / "template.json", Path(folder) / "text.json"
        given.write_text(json.dumps({"source": source, "values": values, "most": CHARACTERS}), "utf-8")
        try:
            command = (sys.executable, "-m", "dslc.codegen.sandbox", str(given), str(answered))
            code, said = limited(command, Path(folder), seconds, memory)
        except NotBuilt as problem:
            late = problem.reason is BuildReason.TIMEOUT
            raise NotRendered(
                f"it does not end in {seconds:.0f} s" if late else f"it cannot be rendered: {problem}"
            ) from None
        try:
            answer = json.loads(answered.read_text("utf-8"))
        except (OSError, ValueError):
            raise NotRendered(f"rendering it ends with code {code}: {first_error(said)}") from None
    if "text" not in answer:
        raise NotRendered(str(answer.get("error", "")), int(answer.get("line") or 0))
    return str(answer["text"])


def _all_symbols(types: Sequence[TensorType]) -> list[Sym]:
    return [sym for type in types for size in type.shape for sym in symbols(size)]


def _tensor(signature: Signature, type: TensorType) -> dict[str, Any]:
    """A tensor as templates see it: its element type in C++ and in the language, and sizes as C++."""
    shape = [f"({size})" for size in signature.shape(type)]
    elements = " * ".join(shape) if shape else "1"
    return {
        "type": store_type(type.dtype),
        "dtype": str(type.dtype),
        "rank": type.rank,
        "shape": shape,
        "elements": f"({elements})",
    }


def _plain(signature: Signature, value: Any) -> Any:
    """A value of the language as a template knows it: a size that is not known is an expression of C++."""
    if isinstance(value, bool | int | float) or (isinstance(value, str) and value == in_code(value)):
        return value
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, DType):
        return store_type(value)
    if isinstance(value, Scalar):
        if any(sym not in signature.names for sym in symbols(value)):
            raise NotRendered(f"the size {value} is not known from the inputs' shapes")
        return f"({signature.text(of_size(value))})"
    if isinstance(value, tuple):
        return [_plain(signature, one) for one in value]
    raise NotRendered(f"{value} is nothing that a template can be given")
