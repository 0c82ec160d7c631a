"""Random programs of floats with divisions, roots and logarithms: what is proved equal is undefined for the same elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

import pytest

from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Scope, Value, input_value, scope_value
from dslc.ir.scalar import Scalar, dimension, iterator, num, read
from dslc.ir.scalar import apply as scalar
from dslc.prove.exact import Equal, compare
from dslc.semantics.library import standard

STD = standard()
N, I0 = dimension("n"), iterator("i0")
INPUTS = tuple(input_value(name, TensorType(DType.F32, (N,))) for name in "xyz")
ELEMENTS = (-2.0, -1.0, -0.5, 0.0, 0.25, 1.0, 3.0)


@dataclass(frozen=True)
class Node:
    op: str
    args: tuple[Node, ...] = ()
    number: int = 0

    def __str__(self) -> str:
        if self.op in {"in", "num"}:
            return "xyz"[self.number] if self.op == "in" else str(self.number)
        return f"{self.op}({', '.join(map(str, self.args))})"


X, Y, Z = (Node("in", (), k) for k in range(3))


def of(op: str, *args: Node) -> Node:
    return Node(op, args)


def number(value: int) -> Node:
    return Node("num", (), value)


def negative(a: Node) -> Node:
    return of("*", number(-1), a)


def program(node: Node) -> Value:
    return scope_value(Scope((N,), written(node), DType.F32), INPUTS)


def written(node: Node) -> Scalar:
    if node.op in {"in", "num"}:
        return read(node.number, (I0,)) if node.op == "in" else num(node.number)
    return scalar(node.op, *(written(arg) for arg in node.args))


class Undefined(Exception):
    pass


def value(node: Node, at: tuple[float, ...]) -> float:
    """The value for one element of each input. Raises Undefined where a function has none; of a choice one branch counts."""
    if node.op in {"in", "num"}:
        return at[node.number] if node.op == "in" else float(node.number)
    if node.op == "select" and node.args[1] == node.args[2]:
        return value(node.args[1], at)  # this is how it is written down
    if node.op == "select":
        return value(node.args[1] if value(node.args[0], at) else node.args[2], at)
    args = [value(arg, at) for arg in node.args]
    try:
        found = FUNCTIONS[node.op](*args)
    except (ZeroDivisionError, ValueError, OverflowError) as problem:
        raise Undefined from problem
    if abs(found) > 1e30:
        raise OverflowError
    return found


FUNCTIONS: dict[str, Callable[..., float]] = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "max": max,
    "min": min,
    "abs": abs,
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "tanh": math.tanh,
    "<": lambda a, b: float(a < b),
    "==": lambda a, b: float(a == b),
}


NEGATIVE = of("<", Y, number(0))


def walk(node: Node) -> Iterator[Node]:
    yield node
    for arg in node.args:
        yield from walk(arg)


def replaced(node: Node, old: Node, new: Node) -> Node:
    return new if node == old else Node(node.op, tuple(replaced(arg, old, new) for arg in node.args), node.number)


def drawn(rng: Random, depth: int) -> Node:
    if depth <= 0 or rng.random() < 0.15:
        return rng.choice((X, Y, Z, X, Y, number(rng.choice((0, 1, 2)))))

    def part() -> Node:
        return drawn(rng, depth - 1)

    op = rng.choice(("+", "*", "/", "/", "max", "min", "abs", "exp", "log", "sqrt", "tanh", "select"))
    if op == "select":
        return of(op, of(rng.choice(("<", "==")), drawn(rng, depth - 2), rng.choice((number(0), Y))), part(), part())
    return of(op, *(part() for _ in range(1 if op in {"abs", "exp", "log", "sqrt", "tanh"} else 2)))


def _of_argument(op: str, inner: str, made: Callable[[Node], Node]) -> Callable[[Node], Node | None]:
    return lambda node: made(node.args[0]) if node.op == op and node.args[0].op == inner else None


#: what is done to a part of a program: right, right for some elements only, or wrong
LAWS: tuple[Callable[[Node], Node | None], ...] = (
    lambda node: of(node.op, node.args[1], node.args[0]) if node.op in {"+", "*", "max"} else None,
    lambda node: of("*", node.args[0], of("/", number(1), node.args[1])) if node.op == "/" else None,
    lambda node: node.args[1] if node.op == "/" and node.args[0] == node.args[1] else None,
    lambda node: of("/", of("*", node, Y), Y),
    lambda node: of("+", of("+", node, of("sqrt", Y)), negative(of("sqrt", Y))),
    lambda node: of("*", number(0), node),
    lambda node: of("/", node, of("/", Y, Y)),
    lambda node: of("select", of("==", Y, number(0)), node, of("/", of("*", node, Y), Y)),
    lambda node: of("/", of("*", node, of("exp", Y)), of("exp", Y)),
    lambda node: of("+", of("max", of("+", node, negative(Y)), number(0)), Y) if node.op != "max" else None,
    lambda node: of("+", of("max", *(of("+", arg, Z) for arg in node.args)), negative(Z)) if node.op == "max" else None,
    lambda node: of("+", of("/", node, number(2)), of("/", node, number(2))) if node.op == "/" else None,
    _of_argument("sqrt", "*", lambda inner: of("*", *(of("sqrt", arg) for arg in inner.args))),
    _of_argument("log", "*", lambda inner: of("+", *(of("log", arg) for arg in inner.args))),
    _of_argument("exp", "+", lambda inner: of("*", *(of("exp", arg) for arg in inner.args))),
    _of_argument("exp", "log", lambda inner: inner.args[0]),
    _of_argument("log", "exp", lambda inner: inner.args[0]),
    _of_argument("abs", "*", lambda inner: of("*", *(of("abs", arg) for arg in inner.args))),
    lambda node: of("sqrt", of("*", node.args[0], node.args[0])) if node.op == "abs" else None,
)


def rewritten(node: Node, rng: Random) -> Node:
    places = list(walk(node))
    for place in rng.sample(places, len(places)):
        for law in rng.sample(LAWS, len(LAWS)):
            found = None if place.op in {"<", "=="} else law(place)
            if found is not None:
                return replaced(node, place, found)
    return node


def outcome(node: Node, at: tuple[float, ...]) -> float | None:
    try:
        return value(node, at)
    except Undefined:
        return None


def disagree(left: Node, right: Node) -> tuple[float, ...] | None:
    """Elements at which one of both has no value, or another one; None where none are found."""
    for at in ((a, b, c) for a in ELEMENTS for b in ELEMENTS for c in (-1.5, 0.0, 2.0)):
        try:
            one, other = outcome(left, at), outcome(right, at)
        except OverflowError:
            continue
        if (one is None) != (other is None):
            return at
        if one is not None and other is not None and not math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6):
            return at
    return None


def is_proved(left: Node, right: Node) -> bool:
    return isinstance(compare([program(left)], [program(right)], (), 1.0), Equal)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_proved_is_defined_alike(seed: int) -> None:
    rng = Random(seed)
    shown = 0
    for _ in range(40):
        left = drawn(rng, 3)
        right = rewritten(rewritten(left, rng) if rng.random() < 0.3 else left, rng)
        if left != right and is_proved(left, right):
            shown += 1
            found = disagree(left, right)
            assert found is None, f"{left} and {right} differ at {found}"
    assert shown >= 2, "hardly anything was proved: the test says nothing"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (of("select", of("==", Y, number(0)), X, of("/", X, Y)), of("/", X, Y)),
        (of("select", NEGATIVE, of("log", X), X), of("select", NEGATIVE, of("log", X), of("exp", of("log", X)))),
        (of("/", number(0), of("*", number(0), X)), of("*", number(0), X)),
        (of("*", number(0), of("select", of("<", X, Y), of("/", X, Y), X)), of("*", number(0), X)),
    ],
    ids=[
        "divided only elsewhere",
        "a logarithm under another condition",
        "a quotient by 0",
        "nothing of a quotient under a condition",
    ],
)
def test_conditions_on_data_are_part_of_what_is_asked(left: Node, right: Node) -> None:
    assert disagree(left, right) is not None
    assert not is_proved(left, right)


def test_the_same_conditions_ask_for_the_same() -> None:
    quotient = of("*", of("/", number(1), Y), X)
    assert is_proved(of("select", NEGATIVE, of("/", X, Y), Z), of("select", NEGATIVE, quotient, Z))
