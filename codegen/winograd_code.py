"""The stage of a product between transforms: some rows at a time, so that all that lies between operand and result stays in a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product as positions
from math import prod
from typing import Any

from dslc.codegen.emit import Emitter
from dslc.codegen.functions import literal_text
from dslc.codegen.nest import Block, Let, Store
from dslc.codegen.poly import Poly, Var, const, of, of_size, product
from dslc.codegen.stage_code import StageCode
from dslc.codegen.text import Variant
from dslc.codegen.vectorize import GroupMemory
from dslc.codegen.winograd import Filter, Transform
from dslc.ir.dtype import DType
from dslc.ir.scalar import Sym

#: bytes of the points of some rows, before and behind the product: what a second-level cache holds beside the
#: weights
NEAR = 640 * 1024


@dataclass(slots=True)
class FilteredCode:
    """Template parameters: texts of C++, and the statements of both transforms for one vector of channels or columns."""

    weights: str
    operand: str
    result: str
    #: rows: a variable and a length for each, where a row begins in the operand and in the result
    rows: tuple[tuple[str, str], ...]
    count: str
    source: str
    target: str
    steps: tuple[tuple[str, str], ...]
    channels: str
    terms: str
    panels: str
    points: int
    before: Block
    after: Block
    near: int
    #: of the product: rows and vectors of a block, elements of a vector
    block: int
    vectors: int
    width: int
    columns: int


def filtered_code(filter: Filter, memory: GroupMemory, names: dict[Sym, str], variant: Variant) -> StageCode:
    """The stage of a filter. A task is a block of rows and a part of the panels; a block is transformed once for neighbouring tasks."""
    text = Emitter(names, 1, 1).text
    part = filter.part
    weights, operand = (memory.tensors[arg] for arg in part.args)
    ((result, _),) = memory.stores[part.value]
    sizes = [of_size(extent) for extent in part.scope.extents]
    rows = [(f"r{k}", sizes[at]) for k, at in enumerate(filter.rows)]
    source = sum(
        (of(Var(name)) * _dot(move, operand.strides) for (name, _), move in zip(rows, filter.moves, strict=True)),
        const(0),
    )
    target = sum(
        (of(Var(name)) * result.strides[at] for (name, _), at in zip(rows, filter.rows, strict=True)), const(0)
    )
    steps = {axis: (f"x{k}", _dot(step, operand.strides)) for k, (axis, step) in enumerate(filter.steps.items())}
    steps |= {
        axis: (f"z{k}", result.strides[at])
        for k, (axis, at) in enumerate(zip(filter.after.made, filter.tiles, strict=True))
    }
    width, points = variant.width, prod(filter.before.sizes[axis] for axis in filter.before.made)
    vector = f"V<float, {width}>"

    def loaded(at: Sequence[int]) -> str:
        places = " + ".join(f"{k} * {steps[axis][0]}" for axis, k in zip(filter.before.tile, at, strict=True) if k)
        return f"k_load<float, {width}>(k_x{f' + ({places})' if places else ''})"

    def point(at: Sequence[int]) -> str:
        return f"k_load<float, {width}>(k_m + {_flat(at, filter.after, filter.after.tile)} * k_m_step)"

    before, after = Block(), Block()
    for at, name in written(filter.before, loaded, before, vector):
        place = f"k_v + {_flat(at, filter.before, filter.before.made)} * k_v_step"
        before.statements.append(Store(f"k_store<float, {width}>", (place, name)))
    for at, name in written(filter.after, point, after, vector):
        places = " + ".join(f"{k} * {steps[axis][0]}" for axis, k in zip(filter.after.made, at, strict=True) if k)
        after.statements.append(Store(f"k_store<float, {width}>", (f"k_z{f' + ({places})' if places else ''}", name)))
    channels = of_size(part.args[1].type.shape[-1])
    terms = of_size(filter.terms)
    panels = of_size(part.args[0].type.shape[0])
    count = product(size for _, size in rows)
    code = FilteredCode(
        weights.pointer, operand.pointer, result.pointer, tuple((name, text(size)) for name, size in rows), text(count), text(source),
        text(target), tuple((name, text(step)) for name, step in steps.values()), text(channels), text(terms), text(panels), points,
        before, after, NEAR, variant.block, variant.vectors, width, variant.panel,
    )  # fmt: skip
    # a task is worth it: the template divides rows and panels
    points_of_row = f"{points} * (({text(channels)}) + {variant.panel})"
    blocks = f"k_blocks({text(count)}, {points_of_row}, {NEAR})"
    whole = StageCode(f"{blocks} * k_shares({blocks}, {text(panels)})", "(int64_t)1 << 20", "1", Block())
    whole.filtered = code
    pointers = [memory.pointers[value] for value in (*part.args, part.value)]
    whole.pointers = sorted(dict.fromkeys(pointers), key=lambda pointer: (pointer.kind, pointer.name))
    return whole


def _dot(factors: Sequence[int], strides: Sequence[Poly]) -> Poly:
    return sum((stride * factor for factor, stride in zip(factors, strides, strict=False)), const(0))


def _flat(at: Sequence[int], transform: Transform, axes: Sequence[str]) -> int:
    total = 0
    for axis, k in zip(axes, at, strict=True):
        total = total * transform.sizes[axis] + k
    return total


# ---- transforms, written out -----------------------------------------------------------------------------------------------


def written(
    transform: Transform, leaf: Callable[[Sequence[int]], str], block: Block, type: str
) -> Iterator[tuple[tuple[int, ...], str]]:
    """The elements that a transform makes, each with the variable that has it, as soon as its statements are in the block.

    One axis is summed after the other, with all tables that it occurs in; rows of a table that differ in signs share their parts.
    """
    axes: tuple[str, ...] = transform.tile
    left = list(transform.factors)
    count = iter(range(1 << 30))
    values: Any = None

    def let(text: str) -> str:
        name = f"t{next(count)}"
        block.statements.append(Let(type, name, text))
        return name

    known: dict[tuple[int, ...], str] = {}

    def first(at: tuple[int, ...]) -> str:
        if at not in known:
            known[at] = let(leaf(at))
        return known[at]

    get: Callable[[tuple[int, ...]], str] = first
    for axis in transform.tile:
        own = [factor for factor in left if axis in factor.axes]
        left = [factor for factor in left if factor not in own]
        made = tuple(
            dict.fromkeys(other for factor in own for other in factor.axes if other != axis and other not in axes)
        )
        beside = tuple(other for other in axes if other != axis)
        shared = tuple(dict.fromkeys(other for factor in own for other in factor.axes if other in beside))
        values = {}
        length = transform.sizes[axis]
        for at in positions(*(range(transform.sizes[other]) for other in beside)):
            here = dict(zip(beside, at, strict=True))
            inputs = [get(tuple({**here, axis: k}[other] for other in axes)) for k in range(length)]
            every = list(positions(*(range(transform.sizes[other]) for other in made)))
            rows = []
            for new in every:
                spot = {**{other: here[other] for other in shared}, **dict(zip(made, new, strict=True))}
                rows.append([_entry(own, {**spot, axis: k}) for k in range(length)])
            for new, name in zip(every, _combined(rows, inputs, let, type), strict=True):
                values[(*at, *new)] = name
        axes = (*beside, *made)
        get = values.__getitem__
    order = [axes.index(axis) for axis in transform.made]
    for at in positions(*(range(transform.sizes[axis]) for axis in axes)):
        yield tuple(at[k] for k in order), get(at)


def _entry(factors: Sequence[Any], at: dict[str, int]) -> Fraction:
    total = Fraction(1)
    for factor in factors:
        value = factor.values
        for axis in factor.axes:
            value = value[at[axis]]
        total *= Fraction(value)
    return total


def _combined(
    rows: Sequence[Sequence[Fraction]], inputs: Sequence[str], let: Callable[[str], str], type: str
) -> list[str]:
    """A matrix times some vectors. Two rows that are the sum and the difference of two shorter ones take these."""
    out = [""] * len(rows)
    for a, row in enumerate(rows):
        if out[a]:
            continue
        for b in range(a + 1, len(rows)):
            even = [(x + y) / 2 for x, y in zip(row, rows[b], strict=True)]
            odd = [(x - y) / 2 for x, y in zip(row, rows[b], strict=True)]
            apart = not any(x and y for x, y in zip(even, odd, strict=True))
            if not out[b] and apart and sum(map(bool, even)) > 1 and any(odd):
                first, second = let(_linear(even, inputs, type)), let(_linear(odd, inputs, type))
                out[a], out[b] = let(f"{first} + {second}"), let(f"{first} - {second}")
                break
        else:
            out[a] = let(_linear(row, inputs, type))
    return out


def _linear(row: Sequence[Fraction], inputs: Sequence[str], type: str) -> str:
    """A sum of multiples, those by 1 first."""
    terms = sorted(
        ((factor, name) for factor, name in zip(row, inputs, strict=True) if factor), key=lambda one: one[0] != 1
    )
    text = ""
    for factor, name in terms:
        size = abs(factor)
        scaled = name if size == 1 else f"{literal_text(float(size), DType.F32)} * {name}"
        text = f"{text} {'+' if factor > 0 else '-'} {scaled}" if text else scaled if factor > 0 else f"-{scaled}"
    return text or f"{type}{{}}"
