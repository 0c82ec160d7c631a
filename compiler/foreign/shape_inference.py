"""Shapes and element types of the tensors of a foreign rule, inferred from its operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dslc.foreign.counterparts import (
    ARITY,
    ELEMENTS,
    KNOWN,
    NORMS,
    OF_ANY_ELEMENTS,
    OPEN,
    POINTWISE,
    POOLS,
    REDUCTIONS,
    axes_of,
    axis_of,
    count_of,
    is_open,
    keeps_axes,
    padding,
    permutation,
    sizes_of,
    strides,
)
from dslc.foreign.rule import ForeignRule, Operator, RuleTensor
from dslc.foreign.shapes import Clash, Dim, DimensionRow, Number, Shape, Size, SizeProduct, Sum, Unifier, Windows
from dslc.records import record


class UnknownOperator(Exception):
    """An operator that has no counterpart; the argument is its name."""


@record
class Mode:
    """Degrees of generality of the types.

    `batched`: products of matrices have any batch in front. `grouped`: the convolutions (by number, source first) whose group count is
    open; the others have one group. `kernels`: which sizes of kernels are those that the file names, 0 none, 1 those of pooling and
    constants, 2 those of convolutions too. `free`: strides and padding that the file does not name are any; else 1 and "same".
    `merged`: open group counts are multiples of what `merge_gconv` divides them by, which is otherwise all groups.
    """

    batched: bool = False
    grouped: frozenset[int] = frozenset()
    kernels: int = 0
    free: bool = False
    merged: bool = False


@dataclass
class Typing:
    """The shapes of all tensors of a rule. Raises Unknown for operators without a counterpart, Clash where no sizes fit."""

    rule: ForeignRule
    mode: Mode
    unifier: Unifier = field(default_factory=Unifier)
    inputs: dict[int, Shape] = field(default_factory=dict)
    #: (side, operator) -> its outputs
    results: dict[tuple[int, int], Sequence[Shape]] = field(default_factory=dict)
    #: (side, operator) -> the dimensions that its attributes state: a kernel, the sizes of a split, of a constant
    stated: dict[tuple[int, int], tuple[Dim, ...]] = field(default_factory=dict)
    kernels: dict[tuple[str, int], Size] = field(default_factory=dict)
    #: the type of the elements of each input
    elements: dict[int, str] = field(default_factory=dict)
    #: the rank of products of FlexFlow; None: as the rule says
    products: int | None = None
    _cuts: list[tuple[Dim, tuple[Size, ...]]] = field(default_factory=list)
    _convolutions: int = 0
    _named: dict[str, Shape] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for side, operators in enumerate(self.rule.sides):
            for at, op in enumerate(operators):
                self._operator(side, at, op)
        self.elements = element_types(self.rule)
        for output in self.rule.outputs:
            self.unifier.equal_shapes(self.of(0, output.source), self.of(1, output.target))
        self._cut()
        self.unifier.settle()
        self._cut()
        self.unifier.settle()

    def of(self, side: int, tensor: RuleTensor) -> Shape:
        if tensor.operator < 0:
            return self.inputs.setdefault(tensor.operator, Shape((), DimensionRow()))
        shapes = self.results[side, tensor.operator]
        if tensor.output >= len(shapes):
            raise Clash(f"operator {tensor.operator} has no output {tensor.output}")
        return shapes[tensor.output]

    def _operator(self, side: int, at: int, op: Operator) -> None:
        kind = op.kind
        if kind not in KNOWN:
            raise UnknownOperator(kind)
        if len(op.inputs) not in ARITY[kind]:
            raise Clash(f"`{kind}` has {len(op.inputs)} tensors")
        args = [self.of(side, tensor) for tensor in op.inputs]
        self.results[side, at] = self._results(side, at, op, args)

    def _results(self, side: int, at: int, op: Operator, args: Sequence[Shape]) -> Sequence[Shape]:
        """The shapes of the results, once those of the arguments are what the operator wants."""
        kind = op.kind

        def wants(argument: int, *dims: Dim) -> None:
            self.unifier.equal_shapes(args[argument], Shape(dims))

        if kind in POINTWISE:
            for other in args[1:]:
                self.unifier.equal_shapes(args[0], other)
            return args[:1]
        if kind == "mul":
            wants(1)
            return args[:1]
        if kind in ("matmul", "linear"):
            m, k, n = Size("M"), Size("K"), Size("N")
            batch = self._batch(kind)
            wants(0, *batch, m, k)
            wants(1, *batch, *((k, n) if kind == "matmul" else (n, k)))
            return (Shape((*batch, m, n)),)
        if kind == "transpose":
            order = permutation(op)
            dims = [Size("MNHW"[k] if len(order) <= 4 else "D") for k in range(len(order))]
            wants(0, *dims)
            return (Shape(tuple(dims[k] for k in order)),)
        if kind == "conv2d":
            return self._convolution(side, at, op, wants)
        if kind in POOLS:
            n, c, h, w = map(Size, "NCHW")
            wants(0, n, c, h, w)
            kernel = self.stated[side, at] = self._kernel(op)
            return (Shape((n, c, *self._windows(op, (h, w), kernel))),)
        if kind == "enlarge":
            f, c, r, s = map(Size, "FCRS")
            wants(0, f, c, r, s)
            kernel = self._kernel(op)
            if len(args) == 2:
                kernel = (Size("R"), Size("S"))
                wants(1, Size("F"), Size("C"), *kernel)
            self.stated[side, at] = (*kernel, r, s)
            return (Shape((f, c, *kernel)),)
        if kind in ("replicate", "reduce"):
            return self._copies(op, args[0])
        if kind == "merge_gconv":
            # as many parts of the filters as groups become one, each with zeros at the channels of the others
            count, (f, c, r, s) = Number(count_of(op)), map(Size, "FCRS")
            wants(0, SizeProduct(count, f), c, r, s)
            return (Shape((SizeProduct(count, f), SizeProduct(count, c), r, s)),)
        if kind in NORMS or kind == "broadcast_add":
            return self._norm(op, wants)
        if kind == "prelu":
            return args[:1]
        if kind in OPEN:
            return [Shape((), DimensionRow()) for _ in range(2 if kind == "topk" else 1)]
        if kind == "reshape":
            return (self._reshaped(op),)
        if kind in ("squeeze", "unsqueeze") or kind in REDUCTIONS:
            return self._axes(op, args[0])
        if kind == "concat":
            return self._concat(op, args)
        if kind == "split":
            return self._split(side, at, op, args[0])
        if kind == "constant_imm":
            self.stated[side, at] = (Size("N"),)
            return (Shape(self.stated[side, at] * 2),)
        if kind == "constant_one":
            return (Shape((), DimensionRow()),)
        c = Size("C")
        kernel = self._kernel(op)
        self.stated[side, at] = (c, *kernel)
        return (Shape((c, Number(1) if kind == "constant_pool" else c, *kernel)),)

    def _batch(self, kind: str) -> tuple[Size, ...]:
        if self.mode.batched:
            return (Size("P", pack=True),)
        rank = self.products or rank_of_products(self.rule)
        return tuple(Size("B") for _ in range(rank - 2)) if kind == "linear" else ()

    def _copies(self, op: Operator, shape: Shape) -> Sequence[Shape]:
        axis, rank, degree = axis_of(op), op.get("numdim"), op.get("degree")
        if not isinstance(degree, int) or not 1 <= degree <= 1 << 16:
            raise Clash(f"`{op.kind}` of degree {degree}")
        front, size = tuple(Size("ABDE"[k] if axis <= 4 else "A") for k in range(axis)), Size("D")
        back = tuple(Size("E") for _ in range(rank - axis - 1)) if isinstance(rank, int) else ()
        tail = None if isinstance(rank, int) else DimensionRow()
        one, many = Shape((*front, size, *back), tail), Shape((*front, SizeProduct(Number(degree), size), *back), tail)
        given, made = (one, many) if op.kind == "replicate" else (many, one)
        self.unifier.equal_shapes(shape, given)
        return (made,)

    def _norm(self, op: Operator, wants: Callable[..., None]) -> Sequence[Shape]:
        """The first tensor has channels, the others a number for each; a kernel has a filter for each instead."""
        if op.get("epsilon") is not None:
            raise Clash(f"`{op.kind}` with the epsilon {op.get('epsilon')}: parameters are integers")
        c = Size("C")
        dims: tuple[Dim, ...] = (c,)
        if op.kind in ("batchnorm", "broadcast_add"):
            dims = (Size("N"), c, Size("H"), Size("W"))
        elif op.kind != "fuse_conv_batchnorm_bias":
            dims = (c, Size("P"), Size("R"), Size("S"))
        wants(0, *dims)
        for at in range(1, len(op.inputs)):
            wants(at, c)
        return (Shape(dims),)

    def _reshaped(self, op: Operator) -> Shape:
        """A shape of numbers, or one that the rest of the rule says; one name stands for one shape."""
        sizes = sizes_of(op)
        if isinstance(sizes, tuple):
            return Shape(tuple(map(Number, sizes)))
        shape = Shape((), DimensionRow())
        return shape if sizes is None else self._named.setdefault(sizes, shape)

    def _axes(self, op: Operator, shape: Shape) -> Sequence[Shape]:
        """Squeezed and reduced axes go or get the size 1, unsqueezed ones come in."""
        axes, tail = axes_of(op), DimensionRow()
        one: list[Dim] = []
        many: list[Dim] = []
        for axis in range(max(axes) + 1):
            size: Dim = Size("ABDE"[axis] if axis < 4 else "A")
            if axis not in axes:
                one.append(size)
                many.append(size)
                continue
            many.append(size if op.kind in REDUCTIONS else Number(1))
            if op.kind in REDUCTIONS and keeps_axes(op):
                one.append(Number(1))
        first, second = (many, one) if op.kind != "unsqueeze" else (one, many)
        self.unifier.equal_shapes(shape, Shape(tuple(first), tail))
        return (Shape(tuple(second), tail),)

    def _groups(self, side: int, number: int) -> Dim:
        if number not in self.mode.grouped:
            return Number(1)
        counts = {count_of(op) for op in (self.rule.target, self.rule.source)[side] if op.kind == "merge_gconv"}
        if self.mode.merged and len(counts) == 1:
            return SizeProduct(Size("G"), Number(counts.pop()))
        return Size("G")

    def _convolution(self, side: int, at: int, op: Operator, wants: Callable[..., None]) -> Sequence[Shape]:
        number, self._convolutions = self._convolutions, self._convolutions + 1
        groups = self._groups(side, number)
        n, c, h, w, f, r, s = map(Size, "NCHWFRS")
        for name, dim in (("kernel_h", r), ("kernel_w", s)) if self.mode.kernels == 2 else ():
            value = op.get(name)
            self.unifier.equal(dim, Number(value if isinstance(value, int) else 3))
        filters = SizeProduct(groups, f)
        wants(0, n, SizeProduct(groups, c), h, w)
        wants(1, filters, c, r, s)
        self.stated[side, at] = (r, s)
        return (Shape((n, filters, *self._windows(op, (h, w), (r, s)))),)

    def _windows(self, op: Operator, sizes: tuple[Dim, Dim], kernel: tuple[Dim, ...]) -> tuple[Dim, ...]:
        if self.mode.free and is_open(op):
            return tuple(Windows(n, k, 0, False) for n, k in zip(sizes, kernel, strict=True))
        same = padding(op) == "same"
        return tuple(map(Windows, sizes, kernel, strides(op), (same, same)))

    def _kernel(self, op: Operator) -> tuple[Dim, ...]:
        """One size for every number that the rule names, unless kernels are those numbers."""
        out: list[Dim] = []
        for key, letter in (("kernel_h", "R"), ("kernel_w", "S")):
            value = op.get(key)
            if value is None and op.kind == "enlarge":
                out.append(Size(letter))
                continue
            if not isinstance(value, int) or value < 1:
                raise Clash(f"`{op.kind}` has the {key} {value}")
            out.append(Number(value) if self.mode.kernels else self.kernels.setdefault((key, value), Size(letter)))
        return tuple(out)

    def _concat(self, op: Operator, args: Sequence[Shape]) -> Sequence[Shape]:
        axis, rank = axis_of(op), op.get("numdim")
        if len(op.inputs) < 2:
            raise Clash("a concatenation of one tensor")
        if rank is not None and (not isinstance(rank, int) or not axis < rank <= 8):
            raise Clash(f"axis {axis} of {rank} dimensions")
        front = tuple(Size("ABDE"[k] if axis <= 4 else "A") for k in range(axis))
        back = tuple(Size("D") for _ in range(rank - axis - 1)) if rank is not None else ()
        tail = DimensionRow() if rank is None else None
        joined = tuple(Size("P") for _ in args)
        for shape, size in zip(args, joined, strict=True):
            self.unifier.equal_shapes(shape, Shape((*front, size, *back), tail))
        return (Shape((*front, Sum(joined), *back), tail),)

    def _split(self, side: int, at: int, op: Operator, shape: Shape) -> Sequence[Shape]:
        axis, count = axis_of(op), op.get("num_outputs")
        count = 2 if count is None else count
        if not isinstance(count, int) or not 2 <= count <= 16:
            raise Clash(f"a split into {count}")
        front, tail, cut = tuple(Size("A") for _ in range(axis)), DimensionRow(), Size("P")
        self.unifier.equal_shapes(shape, Shape((*front, cut), tail))
        parts = tuple(Size("P") for _ in range(count))
        self._cuts.append((cut, parts))
        self.stated[side, at] = parts
        return [Shape((*front, part), tail) for part in parts]

    def _cut(self) -> None:
        """A split cuts where the tensor was joined last; where nothing is known of that, anywhere."""
        waiting = self._cuts
        while waiting:
            known = [cut for cut in waiting if isinstance(self.unifier.dim(cut[0]), Sum)]
            done = known or waiting[:1]
            for cut, parts in done:
                here = self.unifier.dim(cut)
                if not isinstance(here, Sum):
                    self.unifier.equal(here, Sum(parts))
                    continue
                if len(here.parts) != len(parts):
                    raise Clash(f"a split into {len(parts)} of {len(here.parts)} joined tensors")
                for part, size in zip(here.parts, parts, strict=True):
                    self.unifier.equal(part, size)
            waiting = [cut for cut in waiting if cut not in done]
        self._cuts = []


def rank_of_products(rule: ForeignRule) -> int:
    """Arrays of FlexFlow have an axis of copies in front of a product, unless a concatenation says less."""
    ranks = [rank for op in rule.operators if op.kind == "concat" and isinstance(rank := op.get("numdim"), int)]
    distributed = any(op.kind in ("replicate", "reduce") for op in rule.operators)
    return max(ranks) if ranks else 3 if distributed else 2


def convolutions(rule: ForeignRule) -> int:
    """The number of convolutions on both sides."""
    return sum(op.kind == "conv2d" for op in rule.operators)


_NAMES = {"T": "numbers", "bool": "truth values", "int64": "positions"}
_Place = tuple[int, RuleTensor]


def element_types(rule: ForeignRule) -> dict[int, str]:
    """`T`, `bool` or `int64` for each free input.

    Raises:
        Clash: a tensor would have to hold two of them.
    """
    # tensors by others of the same elements, or by what these are
    same: dict[_Place | str, _Place | str] = {}

    def root(one: _Place | str) -> _Place | str:
        while one in same:
            one = same[one]
        return one

    def equal(a: _Place | str, b: _Place | str) -> None:
        a, b = root(a), root(b)
        if a == b:
            return
        if not isinstance(a, str):
            same[a] = b
        elif not isinstance(b, str):
            same[b] = a
        else:
            raise Clash(f"a tensor holds both {_NAMES[b]} and {_NAMES[a]}")

    for side, operators in enumerate(rule.sides):
        for at, op in enumerate(operators):
            result = (side, RuleTensor(at))
            if op.kind in OF_ANY_ELEMENTS:
                others = [_place(side, tensor) for tensor in op.inputs]
                others += [(side, RuleTensor(at, output)) for output in range(1, 16 if op.kind == "split" else 1)]
                for other in others:
                    equal(result, other)
                continue
            wanted, given = ELEMENTS.get(op.kind, (("T",) * len(op.inputs), "T"))
            equal(given, result)
            if op.kind == "topk":
                equal("int64", (side, RuleTensor(at, 1)))
            for tensor, kind in zip(op.inputs, wanted, strict=False):
                equal(kind, _place(side, tensor))
    for output in rule.outputs:
        equal(_place(0, output.source), _place(1, output.target))
    found = {number: root((0, RuleTensor(number))) for number in rule.inputs()}
    return {number: kind if isinstance(kind, str) else "T" for number, kind in found.items()}


def _place(side: int, tensor: RuleTensor) -> _Place:
    """Inputs are the same on both sides."""
    return (0 if tensor.operator < 0 else side, tensor)
