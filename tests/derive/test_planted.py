"""Derivations with planted mistakes are refuted by an instance, and what becomes of a rule of one's own is what it says."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from dslc.derivation.calls import read_call
from dslc.derivation.steps import Steps, rewritten
from dslc.interpret.floats import Floats
from dslc.interpret.run import run_scopes
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Scope, Value, input_value, scope_value
from dslc.ir.scalar import Scalar, apply, iterator, num, read, reduce
from dslc.prove.derivations import verify_derivation
from dslc.prove.exact.answers import Differs, Equal
from dslc.prove.exact.compare import compare
from dslc.semantics.definitions import DerivationDef
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules, load_many
from tests.libraries import libraries

ONE = "index x: X, y: Y\n  term f(x, y)\n  expr [x] sum[y] f(x, y)\n  =>\n  expr [x] "
TWO = "index x: X, y: Y\n  term f(x), g(x, y)\n  expr [x] sum[y] f(x) * g(x, y)\n  =>\n  expr [x] "
SUM = "index x: X, y: Y\n  term f(x, y), g(x, y)\n  expr [x] sum[y] (f(x, y) + g(x, y))\n  =>\n  expr [x] "
SPLIT = "index x: X, y: Y, z: Z\n  term f(x, y, z)\n  expr [x] sum[y, z] f(x, y, z)\n  =>\n  expr [x] "
BATCH = "index x: X, u: U, y: Y\n  term f(x, u, y)\n  expr [x, u] sum[y] f(x, u, y)\n  =>\n  expr [x, u] sum[v: U, y] "
WIDER = "index x: X, y: Y\n  term f(x, y)\n  set V\n  {}expr [x] sum[y] f(x, y)\n  =>\n  expr [x] sum[y: V] f(x, y)\n  search V in {}"
PLACES = (
    "index x: X, y: Y\n  term f(x, y)\n  map phi: X -> W\n  expr [x] sum[y] f(x, y)\n  =>\n"
    "  expr [x] {[w: W] sum[y] f(%s, y)}[%s]\n  search phi in affine_bijections(X, factors=[2, 3])"
)
SUMMED = (
    "index x: X, y: Y\n  term f(x, y)\n  map phi: Y -> W\n  expr [x] sum[y] f(x, y)\n  =>\n"
    "  expr [x] %s\n  search phi in affine_bijections(Y, factors=[2, 3])"
)
MERGED = (
    "index x: X, y: Y, z: Z, w: W\n  term f(z, w)\n  map phi: X * Y -> Z\n  where image(phi, X * Y) <= Z\n"
    "  expr [x] sum[y] {[z] sum[w] f(z, w)}[phi(x, y)]\n  =>\n  expr [x] sum[y, w] "
)
FUSED = (
    "index x: X, y: Y, z: Z, w: W\n  term f(x, y), g(z, w, v)\n  map tau: Z * W -> X\n  expr P = [x] sum[y] f(x, y)\n"
    "  expr Q = [z] sum[w] g(z, w, P[tau(z, w)])\n  =>\n  expr Q = [z] sum[w] g(z, w, "
)
STACKED = (
    "index x: X, y: Y\n  tensor A, B\n  term f(x, y, T)\n  where shape(A) == shape(B), dtype(A) == dtype(B)\n"
    "  expr P = [x] sum[y] f(x, y, A)\n  expr Q = [x] sum[y] f(x, y, B)\n  =>\n  expr S = stack(%s)\n"
    "  expr R = [i: 2, x] sum[y] f(x, y, S[i])\n  expr P = [x] R[%s, x]\n  expr Q = [x] R[%s, x]"
)
BESIDE = (
    "index x: X, u: U, v: V, y: Y\n  tensor A, B\n  term f(x, y, t)\n  expr P = [x, u] sum[y] f(x, y, A[u, x, y])\n"
    "  expr Q = [x, v] sum[y] f(x, y, B[v, x, y])\n  =>\n  expr C = [w: U + V, x, y] A[w, x, y] if %s else B[%s, x, y]\n"
    "  expr R = [x, w: U + V] sum[y] f(x, y, C[w, x, y])\n  expr P = [x, u] R[x, u]\n  expr Q = [x, v] R[x, %s]"
)
SQUARES = "\n  ".join(
    ["expr A0 = [x] sum[y] f(x, y)", *(f"expr A{k + 1} = [x] A{k}[x] * A{k}[x]" for k in range(40)), "expr [x] A40[x]"]
)

RIGHT = {
    "a factor outside": TWO + "f(x) * {[x] sum[y] g(x, y)}[x]",
    "sums apart": SUM + "{[x] sum[y] f(x, y)}[x] + {[x] sum[y] g(x, y)}[x]",
    "a diagonal": BATCH + "f(x, v, y) * (1 if u == v else 0)",
    "the same diagonal": BATCH + "f(x, v, y) * (0 if u != v else 1)",
    "a condition on a sum": "index x: X, u: U, y: Y\n  term f(x, u, y)\n  expr [x, u] sum[y] f(x, u, y)\n  =>\n"
    "  expr [x, u] sum[v: U, y where u == v] f(x, v, y)",
    "halves and doubles": ONE + "0.5 * {[x] sum[y] 2 * f(x, y)}[x]",
    "a minus": ONE + "-{[x] sum[y] -f(x, y)}[x]",
    "axes in another order": "index x: X, u: X, y: Y\n  term f(x, u, y)\n  expr [x, u] sum[y] f(x, u, y)\n  =>\n"
    "  expr [x, u] {[u, x] sum[y] f(x, u, y)}[u, x]",
    "other places": PLACES % ("phi.inverse(w)", "phi(x)"),
    # forms that no expression has by chance: the unknowns are drawn
    "a difference": "index x: X\n  term f(x), g(x)\n  expr [x] f(x) - g(x)\n  =>\n  expr [x] {[x] f(x)}[x] - {[x] g(x)}[x]",
    "a quotient": "index x: X, y: Y\n  term f(x, y), g(x)\n  expr [x] sum[y] f(x, y) / g(x)\n  =>\n"
    "  expr [x] {[x] sum[y] f(x, y)}[x] / g(x)",
    "a number": ONE.replace("f(x, y)\n  =>", "2 * f(x, y)\n  =>") + "2 * {[x] sum[y] f(x, y)}[x]",
    "a scope in a product": "index x: X, y: Y, z: Z, w: W\n  term f(x, y), g(z, w)\n  map phi: X * Y -> Z\n"
    "  expr [x] sum[y] f(x, y) * {[z] sum[w] g(z, w)}[phi(x, y)]\n  =>\n  expr [x] sum[y, w] f(x, y) * g(phi(x, y), w)",
    "another expression": "index x: X, y: Y\n  term f(x, y), g(x, y)\n  expr P = [x] sum[y] f(x, y)\n"
    "  expr Q = [x] sum[y] (f(x, y) + g(x, y))\n  =>\n  expr Q = [x] P[x] + {[x] sum[y] g(x, y)}[x]",
}

WRONG = {
    "one more": ONE + "sum[y] f(x, y) + 1",
    "twice": ONE + "2 * (sum[y] f(x, y))",
    "two sums": ONE + "sum[y] f(x, y) + sum[y] f(x, y)",
    "the first only": ONE + "sum[y where y == 0] f(x, y)",
    "not the first": ONE + "sum[y where y != 0] f(x, y)",
    "another reduction": ONE + "max[y] f(x, y)",
    "half of a sum": WIDER.format("", "halves(Y)"),
    "half of a sum with a condition": WIDER.format("where V <= Y\n  ", "halves(Y)"),
    "a dropped guard": WIDER.format("", "rounded_up(Y, to=[2, 3, 4])"),
    "half a guard": WIDER.format("where Y <= V\n  ", "rounded_up(Y, to=[2, 3, 4])"),
    "a sum twice": SPLIT + "sum[y, z] {[x, y] sum[z] f(x, y, z)}[x, y]",
    "a place for an iterator": SPLIT + "{[x, y] sum[z] f(x, y, z)}[x, 0]",
    "what was there already": SPLIT + "sum[y] {[x, y] sum[z] f(x, y, z)}[x, y] + sum[z] f(x, 0, z)",
    "a place farther": PLACES % ("phi.inverse(w)", "phi(x) + 1"),
    "a place nearer": PLACES % ("phi.inverse(w + 1)", "phi(x)"),
    "maps twice": SUMMED % "sum[w: W] f(x, phi.inverse(w)) + sum[w: W] f(x, phi.inverse(w))",
    "a map to one place": SUMMED % "sum[y] f(x, phi.inverse(phi(y)) * 0)",
    "swapped results": STACKED % ("A, B", 1, 0),
    "swapped operands": STACKED % ("B, A", 0, 1),
    "one operand twice": STACKED % ("A, A", 0, 1),
    "one too far": BESIDE % ("w <= U", "w - U", "v + U"),
    "the other place": BESIDE % ("w < U", "w - U", "v"),
    "the other size": BESIDE % ("w < V", "w - V", "v + V"),
    "a factor twice": TWO + "f(x) * {[x] sum[y] f(x) * g(x, y)}[x]",
    "a sum for a product": TWO + "{[x] sum[y] g(x, y)}[x] + f(x)",
    "a product for a sum": SUM + "{[x] sum[y] f(x, y)}[x] * {[x] sum[y] g(x, y)}[x]",
    "the first of a sum": SUM + "{[x] sum[y] f(x, y)}[x] + g(x, 0)",
    "no diagonal": BATCH + "f(x, v, y)",
    "a triangle": BATCH + "f(x, v, y) * (1 if u <= v else 0)",
    "beside the diagonal": BATCH + "f(x, v, y) * (1 if u == v + 1 else 0)",
    "more than a diagonal": BATCH + "f(x, u, y) * (1 if u == v or v == 0 else 0)",
    "one more in what is inlined": FUSED + "{[x] sum[y] f(x, y)}[tau(z, w)] + 1)",
    # of a product of 2 to the 40th factors
    "squares of squares": "index x: X, y: Y\n  term f(x, y)\n  expr [x] sum[y] f(x, y)\n  =>\n  " + SQUARES,
    "axes of one size swapped": "index x: X, u: X, y: Y\n  term f(x, u, y)\n  expr [x, u] sum[y] f(x, u, y)\n  =>\n"
    "  expr [x, u] {[u, x] sum[y] f(x, u, y)}[x, u]",
    "a scope in a product, twice": "index x: X, y: Y, z: Z, w: W\n  term f(x, y), g(z, w)\n  map phi: X * Y -> Z\n"
    "  expr [x] sum[y] f(x, y) * {[z] sum[w] g(z, w)}[phi(x, y)]\n  =>\n  expr [x] sum[y, w] f(x, y) * g(phi(x, y), w) * 2",
    "a quotient turned": "index x: X, y: Y\n  term f(x, y), g(x)\n  expr [x] sum[y] f(x, y) / g(x)\n  =>\n"
    "  expr [x] g(x) / {[x] sum[y] f(x, y)}[x]",
    "what is merged twice": MERGED + "f(phi(x, y), w) * 2",
}


def derivation(folder: Path, text: str) -> DerivationDef:
    file = folder / "own.rules"
    file.write_text(f'dslc 1\nlibrary own 1.0.0\n\nderivation one {{\n  """One."""\n  {text}\n}}\n')
    return load_many([file]).derivations["own.one"]


@pytest.fixture(scope="module")
def rules() -> Rules:
    return libraries("std", "einnet")


@pytest.mark.parametrize("name", WRONG)
def test_a_planted_mistake_is_refuted(rules: Rules, tmp_path: Path, name: str) -> None:
    rule = derivation(tmp_path, WRONG[name])
    assert verify_derivation(rules, rule, helpers=list(rules.derivations.values())).status == "refuted"


@pytest.mark.parametrize("name", RIGHT)
def test_what_holds_is_tested(rules: Rules, tmp_path: Path, name: str) -> None:
    rule = derivation(tmp_path, RIGHT[name])
    assert verify_derivation(rules, rule, helpers=list(rules.derivations.values()), most=6).status == "tested"


def test_terms_that_may_cancel_are_no_difference(rules: Rules) -> None:
    """`sum[r: 2, s: 4] A[r + s]` and its rows, one after the other: they meet places several times, and are equal."""
    a = input_value("A", TensorType(DType.F32, (5,)))
    i, j, r, s = (iterator(name) for name in ("i0", "i1", "r0", "r1"))

    def scope(extents: tuple[int, ...], body: Scalar, *args: Value) -> Value:
        return scope_value(Scope(extents, body, DType.F32), args)

    at_once = scope((1,), reduce("sum", (r, s), (num(2), num(4)), read(0, (apply("+", r, s),))), a)
    rows = scope((1, 2), reduce("sum", (r,), (num(4),), read(0, (apply("+", j, r),))), a)
    one_by_one = scope((1,), reduce("sum", (r,), (num(2),), read(0, (i, r))), rows)
    every = scope((1,), reduce("sum", (r,), (num(5),), read(0, (r,))), a)
    assert not isinstance(compare((at_once,), (one_by_one,), seconds=1.0), Differs)
    assert isinstance(compare((at_once,), (every,), seconds=1.0), Differs)


def convolution(rules: Rules) -> Value:
    """The sum of products of a convolution, its inputs first and second."""
    call = read_call(rules, "conv(X: f32[2, 3, 5, 4], K: f32[4, 3, 2, 3], stride=[2, 1], pads=[1, 1, 0, 1])")
    (value,) = expand(rules, (call.value,))
    return Steps([]).start(value)


def values(value: Value, inputs: list[Value]) -> np.ndarray:
    drawn = np.random.default_rng(3)
    feeds = {each: drawn.integers(-4, 5, each.type.shape).astype(np.float64) for each in inputs}
    (found,) = run_scopes([value], feeds, Floats(rounded=False))
    return np.asarray(found)


def test_vectors_of_iterators_are_equal_where_all_of_them_are(rules: Rules, tmp_path: Path) -> None:
    """`u == v` of a diagonal, where both stand for several iterators."""
    rule = derivation(tmp_path, RIGHT["a diagonal"]).syntax
    start = convolution(rules)
    inputs = [*start.node.args]
    several = 0
    for results in rewritten(rule, rule.left, rule.right, (start,)):
        assert np.array_equal(values(results[start], inputs), values(start, inputs))
        several += str(results[start].node.scope.body).count("==") > 1  # type: ignore[union-attr]
    assert several > 0


@pytest.mark.parametrize("name", ["two sums", "a triangle", "half of a sum", "a place farther"])
def test_what_is_proved_of_a_wrong_rule_is_right(rules: Rules, tmp_path: Path, name: str) -> None:
    """Of what a mistake makes of a convolution much differs, and none of it is proved."""
    start = convolution(rules)
    inputs = [*start.node.args]
    rule = derivation(tmp_path, WRONG[name]).syntax
    wrong = 0
    for results in islice(rewritten(rule, rule.left, rule.right, (start,)), 6):
        new = results[start]
        if not np.array_equal(values(new, inputs), values(start, inputs)):
            wrong += 1
            assert not isinstance(compare((start,), (new,), seconds=2.0), Equal)
    assert wrong > 0
