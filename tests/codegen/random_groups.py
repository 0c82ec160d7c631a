"""Random groups for tests of generated kernels: every kind of node, element type and broadcast, at known and at unknown sizes.

A group is drawn once, with its sizes unknown or known, as inputs and steps; what does not fit at some point is not taken. It is built
anew at any sizes, so that one text is compared at many of them. The same for the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dslc.errors import DslcError
from dslc.ir.dtype import Dim, DType
from dslc.ir.graph import Input, Value
from dslc.ir.scalar import Scalar
from dslc.semantics.env import Mismatch
from tests.codegen.groups import Build, Case, M, N, Room

#: elements of a value at the sizes that are run, and steps of a product
_LARGEST = 6000
_STATIC: tuple[Mapping[str, int], ...] = ({},)
_UNKNOWN: tuple[Mapping[str, int], ...] = ({"N": 1, "M": 1}, {"N": 5, "M": 37}, {"N": 34, "M": 8})
#: sizes of an axis; of wide groups those around what warps, vectors and tiles have
_SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64)
_WIDE = (1, 2, 3, 5, 7, 13, 31, 32, 33, 63, 65, 97, 127, 128, 129, 251, 257, 509, 1031, 2049)
#: how far a result may be from the interpreter's, by the weakest element type of a group
_TOLERANCE = {DType.F64: 2e-4, DType.F32: 2e-4, DType.F16: 2e-2, DType.BF16: 1.5e-1}
_FLOATS = [DType.F32] * 7 + [DType.F16, DType.F16, DType.BF16, DType.F64]
_WHOLE = [DType.I64, DType.I32, DType.I8, DType.U8, DType.I16]

_SMOOTH = (
    "relu sigmoid tanh neg abs hard_swish softplus gelu gelu_tanh mish silu erf sin square_plus leaky_relu elu".split()
)
_ARITHMETIC = "add sub mul maximum minimum".split()
_COMPARED = "less less_equal greater equal".split()
_REDUCED = "reduce_sum reduce_mean reduce_max reduce_min reduce_l1 reduce_sum_square reduce_log_sum_exp".split()
#: of what is exact and comes out exact: only such values are compared, rounded or asked for their largest place
_EXACT = frozenset(
    "neg abs relu maximum minimum transpose reverse slice concat pad pad_edge reshape expand tile unsqueeze".split()
)


@dataclass(slots=True)
class Drawn:
    """What was drawn so far: a room at the sizes of the draw, and how to do it again at others."""

    rng: np.random.Generator
    room: Room
    static: bool
    pool: list[Value] = field(default_factory=list)
    again: list[Callable[[Room, list[Value]], Sequence[Value]]] = field(default_factory=list)
    draw: dict[int, Callable[[np.random.Generator, tuple[int, ...]], Any]] = field(default_factory=dict)
    sizes: Sequence[int] = _SIZES
    exact: set[Value] = field(default_factory=set)

    # ---- drawing ------------------------------------------------------------------------------------------------------

    def chance(self, part: float) -> bool:
        return bool(self.rng.random() < part)

    def whole(self, low: int, high: int) -> int:
        """From `low` to `high`, both possible."""
        return int(self.rng.integers(low, high + 1))

    def pick(self, among: Sequence[Any]) -> Any:
        return among[self.whole(0, len(among) - 1)]

    def axis(self, x: Value) -> int:
        if not x.type.rank:
            raise Mismatch("a number has no axis")
        return self.whole(0, x.type.rank - 1)

    def axes(self, x: Value) -> tuple[int, ...]:
        """One or more; often neighbours."""
        self.axis(x)
        found = tuple(k for k in range(x.type.rank) if self.chance(0.45))
        return found or (self.axis(x),)

    def size(self) -> Dim:
        if not self.static and self.chance(0.5):
            return N if self.chance(0.5) else M
        return int(self.pick([*self.sizes, *([0] if self.static and self.chance(0.15) else [])]))

    # ---- values -------------------------------------------------------------------------------------------------------

    def input(self, shape: Sequence[Dim], dtype: DType, below: int | None = None) -> Value:
        """A new input; `below`: of whole numbers from its negative on."""
        shape = tuple(shape)
        if math.prod(size if isinstance(size, int) else 37 for size in shape) > _LARGEST:
            raise Mismatch("too large")
        if below is not None:
            self.draw[len(self.room.inputs)] = lambda rng, sizes: rng.integers(-below, below, sizes)
        value = self._kept((self.room.input(*shape, dtype=dtype),), lambda room, _: (room.input(*shape, dtype=dtype),))[
            0
        ]
        self.exact.add(value)
        return value

    def op(self, name: str, *args: Value | float, **attrs: Any) -> Value:
        return self.ops(name, *args, **attrs)[0]

    def ops(self, name: str, *args: Value | float, **attrs: Any) -> tuple[Value, ...]:
        """A call; what is a number is of the element type of the first argument."""
        places = [self.pool.index(one) if isinstance(one, Value) else one for one in args]
        first = next(one for one in args if isinstance(one, Value))

        def apply(room: Room, pool: Sequence[Value]) -> Sequence[Value]:
            given = [room.number(one, first.type.dtype) if isinstance(one, float | int) else pool[int(at)]
                     for one, at in zip(args, places, strict=True)]  # fmt: skip
            return room.ops(name, *given, **{key: _sized(room, value) for key, value in attrs.items()})

        found = apply(self.room, self.pool)
        if any(_elements(value) > _LARGEST for value in found):
            raise Mismatch("too large")
        if name in _EXACT and all(one in self.exact for one in args if isinstance(one, Value)):
            self.exact.update(found)
        return tuple(self._kept(found, apply))

    def _kept(self, found: Sequence[Value], how: Callable[[Room, list[Value]], Sequence[Value]]) -> Sequence[Value]:
        self.pool.extend(found)
        self.again.append(how)
        return found

    def tame(self, x: Value) -> Value:
        """A value whose elements are neither large nor far apart."""
        return self.op("clip", x, -4.0, 4.0) if x.type.dtype.is_float else x

    def cut(self, x: Value) -> Value:
        """An exact value: itself, or a new input like it."""
        return x if x in self.exact or not x.type.dtype.is_float else self.input(x.type.shape, x.type.dtype)


def _sized(room: Room, value: Any) -> Any:
    """Attributes may name unknown sizes."""
    if isinstance(value, tuple):
        return tuple(_sized(room, one) for one in value)
    return room.size(value) if isinstance(value, Scalar) else value


def _elements(value: Value) -> int:
    """At the sizes that are run, roughly."""
    return math.prod(size if isinstance(size, int) else 37 for size in value.type.shape)


def _other(d: Drawn, x: Value) -> Value | float:
    """Another operand that broadcasts with a value: an input with some sizes 1 or missing, a value of the same shape, or a number."""
    kind = d.whole(0, 5)
    if kind == 0:
        return 1.0 + d.whole(0, 3) / 2 if x.type.dtype.is_float else float(d.whole(1, 3))
    same = [one for one in d.pool if one.type == x.type and one is not x]
    if kind == 1 and same:
        return d.pick(same)
    shape = [size if d.chance(0.6) else 1 for size in x.type.shape]
    return d.input(shape[d.whole(0, len(shape)) if d.chance(0.4) else 0 :], x.type.dtype)


# ---- what a step may be: each takes a value, and gives another one or raises Mismatch ---------------------------------------


def _unary(d: Drawn, x: Value) -> Value:
    if x.type.dtype is DType.BOOL:
        return d.op("invert", x)
    if not x.type.dtype.is_float:
        return d.op(d.pick(["neg", "abs"] if not str(x.type.dtype).startswith("u") else ["abs"]), x)
    if d.chance(0.1):
        return d.op("exp", d.tame(x))
    if d.chance(0.1):
        return d.op(d.pick(["sqrt", "log"]), d.op("add", d.op("abs", x), 0.5))
    return d.op(d.pick(_SMOOTH), x)


def _binary(d: Drawn, x: Value) -> Value:
    other = _other(d, x)
    if x.type.dtype is DType.BOOL:
        return d.op(d.pick(["both", "either", "differ"]), x, other if isinstance(other, Value) else x)
    if x.type.dtype.is_float and d.chance(0.15):
        below = d.op("add", d.op("abs", other if isinstance(other, Value) else x), 0.5)
        return d.op("div", x, below)
    pair = (x, other) if d.chance(0.7) or not isinstance(other, Value) else (other, x)
    return d.op(d.pick(_ARITHMETIC), *pair)


def _chosen(d: Drawn, x: Value) -> Value:
    x = d.cut(x)
    if x.type.dtype is DType.BOOL:
        raise Mismatch("nothing is compared")
    other = _other(d, x)
    if isinstance(other, Value):
        other = d.cut(other)
    found = d.op(d.pick(_COMPARED), x, other)
    return d.op("select", found, x, other) if d.chance(0.8) else found


def _cast(d: Drawn, x: Value) -> Value:
    to = d.pick(_FLOATS + _WHOLE + [DType.BOOL])
    if x.type.dtype.is_float and not to.is_float:
        # what is no whole number of the type is not the same everywhere
        return d.op("cast", d.op("abs", d.op("clip", d.cut(x), -50.0, 50.0)), to=to)
    return d.op("cast", d.tame(x), to=to)


def _reduced(d: Drawn, x: Value) -> Value:
    if x.type.dtype is DType.BOOL:
        raise Mismatch("no sums of truths")
    if not x.type.dtype.is_float:
        return d.op(d.pick(["reduce_sum", "reduce_max", "reduce_min"]), x, axes=d.axes(x), keepdims=d.chance(0.5))
    keep = d.chance(0.7)
    found = d.op(d.pick(_REDUCED), d.tame(x), axes=d.axes(x), keepdims=keep)
    return d.op(d.pick(["sub", "mul", "add"]), x, found) if keep and d.chance(0.7) else found


def _normed(d: Drawn, x: Value) -> Value:
    if not x.type.dtype.is_float:
        raise Mismatch("floats only")
    kind, axis = d.whole(0, 6), d.axis(x)
    tail = x.type.shape[axis:]
    if kind == 0:
        return d.op("softmax", x, axis=axis)
    if kind == 1:
        return d.op("log_softmax", x, axis=axis)
    if kind == 2:
        mask = d.input([size if d.chance(0.7) else 1 for size in x.type.shape], x.type.dtype)
        return d.op("softmax", d.op("add", d.op("mul", x, 0.125), mask), axis=axis)
    if kind == 3:
        return d.op("layer_norm", x, d.input(tail, x.type.dtype), d.input(tail, x.type.dtype), axis=axis, epsilon=0.1)
    if kind == 4:
        return d.op("rms_norm", x, d.input(tail, x.type.dtype), axis=axis, epsilon=0.1)
    if kind == 5:
        truth = d.op("less", d.input(x.type.shape, DType.F32), 0.5)
        return d.op("softmax", d.op("select", truth, x, -30.0), axis=axis)
    centred = d.op("sub", x, d.op("reduce_mean", x, axes=(axis,)))
    spread = d.op("reduce_mean", d.op("mul", centred, centred), axes=(axis,))
    return d.op("div", centred, d.op("sqrt", d.op("add", spread, 0.1)))


def _placed(d: Drawn, x: Value) -> Value:
    """Largest places, running sums, and what is looked up."""
    axis, kind = d.axis(x), d.whole(0, 3)
    if x.type.dtype is DType.BOOL:
        raise Mismatch("not of truths")
    if kind == 0:
        return d.op(d.pick(["argmax", "argmin"]), d.cut(x), axis=axis, keepdims=d.chance(0.5))
    if kind == 1:
        return d.op("cumsum", d.tame(x), axis=axis)
    size = x.type.shape[axis]
    # at sizes of 1 the one element is the first and, from the end, the last
    below = size if isinstance(size, int) else 1
    if not below:
        raise Mismatch("nothing to look up")
    places = d.input([d.size() for _ in range(d.whole(0, 2))], d.pick([DType.I64, DType.I32]), below=below)
    return d.op("gather", x, places, axis=axis)


def _moved(d: Drawn, x: Value) -> Value:
    kind, rank = d.whole(0, 10), x.type.rank
    if kind <= 2:
        return d.op("transpose", x, perm=tuple(int(k) for k in d.rng.permutation(rank)))
    if kind == 3:
        wide = tuple(d.whole(0, 2) if d.chance(0.5) else 0 for _ in range(2 * rank))
        if x.type.dtype is DType.BOOL or d.chance(0.4):
            return d.op("pad_edge", x, before=wide[:rank], after=wide[rank:])
        return d.op("pad", x, float(d.whole(0, 2)), before=wide[:rank], after=wide[rank:])
    if kind == 4:
        starts, sizes, steps = [], [], []
        for size in x.type.shape:
            if not isinstance(size, int) or size == 0 or d.chance(0.4):
                starts, sizes, steps = [*starts, 0], [*sizes, size], [*steps, 1]
                continue
            step = d.pick([1, 1, 2, 3, -1, -2])
            first = d.whole(0, size - 1)
            most = (size - 1 - first) // step + 1 if step > 0 else first // -step + 1
            starts, sizes, steps = [*starts, first], [*sizes, d.whole(1, most)], [*steps, step]
        return d.op("slice", x, start=tuple(starts), size=tuple(sizes), step=tuple(steps))
    if kind == 5:
        axis = d.axis(x)
        like = [size if k != axis else d.size() for k, size in enumerate(x.type.shape)]
        return d.op("concat", x, d.input(like, x.type.dtype), *([x] if d.chance(0.3) else []), axis=axis)
    if kind == 6:
        return d.op("reverse", x, axis=d.axis(x))
    if kind == 7:
        return d.op("expand", x, shape=(d.size(), *x.type.shape))
    if kind == 8:
        return d.op("tile", x, repeats=tuple(d.whole(1, 2) for _ in range(rank)))
    if kind == 9 and all(isinstance(size, int) for size in x.type.shape):
        return d.op("reshape", x, shape=_reshaped(d, [int(str(size)) for size in x.type.shape]))
    if rank == 4 and d.chance(0.5):
        return d.op(d.pick(["depth_to_space", "space_to_depth", "depth_to_space_crd"]), x, block=2)
    return d.op("unsqueeze", x, axes=(d.whole(0, rank),))


def _reshaped(d: Drawn, shape: list[int]) -> tuple[int, ...]:
    """Other sizes with the same product: neighbours become one, or one becomes two."""
    out: list[int] = []
    for size in shape:
        if out and d.chance(0.4):
            out[-1] *= size
        elif size % 2 == 0 and size and d.chance(0.4):
            out += [size // 2, 2] if d.chance(0.5) else [2, size // 2]
        else:
            out.append(size)
    return tuple(out)


def _rotary(d: Drawn, x: Value) -> Value:
    """The second half of the last axis before the first one, by angles."""
    if x.type.rank < 2 or not x.type.dtype.is_float or not isinstance(x.type.shape[-1], int) or x.type.shape[-1] % 2:
        raise Mismatch("no halves")
    half, last = x.type.shape[-1] // 2, x.type.rank - 1
    left, right = d.ops("split", x, sizes=(half, half), axis=last)
    turned = d.op("concat", d.op("neg", right), left, axis=last)
    cos, sin = (d.input(x.type.shape[-2:], x.type.dtype) for _ in range(2))
    return d.op("add", d.op("mul", x, cos), d.op("mul", turned, sin))


def _product(d: Drawn, x: Value) -> Value:
    if x.type.rank < 2 or not x.type.dtype.is_float:
        raise Mismatch("no matrix")
    *batch, rows, inner = x.type.shape
    columns = d.size()
    turned = d.chance(0.4)
    own = batch if d.chance(0.5) else [size if d.chance(0.5) else 1 for size in batch] if d.chance(0.5) else []
    other = d.input([*own, *((columns, inner) if turned else (inner, columns))], x.type.dtype)
    if turned:
        rank = other.type.rank
        other = d.op("transpose", other, perm=(*range(rank - 2), rank - 1, rank - 2))
    out = d.op("matmul", x, other)
    if d.chance(0.5):
        out = d.op("add", out, d.input((columns,) if d.chance(0.7) else (rows, 1), x.type.dtype))
    return d.op(d.pick(["relu", "gelu", "tanh", "sigmoid"]), out) if d.chance(0.5) else out


def _windowed(d: Drawn, x: Value) -> Value:
    """Convolutions and pools of one or two axes."""
    if x.type.rank not in {3, 4} or not x.type.dtype.is_float:
        raise Mismatch("no image")
    axes = x.type.rank - 2
    window = tuple(d.whole(1, 3) for _ in range(axes))
    attrs = {
        "stride": tuple(d.pick([1, 1, 2]) for _ in range(axes)),
        "pads": tuple(d.whole(0, size - 1) for size in window * 2),
    }
    kind = d.whole(0, 4)
    if kind == 0:
        return d.op(d.pick(["max_pool", "avg_pool"]), x, kernel=window, **attrs)
    channels = x.type.shape[1]
    if not isinstance(channels, int):
        raise Mismatch("a number of channels is wanted")
    groups = d.pick([one for one in range(1, channels + 1) if channels % one == 0] or [1])
    if kind == 1:
        kernel = d.input((channels, d.whole(1, 3), *window), x.type.dtype)
        return d.op("conv_transpose", x, kernel, stride=attrs["stride"], groups=groups)
    kernel = d.input((groups * d.pick([1, 2, 4, 16]), channels // groups, *window), x.type.dtype)
    out = d.op("conv", x, kernel, groups=groups, dilation=tuple(d.pick([1, 1, 2]) for _ in range(axes)), **attrs)
    if d.chance(0.5):
        out = d.op("add", out, d.input((out.type.shape[1], *[1] * axes), x.type.dtype))
    return d.op("relu", out) if d.chance(0.5) else out


_KINDS: tuple[Callable[[Drawn, Value], Value], ...] = (
    _unary, _unary, _binary, _binary, _binary, _chosen, _cast, _reduced, _reduced, _normed, _normed, _placed, _moved, _moved, _moved,
    _rotary, _product, _product, _product, _windowed, _windowed,
)  # fmt: skip


def drawn_group(seed: int, wide: bool = False) -> Case:
    """A group of one to seven steps with one or more results, and the sizes at which it is run. `wide`: axes may be long."""
    rng = np.random.default_rng([seed, 17 if wide else 15])
    static = bool(rng.random() < 0.5)
    d = Drawn(rng, Room(None), static, sizes=_WIDE if wide else _SIZES)
    dtype = d.pick(_FLOATS * 3 + _WHOLE + [DType.BOOL])
    shape = [d.size() for _ in range(d.pick([0, 1, 2, 2, 3, 3, 4, 4, 5]))]
    if d.chance(0.3):
        # an image
        shape = [d.pick([1, 2]), d.pick([1, 2, 4, 6, 8]), *(d.whole(3, 9) for _ in range(d.pick([1, 2, 2])))]
    while math.prod(size if isinstance(size, int) else 37 for size in shape) > _LARGEST:
        shape[d.whole(0, len(shape) - 1)] = d.size()
    x = d.input(shape, dtype)
    length, made = d.whole(1, 7), [x]
    for _ in range(8 * length):
        if len(made) > length:
            break
        before = len(d.pool), len(d.again), len(d.room.inputs), set(d.exact)
        try:
            x = d.pick(_KINDS)(d, made[-1] if d.chance(0.8) else d.pick(made))
        except (Mismatch, DslcError):
            del d.pool[before[0] :], d.again[before[1] :], d.room.inputs[before[2] :]
            d.exact = before[3]
            d.draw = {at: how for at, how in d.draw.items() if at < before[2]}
            continue
        if not isinstance(x.node, Input):
            made.append(x)
    outputs = list(dict.fromkeys([made[-1], *([d.pick(made[1:])] if len(made) > 2 and d.chance(0.3) else [])]))
    places, again = [d.pool.index(value) for value in outputs], tuple(d.again)
    weakest = max(_TOLERANCE.get(value.type.dtype, 0.0) for value in d.pool)
    name = f"random{' wide' if wide else ''} group {seed}"
    return Case(name, _built(again, places), _STATIC if static else _UNKNOWN, d.draw, weakest or 2e-4)


def _built(again: Sequence[Callable[[Room, list[Value]], Sequence[Value]]], places: Sequence[int]) -> Build:
    def build(room: Room) -> list[Value]:
        pool: list[Value] = []
        for how in again:
            pool.extend(how(room, pool))
        return [pool[at] for at in places]

    return build
