"""A group of nodes as a kernel: scopes, stages, loop nests, C++."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from dslc.codegen.emit import Emitter
from dslc.codegen.empty import reducible_at_zero, refuse_nothing
from dslc.codegen.factoring import factored, parted, strided
from dslc.codegen.functions import store_type
from dslc.codegen.group import Part, Parts, parts_of
from dslc.codegen.halo import padded
from dslc.codegen.host.processor import Processor
from dslc.codegen.host.processor import processor as wanted_processor
from dslc.codegen.packing import is_product, panelled
from dslc.codegen.poly import NotPolynomial
from dslc.codegen.render import preamble, render
from dslc.codegen.signature import Signature, symbols
from dslc.codegen.split_reductions import outermost, separated
from dslc.codegen.stage_code import StageCode, StageWriter
from dslc.codegen.stages import Stage, stages_of
from dslc.codegen.text import KernelText, NotGenerated, Reason, Variant
from dslc.codegen.values import TensorPlace, strides_of
from dslc.codegen.vectorize import GroupMemory, Pointer
from dslc.codegen.winograd import Filter, filtered
from dslc.codegen.winograd_code import filtered_code
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Graph, Input, Scope, Value, scope_value
from dslc.ir.scalar import Sym, read, traversal, walk
from dslc.semantics.library import Rules

#: the name of a kernel in its text, until that is known
UNNAMED = "k_unnamed"


def variants(rules: Rules, group: Graph, processor: Processor | None = None) -> tuple[Variant, ...]:
    """Some ways to write a group's kernel for a processor (by default the one that is wanted), the best guess first.

    Raises:
        NotGenerated: there is no kernel for the group.
    """
    with reasons():
        parts = separated(parts_of(rules, group))
        stages = stages_of(parts)
        shared = separated(parts_of(rules, group, read_outputs=True)) != parts
        kept = separated(parts_of(rules, group, keep=True)) != parts
    processor = processor or wanted_processor()
    lanes, sums = processor.lanes, processor.sums
    way = partial(Variant, lanes)
    if filtered(parts, lanes, lanes)[1]:
        return (way(vectors=2, block=sums // 2, filtered=True),)
    out = [way()]
    scopes = [each.part.scope for stage in stages for each in stage.placed]
    if any(scope.body.binds for scope in scopes):
        shapes = (way(vectors=4, block=sums // 4), way(vectors=2, block=sums // 2))
        out += [way(lane=1), shapes[0], way(vectors=1, block=1, unroll=2)]
        products = sum(map(is_product, scopes))
        if products:
            # a product that others follow is as large as they are
            place = 0 if products > 1 else 1
            out[place:place] = [replace(shape, panels=True) for shape in shapes]
        if kept:
            # a pass through memory instead of computing it again for each position of a window; behind panels, which are one
            place = len(shapes) + 1 if products else 0
            out[place:place] = [replace(shape, keep=True, fuse=False) for shape in (way(), shapes[0])]
        if len(factored(parts).parts) > len(parts.parts):
            windows = [replace(shape, panels=True, windows=True) for shape in shapes]
            windows.append(replace(shapes[0], windows=True))
            # to look at every position for its remainder is hopeless
            apart = any(strided(node) is not node for scope in scopes for node in outermost(scope.body))
            if apart:
                return tuple(windows)
            out += windows
        if padded(parts) != parts:
            return (way(block=8, padded=True), way(vectors=1, block=8, padded=True), *out)
    else:
        out.append(way(vectors=1))
    if parted(parts) != parts:
        out[:0] = [way(apart=True), way(vectors=1, apart=True)]
    if shared:
        out.append(way(read_outputs=True))
    if len(stages) < len(scopes):
        out.append(way(fuse=False))
    return tuple(out)


def generate(rules: Rules, group: Graph, variant: Variant | None = None) -> KernelText:
    """The C++ of a group.

    Raises:
        NotGenerated: with the reason.
    """
    with reasons():
        variant = variant or Variant()
        parts = separated(parts_of(rules, group, variant.read_outputs, variant.keep))
        parts = parted(parts) if variant.apart else parts
        parts = factored(parts) if variant.windows else parts
        parts = padded(parts) if variant.padded else parts
        parts = panelled(parts, variant.panel) if variant.panels else parts
        parts, filters = filtered(parts, variant.width, variant.panel) if variant.filtered else (parts, {})
        return _Kernel(parts, variant, filters).text()


@contextmanager
def reasons() -> Iterator[None]:
    """Turn errors of all passes into NotGenerated."""
    try:
        yield
    except NotPolynomial as problem:
        raise NotGenerated(Reason.FORM, f"the position {problem}") from problem
    except RecursionError as problem:
        raise NotGenerated(Reason.TOO_LARGE, "an expression is nested too deeply") from problem


class _Kernel:
    def __init__(self, parts: Parts, variant: Variant, filters: Mapping[Value, Filter]) -> None:
        self.parts = with_copies(parts)
        refuse_nothing(self.parts)
        self.filters = filters
        self.variant = variant
        self.syms = unknown_sizes(self.parts)
        self.names: dict[Sym, str] = {sym: f"s{k}" for k, sym in enumerate(self.syms)}

    def text(self) -> KernelText:
        parts = self.parts
        inputs = tuple(value.type for value in parts.inputs)
        outputs = tuple(value.type for value in parts.outputs)
        signature = Signature(inputs, outputs, self.names)
        stages = stages_of(parts, self.variant.fuse)
        kept = self._kept(stages)
        memory, scratch = self._memory(stages, kept)
        zero = frozenset() if self.filters else reducible_at_zero(parts, self.syms)
        codes: list[StageCode] = []
        for stage in stages:
            filter = self.filters.get(stage.placed[0].part.value)
            if filter:
                codes.append(filtered_code(filter, memory, self.names, self.variant))
            else:
                codes.append(StageWriter(stage, memory, self.names, self.variant).write())
                codes[-1].kept = kept.get(stage, ())
        body = render(
            "kernel.cpp.j2",
            name=UNNAMED,
            title=signature.title(len(parts.parts)),
            sizes=signature.sizes(),
            checks=[*signature.checks(), *sorted(frozenset().union(*(code.asked for code in codes)))],
            needed=[self.names[sym] for sym in self.syms if sym not in zero],
            shapes=[signature.shape(type) for type in outputs],
            scratch=scratch,
            stages=codes,
            contract=self.variant.contract,
        )
        name, text = named("k", preamble() + body)
        return KernelText(name, inputs, outputs, self.syms, text, self.variant.form)

    def _kept(self, stages: tuple[Stage, ...]) -> dict[Stage, tuple[int, ...]]:
        """Map each stage that only fills memory of known size for other stages to the inputs that it depends on.

        Where these inputs are weights, as those of panels and filters are, it need not be run again.
        """
        numbers = {value: frozenset((k,)) for k, value in enumerate(self.parts.inputs)}
        found: dict[Stage, tuple[int, ...]] = {}
        for stage in stages:
            own = dict(numbers)
            for part in (each.part for each in stage.placed):
                sized = _syms([part.value]) or any(isinstance(node, Sym) for node in walk(part.scope.body))
                if sized or part.value in self.parts.outputs or any(arg not in own for arg in part.args):
                    break
                own[part.value] = frozenset[int]().union(*(own[arg] for arg in part.args))
            else:
                needs = frozenset[int]().union(*(own[each.part.value] for each in stage.placed))
                # what depends on nothing is made anew: no input says that it is there
                if needs:
                    numbers, found[stage] = own, tuple(sorted(needs))
        return found

    def _memory(self, stages: tuple[Stage, ...], kept: Collection[Stage]) -> tuple[GroupMemory, str]:
        """Lay out memory: persistent values first, so that their offsets do not depend on sizes."""
        offsets = ["0"]

        def take(type: TensorType, number: int) -> Pointer:
            size = Emitter(self.names, 1, 1).text(tensor_of(type, "").elements)
            offsets.append(f"{offsets[-1]} + k_up({size}, {type.dtype.bytes})")
            return Pointer("scratch", store_type(type.dtype), f"scratch{number}", offsets[-2])

        return memory_of(self.parts, stages, take, kept), offsets[-1]


def memory_of(
    parts: Parts, stages: Sequence[Stage], take: Callable[[TensorType, int], Pointer], kept: Collection[Stage] = ()
) -> GroupMemory:
    """Lay out memory: of inputs, of results, and of what later stages read, of kept stages first.

    `take` makes the memory of a tensor, with how many others there are.
    """
    memory = GroupMemory({}, {}, {})
    for kind, values in (("in", parts.inputs), ("out", parts.outputs)):
        for k, value in enumerate(values):
            pointer = Pointer(kind, store_type(value.type.dtype), f"{kind}{k}", str(k))
            memory.add(value, tensor_of(value.type, pointer.name), pointer, stored=kind == "out")
    for at, stage in sorted(enumerate(stages), key=lambda one: one[1] not in kept):
        later = {arg for other in stages[at + 1 :] for each in other.placed for arg in each.part.args}
        for value in (placed.part.value for placed in stage.placed):
            if value in later and value not in memory.stores:
                pointer = take(value.type, len(memory.pointers))
                memory.add(value, tensor_of(value.type, pointer.name), pointer, stored=True)
    return memory


def with_copies(parts: Parts) -> Parts:
    """An output that is an input, or another output again, is a copy."""
    extra: dict[Value, Part] = {}
    for value in parts.outputs:
        if isinstance(value.node, Input):
            type = value.type
            scope = Scope(type.shape, read(0, tuple(map(traversal, range(type.rank)))), type.dtype)
            extra[value] = Part(scope_value(scope, (value,)), scope, (value,))
    out = tuple(extra[value].value if value in extra else value for value in parts.outputs)
    return Parts(parts.inputs, (*parts.parts, *extra.values()), out)


def unknown_sizes(parts: Parts) -> tuple[Sym, ...]:
    """The unknown sizes of the inputs, in order. Raises NotGenerated where another value has one that is none of them."""
    found = _syms(parts.inputs)
    for value in (*parts.outputs, *(part.value for part in parts.parts)):
        for size in value.type.shape:
            if not found.keys() >= {*symbols(size)}:
                raise NotGenerated(Reason.SIZE, str(size))
    return tuple(found)


def named(letter: str, text: str) -> tuple[str, str]:
    """A name by content, a letter and 12 hexadecimal digits, and the text with it in the place of `UNNAMED`."""
    name = f"{letter}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return name, text.replace(UNNAMED, name)


def tensor_of(type: TensorType, name: str) -> TensorPlace:
    """A value in row-major order behind a pointer."""
    strides, elements, shape = strides_of(type)
    return TensorPlace(name, type.dtype, strides, elements, shape)


def _syms(values: Iterable[Value]) -> dict[Sym, None]:
    """The unknown sizes of some values, in order."""
    return dict.fromkeys(sym for value in values for size in value.type.shape for sym in symbols(size))
