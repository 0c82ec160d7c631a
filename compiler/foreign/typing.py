"""What the operators of a foreign rule say about the shapes of its tensors."""

from __future__ import annotations

from dataclasses import dataclass, field

from dslc.foreign.rule import ForeignRule, Operator, Tensor
from dslc.foreign.shapes import Clash, Dim, Number, Product, Row, Shape, Size, Sum, Unifier, Windows

OPERATORS, FOREIGN = "taso.operators", "taso.foreign"
#: foreign kind -> (file that defines the operator, its name): one shape in, the same out
POINTWISE: dict[str, tuple[str, str]] = {
    "ew_add": (OPERATORS, "ewadd"),
    "ew_mul": (OPERATORS, "ewmul"),
    "relu": (OPERATORS, "relu"),
    "sigmoid": (OPERATORS, "sigmoid"),
    "tanh": (OPERATORS, "tanh"),
    "ew_sub": ("std.pointwise", "sub"),
    "ew_div": ("std.pointwise", "div"),
    "ew_max": ("std.pointwise", "maximum"),
    "ew_min": ("std.pointwise", "minimum"),
    "exp": ("std.pointwise", "exp"),
    "log": ("std.pointwise", "log"),
    "sqrt": ("std.pointwise", "sqrt"),
    "ceil": ("std.pointwise", "ceil"),
    "round": ("std.pointwise", "round"),
}
ACTIVATIONS = {0: "", 1: "sigmoid", 2: "relu", 3: "tanh"}
POOLS = {"pool2d_avg": "pool_avg", "pool2d_max": "pool_max"}
CONSTANTS = {"constant_imm": "I_matmul", "constant_iconv": "I_conv", "constant_one": "I_ewmul", "constant_pool": "C_pool"}
_ARITY = {
    **dict.fromkeys(POINTWISE, 1), **dict.fromkeys(("ew_add", "ew_mul", "ew_sub", "ew_div", "ew_max", "ew_min"), 2),
    **dict.fromkeys(("mul", "matmul", "linear", "conv2d"), 2), **dict.fromkeys(POOLS, 1), **dict.fromkeys(CONSTANTS, 0),
    **dict.fromkeys(("transpose", "split", "replicate", "reduce"), 1),
}  # fmt: skip
KNOWN = {*POINTWISE, *POOLS, *CONSTANTS, "mul", "matmul", "linear", "conv2d", "transpose", "enlarge", "concat", "split",
         "replicate", "reduce"}  # fmt: skip


class Unknown(Exception):
    """An operator that has no counterpart; the argument is its name."""


@dataclass(frozen=True, slots=True)
class Mode:
    """How general the types are.

    `batched`: products of matrices have any batch in front. `grouped`: the convolutions (by number, source first) whose group count is
    open; the others have one group. `kernels`: which sizes of kernels are those that the file names, 0 none, 1 those of pooling and
    constants, 2 those of convolutions too. `free`: strides and padding that the file does not name are any; else 1 and "same".
    """

    batched: bool = False
    grouped: frozenset[int] = frozenset()
    kernels: int = 0
    free: bool = False


