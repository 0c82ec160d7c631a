"""CUDA kernels whose loops a library wrote: the template of a lowering on `cuda`, rendered for a group's types and sizes.

The text defines one function, in a namespace of its own, after `templates/cuda/kernel.cuh`:

    static __device__ void run(const int64_t* sizes, const T* X, ..., T* Y, ...);

with pointers to the lowering's tensors, in their order, and to its results. The braces behind the template say how it is launched:
`block` (threads of a block, 256), `grid` (blocks, one for each so many elements of the first result) and `shared` (bytes of shared
memory that the text declares, for its price).
"""

from __future__ import annotations

from typing import Any

from dslc.codegen.cuda.generate import preamble
from dslc.codegen.cuda.stage import above, plus, times
from dslc.codegen.cuda.text import CudaLaunch, CudaText, Pointer, PointerPlace
from dslc.codegen.custom import Filling, NotRendered
from dslc.codegen.generate import UNNAMED, named
from dslc.codegen.render import render
from dslc.ir.dtype import Dim, TensorType
from dslc.ir.scalar import Scalar

#: threads of a warp, and of a block at most
_WARP, _MOST = 32, 1024


def custom_cuda(filling: Filling, flops: Dim = 0) -> CudaText:
    """A kernel from a template's text: one launch. `flops`: its operations, where the lowering has no `cost`.

    Raises:
        NotRendered: the template makes no text, or it cannot be launched.
    """
    block = filling.values.get("block", 256)
    if not isinstance(block, int) or isinstance(block, bool) or block % _WARP or not 0 < block <= _MOST:
        raise NotRendered(f"`block` is {block}: no multiple of {_WARP} up to {_MOST}")
    results = [filling.type_of(one) for one in filling.tensors if one.out]
    grid = _dim(filling, "grid", above(times(*results[0].shape), block))
    shared = filling.values.get("shared", 0)
    if not isinstance(shared, int) or shared < 0:
        raise NotRendered(f"`shared` is {shared}: no number of bytes")
    text, syms = filling.text(), filling.sizes
    parameters, arguments = [], []
    for one in filling.pointers():
        out = one["kind"] == "out"
        arguments.append(f"{one['kind']}{one['at']}")
        parameters.append(f"{'' if out else 'const '}{one['type']}* {arguments[-1]}")
    body = render(
        "custom.cu.j2", "cuda", name=UNNAMED, title=f"{filling.title} {grid}", text=text, block=block, arguments=arguments,
        file=filling.file, sizes=list(syms.values()),
        parameters=[*parameters, *(f"int64_t {size}" for size in syms.values())],
    )  # fmt: skip
    pointers = tuple(Pointer(PointerPlace.OUTPUT if one.out else PointerPlace.INPUT, one.at) for one in filling.tensors)
    moved: Any = filling.cost.get("bytes", _bytes(filling.inputs, results))
    name, text = named("c", preamble() + body)
    launch = CudaLaunch(
        f"{name}_0", (grid, 1, 1), (block, 1, 1), pointers, tuple(k for k, one in enumerate(filling.tensors) if one.out),
        static_shared=shared, form="own", flops=filling.cost.get("flops", flops), bytes=moved, requested=moved,
    )  # fmt: skip
    return CudaText(name, filling.inputs, filling.outputs, tuple(syms), (), (launch,), text)


def _dim(filling: Filling, name: str, usual: Dim) -> Dim:
    """A number of the braces that may depend on sizes."""
    found = filling.values.get(name, usual)
    if isinstance(found, bool) or not isinstance(found, int | Scalar) or (isinstance(found, int) and found < 0):
        raise NotRendered(f"`{name}` is {found}: no number of blocks")
    return found


def _bytes(inputs: tuple[TensorType, ...], results: list[TensorType]) -> Dim:
    """Bytes that are read and written once."""
    total: Dim = 0
    for type in (*inputs, *results):
        total = plus(total, times(*type.shape, type.dtype.bytes))
    return total
