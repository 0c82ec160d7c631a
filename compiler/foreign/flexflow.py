"""FlexFlow's parallel operators on the array that all devices hold together.

PARTITION and COMBINE say where the parts of an array lie: the array stays, they are left out. REPLICATE makes an axis `degree` times as
long, REDUCE sums as many blocks of an axis (FlexFlow's src/parallel_ops/replicate.cc, reduction.cc): these compute, and stay. Two
uses are FlexFlow's own bookkeeping and are left out too: copies along the replica axis that a LINEAR or CONV2D reads (each device
multiplies its own copy), and a REDUCE along the replica axis behind a LINEAR or CONV2D whose inner axis is partitioned (its partial
sums become the product). A REDUCE of what was just REPLICATEd along the same dimension is the sum of equal arrays, and read as that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from dslc.foreign import rule as limits
from dslc.foreign.rule import ForeignRule, Operator, Output, RuleTensor, checked, damaged
from dslc.records import record

# ---- FlexFlow's (Unity's) JSON: TASO's schema with names instead of numbers, and operators that distribute t--------

#: what distributes a tensor
PARALLEL = frozenset({"replicate", "reduce", "partition", "combine", "pipeline", "fused_parallel"})


class _Wrong(Exception):
    """A part of the file that is not of its schema."""


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise _Wrong(f"{_short(value)} stands where a number should")
    if not -(1 << 31) <= value < 1 << 31:
        raise _Wrong(f"{value} does not fit 32 bits")
    return value


def _name(prefix: str | None, value: Any) -> str:
    """`OP_EW_ADD` as `ew_add`; a name of another form stays as it is."""
    if not isinstance(value, str):
        raise _Wrong(f"{_short(value)} stands where a name should")
    rest = value.removeprefix(prefix) if prefix is not None else ""
    return rest.lower() if rest and rest != value and rest.lower().upper() == rest else value


def _parts(kind: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _Wrong(f"{_short(value)} stands where a list should")
    most = limits.MOST_RULES if kind == "Rule" else limits.MOST_OPERATORS
    if len(value) > most:
        raise _Wrong(f"{len(value)} entries are more than the {most} that are read")
    return tuple(_part(kind, each) for each in value)


#: the entries of each object as arguments of what it is read as
_ENTRIES: dict[str, tuple[Callable[..., Any], dict[str, Callable[[Any], Any]]]] = {
    "RuleTensor": (RuleTensor, {"opId": _integer, "tsId": _integer}),
    "Parameter": (lambda key, value: (key, value), {"key": partial(_name, "PM_"), "value": _integer}),
    "Operator": (
        Operator,
        {"type": partial(_name, "OP_"), "input": partial(_parts, "RuleTensor"), "para": partial(_parts, "Parameter")},
    ),
    "MapOutput": (
        lambda *ends: Output(RuleTensor(*ends[:2]), RuleTensor(*ends[2:])),
        dict.fromkeys(("srcOpId", "srcTsId", "dstOpId", "dstTsId"), _integer),
    ),
    "Rule": (
        ForeignRule,
        {
            "name": partial(_name, None),
            **dict.fromkeys(("srcOp", "dstOp"), partial(_parts, "Operator")),
            "mappedOutput": partial(_parts, "MapOutput"),
        },
    ),
    "RuleCollection": (lambda *lists: lists, {"rule": partial(_parts, "Rule")}),
}


def _part(kind: str, value: Any) -> Any:
    make, entries = _ENTRIES[kind]
    if not isinstance(value, dict):
        raise _Wrong(f"{_short(value)} stands where a {kind} should")
    value = {"_t": kind, **({"name": ""} if kind == "Rule" else {}), **value}
    if value.pop("_t") != kind:
        raise _Wrong(f"something else stands where a {kind} should")
    if entries.keys() - value:
        raise _Wrong(f"a {kind} without `{min(entries.keys() - value)}`")
    if value.keys() - entries:
        raise _Wrong(f"a {kind} with the unknown entry `{min(value.keys() - entries)}`")
    return make(*(read(value[key]) for key, read in entries.items()))


def read(data: bytes, path: str = "") -> tuple[ForeignRule, ...]:
    """The rules of a FlexFlow file.

    Raises:
        DslcError: E1001 for text that is no JSON or not of this schema, and beyond the limits.
    """
    if len(data) > limits.MOST_BYTES:
        raise damaged(path, f"{len(data)} bytes are more than the {limits.MOST_BYTES} that are read")
    try:
        return checked(path, *_part("RuleCollection", json.loads(data)))
    except _Wrong as problem:
        raise damaged(path, f"not a file of FlexFlow's rules: {problem}") from None
    except json.JSONDecodeError as problem:
        raise damaged(path, f"not JSON: line {problem.lineno}, column {problem.colno}: {problem.msg}") from None
    except RecursionError:
        raise damaged(path, "not a file of FlexFlow's rules: its lists and objects are nested too deep") from None
    except ValueError as problem:
        raise damaged(path, f"not JSON: {problem}") from None


# ---- FlexFlow's parallel operators on the array that all devices hold together -------------------------------------

#: how parallel dimensions are counted: from the outermost axis, which is the replica axis (the files of FlexFlow's generator), or
#: from the innermost, the replica axis last (as Legion and FlexFlow's runtime do)
AxisOrder = Literal["outer", "inner"]


SUMS: tuple[int, ...] = (2, 3, 4)  #: equal arrays of a sum that is written out
TELLING = 200  #: rules that tell how dimensions are counted

# a sum over the batch of images that have copies: the batch stands for both, and this is no sum of its blocks
_BESIDE_COPIES = "reduce_of_a_batch_with_copies"
_PRODUCTS = frozenset({"linear", "conv2d"})
_OF_IMAGES = frozenset({"conv2d", "pool2d_max", "pool2d_avg"})


def undistributed(rule: ForeignRule, order: AxisOrder = "outer") -> tuple[ForeignRule, int]:
    """The rule on arrays, and how many operators were left out. Outputs that are an input on both sides are left out as well."""
    if not any(kind in PARALLEL for kind in rule.kinds()):
        return rule, 0
    axes = _axes(rule, order)
    source, target = _Side(rule.source, axes), _Side(rule.target, axes)
    outputs = tuple(Output(source.place(each.source), target.place(each.target)) for each in rule.outputs)
    left = sum(op.kind in PARALLEL for op in rule.operators)
    left -= sum(op.kind in PARALLEL for op in (*source.kept, *target.kept))
    outputs = tuple(each for each in outputs if each.source != each.target or each.source.operator >= 0)
    return replace(rule, source=tuple(source.kept), target=tuple(target.kept), outputs=outputs), max(left, 0)


@record
class _Axes:
    """`replica`: the parallel dimension of copies; `rank`: of the arrays, where it has to be known.

    `copies`: whether a rule about images has some.
    """

    order: AxisOrder
    replica: int
    rank: int | None
    copies: bool = False

    def axis(self, dimension: int) -> int:
        """The axis of the array. Images have no axis of copies of their own: they are counted with the batch in front."""
        if self.order == "outer" or self.rank is None:
            return dimension
        return max(0, self.rank - 1 - dimension)

    def inner(self, kind: str) -> int:
        """The parallel dimension along which a product sums."""
        if self.order == "inner":
            return 2 if kind == "conv2d" else 0
        return 1 if kind == "conv2d" else 2


def _axes(rule: ForeignRule, order: AxisOrder) -> _Axes:
    if order == "outer":
        return _Axes(order, 0, None)
    dimensions = [value for op in rule.operators if isinstance(value := op.get("parallel_dim"), int)]
    images = any(kind in _OF_IMAGES for kind in rule.kinds()) or max(dimensions, default=0) >= 3
    return _Axes(order, 4, 4, 4 in dimensions) if images else _Axes(order, 2, 3)


@dataclass
class _Side:
    """One side without what only distributes; equal operators become one."""

    operators: tuple[Operator, ...]
    axes: _Axes
    kept: dict[Operator, int] = field(default_factory=dict)
    _places: dict[tuple[RuleTensor, bool], RuleTensor] = field(default_factory=dict)

    def place(self, tensor: RuleTensor, read: bool = False) -> RuleTensor:
        """The tensor on the new side; `read`: by a product, for whose devices the copies along the replica axis are."""
        if tensor.operator < 0:
            return tensor
        if (tensor, read) not in self._places:
            self._places[tensor, read] = self._place(tensor, read)
        return self._places[tensor, read]

    def _place(self, tensor: RuleTensor, read: bool) -> RuleTensor:
        op = self.operators[tensor.operator]
        if op.kind not in PARALLEL or len(op.inputs) != 1:
            inputs = tuple(self.place(each, op.kind in _PRODUCTS) for each in op.inputs)
            return self._add(replace(op, inputs=inputs), tensor.output)
        (inner,) = op.inputs
        dimension, degree = op.get("parallel_dim"), op.get("parallel_degree")
        copies = dimension == self.axes.replica
        if op.kind == "combine" and copies:
            read = False
        if op.kind == "replicate" and read and copies:
            return self.place(inner, read)
        if op.kind == "reduce" and copies and self._partial(inner):
            return self.place(inner)
        copied = self._copied(op) if op.kind == "reduce" else None
        if copied and isinstance(degree, int) and degree in SUMS:
            return self._sum(self.place(copied), degree)
        if op.kind not in {"replicate", "reduce"}:
            return self.place(inner, read)
        if not isinstance(dimension, int) or not isinstance(degree, int):
            return self._add(replace(op, inputs=(self.place(inner),)))
        if op.kind == "reduce" and self.axes.rank == 4 and dimension == 3 and self.axes.copies:
            return self._add(Operator(_BESIDE_COPIES, (self.place(inner),)))
        parameters = [("axis", self.axes.axis(dimension)), ("degree", degree)]
        if self.axes.rank is not None:
            parameters.append(("numdim", self.axes.rank))
        place = self.place(inner, read and op.kind == "replicate")
        return self._add(Operator(op.kind, (place,), tuple(parameters)))

    def _copied(self, op: Operator) -> RuleTensor | None:
        """The tensor that was replicated along the dimension that is reduced; None where it was not."""
        (tensor,) = op.inputs
        while tensor.operator >= 0:
            inner = self.operators[tensor.operator]
            if inner.kind == "replicate" and len(inner.inputs) == 1 and inner.parameters == op.parameters:
                return inner.inputs[0]
            if inner.kind not in {"partition", "combine"} or len(inner.inputs) != 1:
                return None
            (tensor,) = inner.inputs
        return None

    def _sum(self, tensor: RuleTensor, count: int) -> RuleTensor:
        total = tensor
        for _ in range(count - 1):
            total = self._add(Operator("ew_add", (tensor, total)))
        return total

    def _add(self, op: Operator, output: int = 0) -> RuleTensor:
        return RuleTensor(self.kept.setdefault(op, len(self.kept)), output)

    def _moves(self, tensor: RuleTensor, kinds: set[str]) -> bool:
        op = self.operators[tensor.operator]
        return op.kind in kinds and len(op.inputs) == 1

    def _partial(self, tensor: RuleTensor) -> bool:
        """Return whether these are the partial sums of a product without activation, one for each part of its inner axis."""
        while tensor.operator >= 0 and self._moves(tensor, {"partition", "combine"}):
            (tensor,) = self.operators[tensor.operator].inputs
        op = self.operators[tensor.operator] if tensor.operator >= 0 else None
        if not op or op.kind not in _PRODUCTS or not op.inputs or op.get("acti") not in (None, 0):
            return False
        tensor, wanted = op.inputs[0], self.axes.inner(op.kind)
        while tensor.operator >= 0 and self._moves(tensor, {"partition", "replicate"}):
            inner = self.operators[tensor.operator]
            if inner.kind == "partition" and inner.get("parallel_dim") == wanted:
                return True
            (tensor,) = inner.inputs
        return False


def axis_order(rules: Sequence[ForeignRule]) -> AxisOrder:
    """The order in which a file counts parallel dimensions: as more rules fit that join or multiply copies and sums."""
    from dslc.foreign.shape_inference import Mode, Typing, UnknownOperator
    from dslc.foreign.shapes import Clash

    telling = [
        rule
        for rule in rules
        if {"replicate", "reduce"} & {*rule.kinds()} and {"concat", "split", "linear", "conv2d"} & {*rule.kinds()}
    ]
    counts: dict[AxisOrder, int] = {"outer": 0, "inner": 0}
    for rule in telling[:: max(1, len(telling) // TELLING)]:
        for order in counts:
            try:
                Typing(undistributed(rule, order)[0], Mode())
            except (Clash, UnknownOperator):
                continue
            counts[order] += 1
    return "inner" if counts["inner"] > counts["outer"] else "outer"