@dataclass
class Typing:
    """The shapes of all tensors of a rule. Raises Unknown for operators without a counterpart, Clash where no sizes fit."""

    rule: ForeignRule
    mode: Mode
    unifier: Unifier = field(default_factory=Unifier)
    inputs: dict[int, Shape] = field(default_factory=dict)
    #: (side, operator, output)
    results: dict[tuple[int, int, int], Shape] = field(default_factory=dict)
    #: (side, operator) -> the dimensions that its attributes state: a kernel, the sizes of a split, of a constant
    stated: dict[tuple[int, int], tuple[Dim, ...]] = field(default_factory=dict)
    kernels: dict[tuple[str, int], Size] = field(default_factory=dict)
    #: the rank of products of FlexFlow; None: as the rule says
    products: int | None = None
    _cuts: list[tuple[Dim, tuple[Size, ...]]] = field(default_factory=list)
    _convolutions: int = 0

    def __post_init__(self) -> None:
        for side, operators in enumerate((self.rule.source, self.rule.target)):
            for at, op in enumerate(operators):
                self._operator(side, at, op)
        for output in self.rule.outputs:
            self.unifier.equal_shapes(self.of(0, output.source), self.of(1, output.target))
        self._cut()
        self.unifier.settle()
        self._cut()
        self.unifier.settle()

    def of(self, side: int, tensor: Tensor) -> Shape:
        if tensor.operator < 0:
            return self.inputs.setdefault(tensor.operator, Shape((), Row()))
        shape = self.results.get((side, tensor.operator, tensor.output))
        if shape is None:
            raise Clash(f"operator {tensor.operator} has no output {tensor.output}")
        return shape

    def _of_rank(self, side: int, tensor: Tensor, dims: tuple[Dim, ...]) -> None:
        self.unifier.equal_shapes(self.of(side, tensor), Shape(dims))

    def _operator(self, side: int, at: int, op: Operator) -> None:
        kind = op.kind
        if kind not in KNOWN:
            raise Unknown(kind)
        wanted = _ARITY.get(kind)
        if (wanted is not None and len(op.inputs) != wanted) or (kind == "enlarge" and len(op.inputs) not in (1, 2)):
            raise Clash(f"`{kind}` has {len(op.inputs)} tensors")
        here = (side, at, 0)
        if kind in POINTWISE:
            shape = self.of(side, op.inputs[0]) if op.inputs else Shape((), Row())
            for other in op.inputs[1:]:
                self.unifier.equal_shapes(shape, self.of(side, other))
            self.results[here] = shape
        elif kind == "mul":
            self._of_rank(side, op.inputs[1], ())
            self.results[here] = self.of(side, op.inputs[0])
        elif kind in ("matmul", "linear"):
            m, k, n = Size("M"), Size("K"), Size("N")
            batch = self._batch(kind)
            self._of_rank(side, op.inputs[0], (*batch, m, k))
            self._of_rank(side, op.inputs[1], (*batch, k, n) if kind == "matmul" else (*batch, n, k))
            self.results[here] = Shape((*batch, m, n))
        elif kind == "transpose":
            order = permutation(op)
            dims = tuple(Size("MNHW"[k] if len(order) <= 4 else "D") for k in range(len(order)))
            self._of_rank(side, op.inputs[0], dims)
            self.results[here] = Shape(tuple(dims[k] for k in order))
        elif kind == "conv2d":
            self._convolution(side, at, op)
        elif kind in POOLS:
            n, c, h, w = Size("N"), Size("C"), Size("H"), Size("W")
            self._of_rank(side, op.inputs[0], (n, c, h, w))
            kernel = self._kernel(op)
            self.stated[side, at] = kernel
            self.results[here] = Shape((n, c, *self._windows(op, (h, w), kernel)))
        elif kind == "enlarge":
            f, c, r, s = Size("F"), Size("C"), Size("R"), Size("S")
            self._of_rank(side, op.inputs[0], (f, c, r, s))
            kernel = self._kernel(op)
            if len(op.inputs) == 2:
                kernel = (Size("R"), Size("S"))
                self._of_rank(side, op.inputs[1], (Size("F"), Size("C"), *kernel))
            self.stated[side, at] = (*kernel, r, s)
            self.results[here] = Shape((f, c, *kernel))
        elif kind in ("replicate", "reduce"):
            self._copies(side, at, op)
        elif kind == "concat":
            self._concat(side, at, op)
        elif kind == "split":
            self._split(side, at, op)
        elif kind == "constant_imm":
            n = Size("N")
            self.stated[side, at] = (n,)
            self.results[here] = Shape((n, n))
        elif kind == "constant_one":
            self.results[here] = Shape((), Row())
        else:
            c = Size("C")
            kernel = self._kernel(op)
            self.stated[side, at] = (c, *kernel)
            self.results[here] = Shape((c, Number(1) if kind == "constant_pool" else c, *kernel))

    def _batch(self, kind: str) -> tuple[Size, ...]:
        if self.mode.batched:
            return (Size("P", pack=True),)
        rank = self.products or rank_of_products(self.rule)
        return tuple(Size("B") for _ in range(rank - 2)) if kind == "linear" else ()

    def _copies(self, side: int, at: int, op: Operator) -> None:
        axis, rank, degree = axis_of(op), op.get("numdim"), op.get("degree")
        if not isinstance(degree, int) or not 1 <= degree <= 1 << 16:
            raise Clash(f"`{op.kind}` of degree {degree}")
        front, size = tuple(Size("ABDE"[k] if axis <= 4 else "A") for k in range(axis)), Size("D")
        back = tuple(Size("E") for _ in range(rank - axis - 1)) if isinstance(rank, int) else ()
        tail = None if isinstance(rank, int) else Row()
        one, many = Shape((*front, size, *back), tail), Shape((*front, Product(Number(degree), size), *back), tail)
        self.unifier.equal_shapes(self.of(side, op.inputs[0]), one if op.kind == "replicate" else many)
        self.results[side, at, 0] = many if op.kind == "replicate" else one

    def _convolution(self, side: int, at: int, op: Operator) -> None:
        number, self._convolutions = self._convolutions, self._convolutions + 1
        groups: Dim = Size("G") if number in self.mode.grouped else Number(1)
        n, c, h, w, f, r, s = (Size(name) for name in "NCHWFRS")
        for name, dim in (("kernel_h", r), ("kernel_w", s)):
            value = op.get(name)
            if self.mode.kernels == 2:
                self.unifier.equal(dim, Number(value if isinstance(value, int) else 3))
        self._of_rank(side, op.inputs[0], (n, Product(groups, c), h, w))
        self._of_rank(side, op.inputs[1], (Product(groups, f), c, r, s))
        self.stated[side, at] = (r, s)
        self.results[side, at, 0] = Shape((n, Product(groups, f), *self._windows(op, (h, w), (r, s))))

    def _windows(self, op: Operator, sizes: tuple[Dim, Dim], kernel: tuple[Dim, ...]) -> tuple[Dim, ...]:
        if self.mode.free and is_open(op):
            return tuple(Windows(n, k, 0, False) for n, k in zip(sizes, kernel, strict=True))
        same = padding(op) == "same"
        return tuple(Windows(n, k, stride, same) for n, k, stride in zip(sizes, kernel, strides(op), strict=True))

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

    def _concat(self, side: int, at: int, op: Operator) -> None:
        axis, rank = axis_of(op), op.get("numdim")
        if len(op.inputs) < 2:
            raise Clash("a concatenation of one tensor")
        if rank is not None and (not isinstance(rank, int) or not axis < rank <= 8):
            raise Clash(f"axis {axis} of {rank} dimensions")
        front = tuple(Size("ABDE"[k] if axis <= 4 else "A") for k in range(axis))
        back = tuple(Size("D") for _ in range(rank - axis - 1)) if rank is not None else ()
        tail = Row() if rank is None else None
        joined = tuple(Size("P") for _ in op.inputs)
        for tensor, size in zip(op.inputs, joined, strict=True):
            self.unifier.equal_shapes(self.of(side, tensor), Shape((*front, size, *back), tail))
        self.results[side, at, 0] = Shape((*front, Sum(joined), *back), tail)

    def _split(self, side: int, at: int, op: Operator) -> None:
        axis, count = axis_of(op), op.get("num_outputs")
        count = 2 if count is None else count
        if not isinstance(count, int) or not 2 <= count <= 16:
            raise Clash(f"a split into {count}")
        front, tail, cut = tuple(Size("A") for _ in range(axis)), Row(), Size("P")
        self.unifier.equal_shapes(self.of(side, op.inputs[0]), Shape((*front, cut), tail))
        parts = tuple(Size("P") for _ in range(count))
        self._cuts.append((cut, parts))
        self.stated[side, at] = parts
        for k, part in enumerate(parts):
            self.results[side, at, k] = Shape((*front, part), tail)

    def _cut(self) -> None:
        """A split cuts where the tensor was joined last; where nothing is known of that, anywhere."""
        waiting = self._cuts
        while waiting:
            known = [cut for cut in waiting if isinstance(self.unifier.dim(cut[0]), Sum)]
            for cut, parts in known or waiting[:1]:
                here = self.unifier.dim(cut)
                if isinstance(here, Sum) and len(here.parts) != len(parts):
                    raise Clash(f"a split into {len(parts)} of {len(here.parts)} joined tensors")
                if isinstance(here, Sum):
                    for part, size in zip(here.parts, parts, strict=True):
                        self.unifier.equal(part, size)
                else:
                    self.unifier.equal(here, Sum(parts))
            done = known or waiting[:1]
            waiting = [cut for cut in waiting if cut not in done]
        self._cuts = []


