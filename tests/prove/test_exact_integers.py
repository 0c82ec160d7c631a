"""Integers are computed modulo 2^bits: what the exact prover calls equal is equal where numbers wrap around, at the ends and between.

Random pairs of small programs over integer types are compared; so that many of them are equal, or look it, the second is mostly the
first one with a law applied somewhere. Some of these laws hold for integers, and some for the numbers of school only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Scope, Value, input_value, scope_value
from dslc.ir.scalar import Scalar, dimension, iterator, num, read
from dslc.ir.scalar import apply as scalar
from dslc.prove.exact import Differs, Equal, compare
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.library import standard

STD = standard()
N, I0 = dimension("n"), iterator("i0")
INTEGERS = (DType.I8, DType.U8, DType.I16, DType.I32, DType.I64)
_SAMPLES = 500
ENDS = {dtype: int(np.iinfo(NUMPY[dtype]).min) for dtype in INTEGERS}
FLOATS = (DType.F16, DType.F32, DType.F64)


@dataclass(frozen=True)
class Node:
    """A function of tensors of one shape; `op` is one of the vocabulary, or `in` and `num` with a number."""

    op: str
    dtype: DType
    args: tuple[Node, ...] = ()
    number: int = 0

    def __str__(self) -> str:
        if self.op in {"in", "num"}:
            return f"{'xyz'[self.number] if self.op == 'in' else self.number}"
        return f"{self.op}:{self.dtype}({', '.join(map(str, self.args))})"


def plus(a: Node, b: Node) -> Node:
    return Node("+", a.dtype, (a, b))


def times(a: Node, b: Node) -> Node:
    return Node("*", a.dtype, (a, b))


def negative(a: Node) -> Node:
    return Node("*", a.dtype, (Node("num", a.dtype, (), -1), a))


def larger(a: Node, b: Node) -> Node:
    return Node("max", a.dtype, (a, b))


def cast(a: Node, to: DType) -> Node:
    return Node("cast", to, (a,))


def number(value: int, like: Node) -> Node:
    return Node("num", like.dtype, (), value)


# ---- as programs of the prover, and in numpy -----------------------------------------------------------------------


def program(node: Node, apart: bool) -> Value:
    """The program; `apart`: every function is an equation of its own, else all are one."""
    if node.op == "in":
        return leaf(node)
    if apart:
        args = tuple(program(arg, True) for arg in node.args if arg.op != "num")
        numbers = iter(range(len(args)))
        parts = [num(arg.number) if arg.op == "num" else read(next(numbers), (I0,)) for arg in node.args]
        return scope_value(Scope((N,), written(node, parts), node.dtype), args)
    leaves: dict[Value, int] = {}

    def body(part: Node) -> Scalar:
        if part.op == "num":
            return num(part.number)
        if part.op == "in":
            return read(leaves.setdefault(leaf(part), len(leaves)), (I0,))
        return written(part, [body(arg) for arg in part.args])

    root = body(node)
    return scope_value(Scope((N,), root, node.dtype), tuple(leaves))


def leaf(node: Node) -> Value:
    return input_value(f"{'xyz'[node.number]}_{node.dtype}", TensorType(node.dtype, (N,)))


def written(node: Node, parts: list[Scalar]) -> Scalar:
    if node.op == "cast":
        return scalar(f"convert:{node.dtype}", parts[0])
    if node.op == ">>":
        return scalar("//", parts[0], scalar("^", num(2), parts[1]))
    if node.op == "<<":
        return scalar("*", parts[0], scalar("^", num(2), parts[1]))
    return scalar("trunc", scalar("/", *parts)) if node.op == "/" else scalar(node.op, *parts)


class Undefined(Exception):
    """A division by 0, or a conversion of a float that is too large."""


def value(node: Node, at: dict[Node, int]) -> Any:
    """The value for one element of each input: integers as they wrap around, floats as numpy rounds them."""
    if node.op in {"in", "num"}:
        return wrap(at[node] if node.op == "in" else node.number, node.dtype)
    args = [value(arg, at) for arg in node.args]
    if node.op == "cast":
        return converted(args[0], node.args[0].dtype, node.dtype)
    if node.op in {"/", ">>"}:
        if node.op == ">>":
            return args[0] >> args[1]
        if args[1] == 0:
            raise Undefined
        quotient = abs(args[0]) // abs(args[1])
        return wrap(quotient if (args[0] < 0) == (args[1] < 0) else -quotient, node.dtype)
    found = {
        "+": lambda: args[0] + args[1],
        "*": lambda: args[0] * args[1],
        "<<": lambda: args[0] << args[1],
        "max": lambda: max(args),
        "min": lambda: min(args),
        "abs": lambda: abs(args[0]),
        "<": lambda: args[0] < args[1],
        "==": lambda: args[0] == args[1],
        "select": lambda: args[1] if args[0] else args[2],
    }[node.op]()
    return found if node.dtype.is_float or node.dtype is DType.BOOL else wrap(found, node.dtype)


def wrap(item: int, dtype: DType) -> int:
    if dtype is DType.BOOL or dtype.is_float:
        return item
    low = int(np.iinfo(NUMPY[dtype]).min)
    return (item - low) % (1 << 8 * dtype.bytes) + low


def converted(item: Any, source: DType, target: DType) -> Any:
    if target.is_float:
        with np.errstate(over="ignore"):
            return float(np.asarray(item, dtype=NUMPY[source]).astype(NUMPY[target]))
    if source.is_float:
        info = np.iinfo(NUMPY[target])
        if not info.min <= item <= info.max:
            raise Undefined
        return int(item)
    return wrap(int(item), target)


def disagree(left: Node, right: Node, rng: Random) -> dict[str, int] | None:
    """Elements at which both differ; None where none are found among extremes, small and random numbers."""
    leaves = sorted({part for root in (left, right) for part in walk(root) if part.op == "in"}, key=str)
    pools = []
    for each in leaves:
        info = np.iinfo(NUMPY[each.dtype])
        low, high = int(info.min), int(info.max)
        fixed = [low, low + 1, high, high - 1, high // 2 + 1, 0, 1, 2, 3, 100]
        pools.append([*fixed, *(rng.randint(low, high) for _ in range(4))])
    every = list(product(*pools)) if len(pools) < 3 else [tuple(map(rng.choice, pools)) for _ in range(_SAMPLES)]
    for items in every:
        at = dict(zip(leaves, items, strict=True))
        try:
            one, other = value(left, at), value(right, at)
        except Undefined:
            continue
        if one != other and (one == one or other == other):
            return {str(each): item for each, item in at.items()}
    return None


def walk(node: Node) -> Iterator[Node]:
    yield node
    for arg in node.args:
        yield from walk(arg)


# ---- random programs, and laws that hold or seem to ----------------------------------------------------------------


def drawn(rng: Random, dtype: DType, depth: int) -> Node:
    """A program with values of a type."""
    if dtype is DType.BOOL:
        of = rng.choice(INTEGERS[:3])
        return Node(rng.choice(("<", "==")), dtype, (drawn(rng, of, depth - 1), drawn(rng, of, depth - 1)))
    if depth <= 0 or rng.random() < 0.15:
        return (
            Node("in", dtype, (), rng.randrange(2))
            if rng.random() < 0.75
            else Node("num", dtype, (), rng.choice((0, 1, 2, 3, 7)))
        )

    def part(of: DType = dtype) -> Node:
        return drawn(rng, of, depth - 1)

    kind = rng.choice(("+", "+", "*", "max", "min", "abs", "/", "cast", "cast", "select", "back", ">>", "<<"))
    if kind == "abs":
        return Node("abs", dtype, (part(),))
    if kind == "cast":
        return cast(part(rng.choice((*INTEGERS, DType.BOOL))), dtype)
    if kind == "back":
        return cast(cast(part(rng.choice(INTEGERS)), rng.choice(FLOATS)), dtype)
    if kind == "select":
        return Node("select", dtype, (part(DType.BOOL), part(), part()))
    if kind in {">>", "<<"}:
        return (
            Node(kind, dtype, (part(), Node("num", dtype, (), rng.randrange(4))))
            if dtype is DType.U8
            else plus(part(), part())
        )
    return Node(kind, dtype, (part(), part()))


def is_bare(node: Node) -> bool:
    """Whether a function is of numbers alone, which have no type within one equation."""
    parts = node.args[1:] if node.op == "select" else node.args
    return node.op not in {"in", "num"} and all(part.op == "num" or is_bare(part) for part in parts)


def _of(op: str, node: Node) -> bool:
    return node.op == op


Law = Callable[[Node], Node | None]


def law(op: str, of: Callable[[Node], Node | None]) -> Law:
    return lambda node: of(node) if node.op == op else None


def _associated(node: Node) -> Node | None:
    left, right = node.args
    return (
        Node(node.op, node.dtype, (left.args[0], Node(node.op, node.dtype, (left.args[1], right))))
        if left.op == node.op
        else None
    )


def _distributed(node: Node) -> Node | None:
    a, b = node.args
    return plus(times(a, b.args[0]), times(a, b.args[1])) if b.op == "+" else None


def _of_parts(node: Node) -> Node | None:
    """A conversion of a sum as the sum of conversions: right only into a type that is not wider."""
    inner = node.args[0]
    if inner.op not in {"+", "*", "max", "abs"} or inner.dtype is DType.BOOL:
        return None
    return Node(inner.op, node.dtype, tuple(cast(arg, node.dtype) for arg in inner.args))


def _shifted(node: Node) -> Node | None:
    """`max(a + c, b)` as `max(a, b - c) + c`."""
    a, b = node.args
    return plus(larger(a.args[0], plus(b, negative(a.args[1]))), a.args[1]) if a.op == "+" else None


def _scaled(node: Node) -> Node | None:
    two = number(2, node)
    return times(two, larger(*node.args)) if node.dtype is not DType.BOOL else None


LAWS: tuple[Law, ...] = (
    law("+", lambda node: plus(node.args[1], node.args[0])),
    law("+", _associated),
    law("*", _associated),
    law("*", _distributed),
    law("max", _associated),
    law("max", lambda node: larger(node.args[1], node.args[0])),
    law("max", _shifted),
    law("cast", _of_parts),
    law("cast", lambda node: cast(node.args[0].args[0], node.dtype) if _of("cast", node.args[0]) else None),
    law(
        "cast",
        lambda node: (
            node.args[0].args[0] if _of("cast", node.args[0]) and node.args[0].args[0].dtype is node.dtype else None
        ),
    ),
    law("cast", lambda node: cast(cast(node.args[0], DType.F32), node.dtype)),
    law("cast", lambda node: cast(cast(node.args[0], DType.I64), node.dtype)),
    law("abs", lambda node: larger(node.args[0], negative(node.args[0]))),
    law("abs", lambda node: node.args[0]),
    law("/", lambda node: times(node.args[0], Node("/", node.dtype, (number(1, node), node.args[1])))),
    law("<", lambda node: Node("<", DType.BOOL, (plus(node.args[0], negative(node.args[1])), number(0, node.args[0])))),
    law("<", lambda node: Node("<", DType.BOOL, (negative(node.args[1]), negative(node.args[0])))),
    law(
        "==", lambda node: Node("==", DType.BOOL, (plus(node.args[0], negative(node.args[1])), number(0, node.args[0])))
    ),
    law("==", lambda node: Node("==", DType.BOOL, tuple(times(number(2, arg), arg) for arg in node.args))),
    law("select", lambda node: Node("select", node.dtype, (node.args[0], node.args[1], node.args[1]))),
    law("<<", lambda node: times(node.args[0], number(1 << node.args[1].number, node))),
    law(">>", lambda node: Node("/", node.dtype, (node.args[0], number(1 << node.args[1].number, node)))),
)


def rewritten(node: Node, rng: Random) -> Node:
    """The program with a law applied at a random place, if one applies."""
    places = list(walk(node))
    for place in rng.sample(places, len(places)):
        for each in rng.sample(LAWS, len(LAWS)):
            found = each(place)
            if found is not None and found.dtype is place.dtype:
                return replaced(node, place, found)
    return node


def replaced(node: Node, old: Node, new: Node) -> Node:
    if node == old:
        return new
    return Node(node.op, node.dtype, tuple(replaced(arg, old, new) for arg in node.args), node.number)


def equal(left: Node, right: Node, apart: bool = True) -> bool:
    return isinstance(compare([program(left, apart)], [program(right, apart)], (), 1.0), Equal)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_proved_is_so_in_numpy(seed: int) -> None:
    rng = Random(seed)
    shown = 0
    for _ in range(16):
        left = drawn(rng, rng.choice((DType.I8, DType.U8, DType.I64, DType.BOOL)), rng.choice((2, 3)))
        if left.op in {"in", "num"}:
            continue
        right = rewritten(rewritten(left, rng) if rng.random() < 0.3 else left, rng)
        if right.op in {"in", "num"} or right == left:
            continue
        whole = any(part.op == "/" or is_bare(part) for root in (left, right) for part in walk(root))
        if equal(left, right, apart=whole or rng.random() < 0.7):
            shown += 1
            found = disagree(left, right, rng)
            assert found is None, f"{left} and {right} differ at {found}"
    assert shown >= 2, "hardly anything was proved: the test says nothing"


# ---- laws of the ring that are proved ----------------------------------------------------------------------------

X8, Y8, Z8 = (Node("in", DType.I8, (), k) for k in range(3))
XU, YU, ZU = (Node("in", DType.U8, (), k) for k in range(3))
X64, Y64, Z64 = (Node("in", DType.I64, (), k) for k in range(3))


@pytest.mark.parametrize(("a", "b", "c"), [(X8, Y8, Z8), (XU, YU, ZU), (X64, Y64, Z64)], ids=["int8", "uint8", "int64"])
def test_laws_of_rings_and_lattices_are_proved(a: Node, b: Node, c: Node) -> None:
    two, three = number(2, a), number(3, a)
    pairs = [
        (times(a, plus(b, c)), plus(times(a, b), times(c, a))),
        (plus(plus(a, b), negative(b)), plus(a, number(0, a))),
        (plus(plus(a, b), c), plus(c, plus(b, a))),
        (times(two, plus(a, a)), plus(a, times(three, a))),
        (larger(larger(a, b), c), larger(c, larger(b, larger(a, a)))),
        (larger(plus(a, b), c), larger(c, plus(b, a))),
        (Node("min", a.dtype, (Node("min", a.dtype, (a, b)), a)), Node("min", a.dtype, (b, a))),
        (larger(Node("min", a.dtype, (a, b)), c), Node("min", a.dtype, (larger(a, c), larger(b, c)))),
        (larger(Node("min", a.dtype, (a, b)), a), plus(a, number(0, a))),
        (Node("select", a.dtype, (Node("<", DType.BOOL, (a, b)), b, a)), larger(a, b)),
        (times(Node("abs", a.dtype, (a,)), Node("abs", a.dtype, (a,))), times(a, a)),
        (larger(a, number(ENDS[a.dtype], a)), plus(a, number(0, a))),
        (Node("<", DType.BOOL, (plus(a, b), c)), Node("<", DType.BOOL, (plus(b, a), c))),
        (Node("==", DType.BOOL, (plus(a, b), c)), Node("==", DType.BOOL, (b, plus(c, negative(a))))),
        (Node("/", a.dtype, (plus(a, b), number(1, a))), plus(b, a)),
        (cast(plus(a, times(b, c)), DType.I8), plus(cast(a, DType.I8), times(cast(c, DType.I8), cast(b, DType.I8)))),
        (cast(cast(a, DType.I64), a.dtype), plus(a, number(0, a))),
    ]
    for left, right in pairs:
        assert equal(left, right), f"{left} == {right}"
        assert disagree(left, right, Random(0)) is None


WRONG = {
    "a sum overflows before it is widened": (
        cast(plus(XU, YU), DType.I32),
        plus(cast(XU, DType.I32), cast(YU, DType.I32)),
    ),
    "the larger of sums that overflow": (larger(plus(XU, YU), XU), plus(larger(YU, number(0, YU)), XU)),
    "twice the larger": (
        larger(times(number(2, X8), X8), times(number(2, X8), Y8)),
        times(number(2, X8), larger(X8, Y8)),
    ),
    "a product before it is a float": (
        cast(times(X8, number(2, X8)), DType.F32),
        times(cast(X8, DType.F32), Node("num", DType.F32, (), 2)),
    ),
    "order by the sign of the difference": (
        Node("<", DType.BOOL, (X64, Y64)),
        Node("<", DType.BOOL, (plus(X64, negative(Y64)), number(0, X64))),
    ),
    "an order that turns around": (
        Node("<", DType.BOOL, (X8, Y8)),
        Node("<", DType.BOOL, (negative(Y8), negative(X8))),
    ),
    "floats that are too short": (
        Node("==", DType.BOOL, (cast(X64, DType.F16), cast(Y64, DType.F16))),
        Node("==", DType.BOOL, (X64, Y64)),
    ),
    "there and back over a float": (cast(cast(X64, DType.F32), DType.I64), plus(X64, number(0, X64))),
    "half of twice": (Node("/", DType.I8, (times(X8, number(2, X8)), number(2, X8))), plus(X8, number(0, X8))),
    "twice the half": (times(Node("/", DType.I8, (X8, number(2, X8))), number(2, X8)), plus(X8, number(0, X8))),
    "the absolute value of a negative": (Node("abs", DType.U8, (negative(XU),)), Node("abs", DType.U8, (XU,))),
    "the sign of an absolute value": (
        Node("<", DType.BOOL, (Node("abs", DType.I8, (X8,)), number(0, X8))),
        Node("<", DType.BOOL, (X8, X8)),
    ),
    "a factor out of a comparison": (
        Node("==", DType.BOOL, (times(X8, number(2, X8)), number(0, X8))),
        Node("==", DType.BOOL, (X8, number(0, X8))),
    ),
    "the larger of negatives": (larger(negative(X8), negative(Y8)), negative(Node("min", DType.I8, (X8, Y8)))),
    "an order of sums": (
        Node("select", DType.I8, (Node("<", DType.BOOL, (X8, Y8)), plus(Y8, Z8), plus(X8, Z8))),
        larger(plus(X8, Z8), plus(Y8, Z8)),
    ),
    "signed and unsigned": (cast(cast(X8, DType.U8), DType.I16), cast(X8, DType.I16)),
}


@pytest.mark.parametrize("name", WRONG)
def test_laws_of_numbers_are_not_laws_of_integers(name: str) -> None:
    left, right = WRONG[name]
    assert disagree(left, right, Random(0)) is not None
    # in one equation a number times a quotient by it is folded before it has a type
    for apart in (True, False) if not any(part.op == "/" for part in walk(left)) else (True,):
        answer = compare([program(left, apart)], [program(right, apart)], (), 1.0)
        assert not isinstance(answer, Equal)


# ---- tensors of integers -----------------------------------------------------------------------------------------


def tensor(name: str, *shape: str, dtype: DType = DType.I8) -> Value:
    return input_value(name, TensorType(dtype, tuple(dimension(size) for size in shape)))


def op(name: str, *args: Any, **attrs: Any) -> Value:
    return apply(STD, f"std.{name}", args, attrs)[0]


def turned(x: Value) -> Value:
    return op("transpose", x, perm=(1, 0))


A, B, C = tensor("A", "m", "k"), tensor("B", "k", "l"), tensor("C", "l", "n")
X, Z = tensor("X", "m", "n"), tensor("Z", "m", "n")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (op("matmul", op("matmul", A, B), C), op("matmul", A, op("matmul", B, C))),
        (turned(op("matmul", A, B)), op("matmul", turned(B), turned(A))),
        (
            op("reduce_sum", op("add", X, Z), axes=(0,)),
            op("add", op("reduce_sum", Z, axes=(0,)), op("reduce_sum", X, axes=(0,))),
        ),
        (op("reduce_max", op("reduce_max", X, axes=(0,)), axes=(1,)), op("reduce_max", X, axes=(0, 1))),
        (op("concat", op("add", X, X), op("add", Z, Z), axis=0), op("mul", op("concat", X, Z, axis=0), 2)),
        (
            op("cast", op("matmul", A, B), to=DType.U8),
            op("matmul", op("cast", A, to=DType.U8), op("cast", B, to=DType.U8)),
        ),
    ],
    ids=["products", "transposed products", "sums", "maxima", "joins", "to a ring of the same size"],
)
def test_rules_of_tensors_hold_for_integers(left: Value, right: Value) -> None:
    assert compare(expand(STD, (left,)), expand(STD, (right,))) == Equal()


def test_a_matrix_product_is_not_widened() -> None:
    wide = op("matmul", op("cast", A, to=DType.I32), op("cast", B, to=DType.I32))
    answer = compare(expand(STD, (op("cast", op("matmul", A, B), to=DType.I32),)), expand(STD, (wide,)))
    assert not isinstance(answer, Equal | Differs)
