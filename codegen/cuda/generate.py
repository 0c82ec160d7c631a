"""A group of nodes as CUDA kernels: the parts and stages that the CPU has, each stage a launch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dslc.codegen.cuda.choose import Hardware, candidates, seconds
from dslc.codegen.cuda.smem_transpose import TurnedStage
from dslc.codegen.cuda.stage import SECTOR, CudaStage, LaunchCode, Room, above, least, plus, times
from dslc.codegen.cuda.text import CudaLaunch, CudaText, CudaVariant, Pointer, PointerPlace
from dslc.codegen.cuda.tiles import Product, ProductStage, fits, product_of
from dslc.codegen.cuda.units import UnitStage, takes
from dslc.codegen.empty import refuse_nothing
from dslc.codegen.generate import UNNAMED, memory_of, named, reasons, tensor_of, unknown_sizes, with_copies
from dslc.codegen.group import Part, Parts, parts_of
from dslc.codegen.render import render, template
from dslc.codegen.signature import Signature
from dslc.codegen.split_reductions import Cutting, separated
from dslc.codegen.stages import Stage, stages_of
from dslc.codegen.text import NotGenerated, Reason
from dslc.codegen.vectorize import GroupMemory
from dslc.ir.dtype import Dim
from dslc.ir.graph import Graph, Value
from dslc.ir.scalar import Apply, Reduce, Sym, walk
from dslc.semantics.library import Rules

LONG = 1 << 16  #: elements from which on a reduction is cut in pieces
FEW = 16  #: results for which it is, at most
MANY = 1 << 20  #: results of reductions whose sums are cut for `split`, at most

_PLACES = {"in": PointerPlace.INPUT, "out": PointerPlace.OUTPUT, "scratch": PointerPlace.SCRATCH}


def preamble() -> str:
    """Preamble of every CUDA kernel; guarded, so that it may come several times in one file."""
    return template("kernel.cuh", "cuda")


def generate(rules: Rules, group: Graph, variant: CudaVariant | None = None) -> CudaText:
    """The CUDA C++ of a group.

    Raises:
        NotGenerated: with the reason.
    """
    with reasons():
        return _Kernels(parts_of(rules, group), variant or CudaVariant()).text()


class _Kernels:
    def __init__(self, parts: Parts, variant: CudaVariant) -> None:
        self.variant = variant
        self.products: dict[Value, Product] = {}
        cut = separated(parts, Cutting(variant.pieces, LONG, FEW))
        if variant.split > 1:
            # for few tiles, or few columns: their sums are left to several blocks each
            cut = separated(cut, Cutting(variant.split, 4 * variant.split, MANY, lambda _: True))
        self.parts = self._products(with_copies(cut))
        refuse_nothing(self.parts)
        self.syms = unknown_sizes(self.parts)
        self.names: dict[Sym, str] = {sym: f"s{k}" for k, sym in enumerate(self.syms)}
        found = {size for value in self.parts.inputs for size in value.type.shape if isinstance(size, Sym)}
        missing = [sym for sym in self.syms if sym not in found]
        if missing:
            raise NotGenerated(Reason.SIZE, ", ".join(str(sym) for sym in missing))
        self.room = Room(self.names)

    def _products(self, parts: Parts) -> Parts:
        """Products are launches of their own."""
        if not self.variant.tile:
            return parts
        out = []
        for part in parts.parts:
            found = None if part.alone else product_of(part)
            if found and (fits(part, found, self.variant.tile) or self._units(part, found)):
                self.products[part.value] = found
                part = replace(part, alone=True)
            out.append(part)
        return Parts(parts.inputs, tuple(out), parts.outputs)

    def _units(self, part: Part, found: Product) -> bool:
        return self.variant.units is not None and takes(part, found, self.variant.units)

    def text(self) -> CudaText:
        parts = self.parts
        inputs = tuple(value.type for value in parts.inputs)
        outputs = tuple(value.type for value in parts.outputs)
        stages = stages_of(parts, self.variant.fuse)
        memory = memory_of(parts, stages, lambda type, _: self.room.take(type.dtype, tensor_of(type, "").elements))
        codes = [self._written(stage, memory) for stage in stages]
        launches = [
            self._launch(f"{UNNAMED}_{k}", stage, code, memory)
            for k, (stage, code) in enumerate(zip(stages, codes, strict=True))
        ]
        body = render(
            "kernel.cu.j2",
            "cuda",
            title=Signature(inputs, outputs, self.names).title(len(parts.parts)),
            sizes=list(self.names.values()),
            launches=[self._printed(launch, code) for launch, code in zip(launches, codes, strict=True)],
        )
        name, text = named("c", preamble() + body)
        launches = [replace(launch, symbol=f"{name}_{k}") for k, launch in enumerate(launches)]
        return CudaText(name, inputs, outputs, self.syms, tuple(self.room.scratch), tuple(launches), text)

    def _written(self, stage: Stage, memory: GroupMemory) -> LaunchCode:
        """One launch, in the form that fits."""
        found = self.products.get(stage.placed[0].part.value)
        if found:
            form = UnitStage if self._units(stage.placed[0].part, found) else ProductStage
            return form(stage, memory, self.variant, self.room, found).launch()
        kind = TurnedStage if self.variant.turn else CudaStage
        return kind(stage, memory, self.variant, self.room).launch()

    def _printed(self, launch: CudaLaunch, code: LaunchCode) -> dict[str, Any]:
        const = ["" if pointer.name in code.written else "const " for pointer in code.pointers]
        parameters = [
            f"{word}{each.type}* __restrict__ {each.name}" for word, each in zip(const, code.pointers, strict=True)
        ]
        parameters.extend(f"int64_t {size}" for size in self.names.values())
        return {
            "symbol": launch.symbol, "form": code.form, "block": code.block, "blocks": code.blocks, "team": code.team,
            "body": code.body, "parameters": parameters, "shared": code.shared,
        }  # fmt: skip

    def _launch(self, symbol: str, stage: Stage, code: LaunchCode, memory: GroupMemory) -> CudaLaunch:
        work: Dim = 0
        moved: Dim = 0
        asked: Dim = 0
        # what a block keeps for itself is not moved
        kept = stage.values - code.spread
        read: dict[Value, Dim] = {}
        steps = {each.part.value: times(*each.part.scope.extents, _steps(each.part)) for each in stage.placed}
        for placed in stage.placed:
            for arg in placed.part.args:
                if arg not in kept:
                    read[arg] = plus(read.get(arg, 0), steps[placed.part.value])
        for value, count in read.items():
            # of a table only what is looked up
            moved = plus(moved, times(least(times(*value.type.shape), count), value.type.dtype.bytes))
        for value in stage.values:
            if value in memory.stores or value in code.spread:
                moved = plus(moved, times(*value.type.shape, value.type.dtype.bytes))
        for placed in stage.placed:
            part, tile = placed.part, self.variant.units if code.form == "units" else self.variant.tile
            nodes = (node for node in walk(part.scope.body) if isinstance(node, Apply | Reduce) and not node.integral)
            # operations, roughly: every function once per step of the longest reduction
            work = plus(work, times(steps[part.value], max(1, sum(1 for _ in nodes))))
            whole = times(steps[part.value], sum(each.type.dtype.bytes for each in part.args if each not in kept))
            if code.form in {"units", "products"} and tile:
                # an element is read once for all results along the other side of a tile
                whole = above(whole, min(tile.rows, tile.columns))
            if code.form == "products" and tile:
                # operands come from shared memory once for all results of a thread along the other side
                work = above(times(work, tile.down * tile.right + tile.down + tile.right), tile.down * tile.right)
            asked = plus(asked, whole)
        # of what is fetched for one that lies apart the neighbours are not wanted
        asked = above(times(asked, round(SECTOR * code.apart)), SECTOR)
        return CudaLaunch(
            symbol,
            (code.grid, 1, 1),
            (code.block, 1, 1),
            tuple(Pointer(_PLACES[pointer.kind], int(pointer.at)) for pointer in code.pointers),
            tuple(k for k, pointer in enumerate(code.pointers) if pointer.name in code.written),
            0,
            sum(each.bytes for each in code.shared),
            code.form,
            work,
            moved,
            asked,
            code.used,
        )


def _steps(part: Part) -> Dim:
    """Steps of the longest reduction of a part, for one element."""
    most: Dim = 1
    for node in walk(part.scope.body):
        if isinstance(node, Reduce) and all(not extent.free for extent in node.extents):
            length = times(*node.extents)
            if not isinstance(length, int) or (isinstance(most, int) and length > most):
                most = length
    return most


def variants(rules: Rules, group: Graph, hardware: Hardware | None = None) -> tuple[CudaVariant, ...]:
    """Ways to write a group's kernels that differ, the one that promises most first.

    Args:
        hardware: what they are to run on (an A100 where nothing is said).

    Raises:
        NotGenerated: there is no kernel for the group.
    """
    with reasons():
        parts = parts_of(rules, group)
        products = any(product_of(part) is not None for part in parts.parts)
        rows = any(part.scope.body.binds for part in parts.parts)
        found: dict[str, tuple[float, CudaVariant]] = {}
        for variant in candidates(products, rows):
            text = _Kernels(parts, variant).text()
            body = text.text.removeprefix(preamble()).replace(text.name, "")
            found.setdefault(body, (seconds(text, hardware or Hardware()), variant))
    # what promises the same stays in the order of the candidates
    return tuple(variant for _, variant in sorted(found.values(), key=lambda each: each[0]))