def rank_of_products(rule: ForeignRule) -> int:
    """Arrays of FlexFlow have an axis of copies in front of a product, unless a concatenation says less."""
    operators = (*rule.source, *rule.target)
    ranks = [rank for op in operators if op.kind == "concat" and isinstance(rank := op.get("numdim"), int)]
    distributed = any(op.kind in ("replicate", "reduce") for op in operators)
    return max(ranks) if ranks else 3 if distributed else 2


def convolutions(rule: ForeignRule) -> int:
    return sum(op.kind == "conv2d" for op in (*rule.source, *rule.target))


def is_open(op: Operator) -> bool:
    """Whether the file names neither strides nor padding: FlexFlow takes those of the operator that it finds."""
    return op.kind == "conv2d" and all(op.get(key) is None for key in ("stride_h", "stride_w", "pad"))


def axis_of(op: Operator) -> int:
    axis = op.get("axis")
    if not isinstance(axis, int) or not 0 <= axis < 8:
        raise Clash(f"`{op.kind}` along axis {axis}")
    return axis


def padding(op: Operator) -> str:
    mode = 0 if is_open(op) else op.get("pad")
    if mode not in (0, 1):
        raise Clash(f"`{op.kind}` with the padding mode {mode}")
    return "same" if mode == 0 else "valid"


def strides(op: Operator) -> tuple[int, int]:
    found = [1 if is_open(op) else op.get(key) for key in ("stride_h", "stride_w")]
    first, second = found
    if not isinstance(first, int) or not isinstance(second, int) or min(first, second) < 1:
        raise Clash(f"`{op.kind}` with strides {first}, {second}")
    return first, second


def activation(op: Operator) -> str:
    mode = op.get("acti")
    if mode is None:
        return ""
    if mode not in ACTIVATIONS:
        raise Clash(f"`{op.kind}` with the activation mode {mode}")
    assert isinstance(mode, int)
    return ACTIVATIONS[mode]


def permutation(op: Operator) -> tuple[int, ...]:
    """The order of the axes: a number in base `numdim` (TASO), digits with `_` between (TENSAT), or two axes exchanged."""
    perm, rank = op.get("perm"), op.get("numdim")
    if perm is None:
        return (1, 0)
    if isinstance(perm, str):
        digits = perm.split("_")
        if not all(digit.isdigit() for digit in digits):
            raise Clash(f"a permutation `{perm}`")
        order = [int(digit) for digit in digits]
    else:
        rank = 2 if rank is None else rank
        if not isinstance(rank, int) or not 1 <= rank <= 8 or perm < 0:
            raise Clash(f"a permutation {perm} of {rank} axes")
        order = []
        for _ in range(rank):
            perm, digit = divmod(perm, rank)
            order.insert(0, digit)
        if perm:
            raise Clash(f"a permutation {op.get('perm')} of {rank} axes")
    if sorted(order) != list(range(len(order))):
        raise Clash(f"{order} is no permutation")
    return tuple(order)
