"""Reads are proved in bounds for all sizes, or refuted with a size."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from dslc.analysis import isl
from dslc.analysis.conditions import Case, both, cases
from dslc.analysis.numeric import DataDependent, value
from dslc.analysis.poly import atom
from dslc.analysis.prove import nonnegative
from dslc.analysis.reads import ReadLoop
from dslc.inspection.bounds import BoundsReport, check_operator
from dslc.inspection.lowerings import lowering_bounds
from dslc.ir.scalar import Scalar, apply, iterator, num, sym
from dslc.semantics.library import load


def check(tmp_path: Path, text: str) -> BoundsReport:
    path = tmp_path / "probe.rules"
    path.write_text("dslc 1\n" + text, encoding="utf-8")
    rules = load(path)
    (operator,) = rules.operators.values()
    return check_operator(rules, operator)


PROVED = {
    "reshape: ravel and unravel under equal products": """
operator f(X: T[*S]) -> Y: T[*shape] {
  attr shape: ints
  where prod(S) == prod(shape)
  Y[*i] = X[*unravel(ravel(i, shape), S)]
}""",
    "resize: floor division by a symbolic size": """
operator f(X: T[*S]) -> Y: T[*size] {
  attr size: int[rank(S)]
  where all(S > 0)
  Y[*i] = X[*(i * S // size)]
}""",
    "tile: modulo a symbolic size": """
operator f(X: T[*S]) -> Y: T[*(repeats * S)] {
  attr repeats: int[rank(S)]
  Y[*i] = X[*(i % S)]
}""",
    "a choice guards what it chooses": """
operator f(X: T[P], Z: T[Q]) -> Y: T[P + Q] {
  Y[a] = X[a] if a < P else Z[a - P]
}""",
    "a reduction's where, with a symbolic stride": """
operator f(X: T[D]) -> Y: T[O] {
  attr stride: int
  attr before: int
  attr O: int
  attr kernel: int
  Y[o] = sum[k: kernel where 0 <= o * stride + k - before < D] X[o * stride + k - before]
}""",
    "mirrored without repeating the edge": """
operator f(X: T[S]) -> Y: T[before + S + after] {
  attr before: int
  attr after: int
  where 0 <= before < S, 0 <= after < S
  Y[i] = X[S - 1 - abs(S - 1 - abs(i - before))]
}""",
    "tiles of a symbolic width": """
operator f(X: T[N]) -> Y: T[N] {
  attr m: int
  where m >= 1
  let P[x: ceildiv(N, m), a: m] = X[x * m + a, other=0]
  Y[i] = P[i // m, i % m]
}""",
    "a constant matrix": """
let G() = [[1, 0], [1/2, 1/2], [0, 1]]
operator f(X: T[2]) -> Y: T[3] {
  Y[i] = sum[j: 2] G()[i, j] * X[j]
}""",
    "broadcasting": """
operator f(A: T[*S], B: T[*R]) -> Y: T[*broadcast(S, R)] {
  Y[*i] = A[*fit(i, S)] - B[*fit(i, R)]
}""",
}


@pytest.mark.parametrize("text", PROVED.values(), ids=PROVED)
def test_proved(tmp_path: Path, text: str) -> None:
    report = check(tmp_path, text)
    assert report.status == "proved" and report.proved > 0, report.findings


REFUTED = {
    "no padding": (
        "operator f(X: T[N], K: T[R]) -> Y: T[N] {\n  Y[i] = sum[r] X[i + r] * K[r]\n}",
        "X[i + r]",
        "N=1 R=2: position 1 of an axis of size 1",
    ),
    "the branches exchanged": (
        "operator f(X: T[P], Z: T[Q]) -> Y: T[P + Q] {\n  Y[a] = X[a] if a < Q else Z[a - Q, other=0]\n}",
        "X[a]",
        "P=0 Q=1: position 0 of an axis of size 0",
    ),
    "an unguarded empty tensor": (
        "operator f(X: T[S]) -> Y: T[n] {\n  attr n: int\n  Y[i] = X[i * S // n]\n}",
        "X[i * S // n]",
        "S=0 n=1: position 0 of an axis of size 0",
    ),
    "one row too many": (
        "let G() = [[1, 0], [0, 1]]\noperator f(X: T[2]) -> Y: T[3] {\n  Y[i] = sum[j: 2] G()[i, j] * X[j]\n}",
        "Y",
        "every size: position 2 of an axis of size 2",
    ),
    "a modulus of zero": (
        "operator f(X: T[S]) -> Y: T[n] {\n  attr n: int\n  Y[i] = X[i % S]\n}",
        "X[i % S]",
        "S=0 n=1: a position that divides by zero, of an axis of size 0",
    ),
    "a reshape without its guard": (
        "operator f(X: T[M, N]) -> Y: T[P] {\n  attr P: int\n  Y[i] = X[*unravel(i, [M, N])]\n}",
        "X[*unravel(i, [M, N])]",
        "M=0 N=0 P=1: a position that divides by zero, of an axis of size 0",
    ),
}


@pytest.mark.parametrize(("text", "read", "example"), REFUTED.values(), ids=REFUTED)
def test_refuted_with_a_size(tmp_path: Path, text: str, read: str, example: str) -> None:
    report = check(tmp_path, text)
    assert [(found.read, found.counterexample) for found in report.findings] == [(read, example)]
    (diagnostic,) = report.diagnostics()
    assert diagnostic.code == "E0401" and diagnostic.span is not None


def test_other_says_what_lies_outside(tmp_path: Path) -> None:
    report = check(tmp_path, "operator f(X: T[N], K: T[R]) -> Y: T[N] {\n  Y[i] = sum[r] X[i + r, other=0] * K[r]\n}")
    assert report.status == "proved"


def test_data_dependent_positions_are_assumed(tmp_path: Path) -> None:
    report = check(tmp_path, "operator f(X: T[N], I: int64[M]) -> Y: T[M] {\n  Y[i] = X[I[i]]\n}")
    assert report.status == "proved" and report.assumed == 1 and report.proved == 1


def test_isl_by_names() -> None:
    even = isl.Constraint((("a", 2), ("b", -2)), -1, "==")
    assert isl.is_empty(("a", "b"), (even,))
    assert not isl.is_empty(("a",), (isl.Constraint((("a", 1),), -3),))


@pytest.mark.parametrize(
    ("goal", "holds"),
    [
        ((("N", 2), ("M", -3)), False),
        ((("N", 3), ("M", -3)), True),
    ],
)
def test_facts_are_used(goal: tuple[tuple[str, int], ...], holds: bool) -> None:
    """N >= M gives 3 N >= 3 M, and not 2 N >= 3 M."""
    total = apply("+", *(apply("*", num(factor), sym(name)) for name, factor in goal))
    facts = cases(apply(">=", sym("N"), sym("M")))
    assert all(nonnegative(total, (), case) for case in facts) is holds


def _random_expression(rng: random.Random, depth: int, leaves: list[Scalar]) -> Scalar:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([*leaves, num(rng.randint(0, 3))])
    name = rng.choice(["+", "+", "-", "*", "//", "%", "min", "max", "abs", "select"])
    count = {"abs": 1, "select": 4}.get(name, 2)
    args = [_random_expression(rng, depth - 1, leaves) for _ in range(count)]
    if name == "select":
        return apply("select", apply(rng.choice(["<", "<=", "==", "!="]), *args[:2]), *args[2:])
    return apply(name, *args)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_proved_holds_at_every_small_size(seed: int) -> None:
    """Random goals under random guards: a proof is never wrong at sizes up to 3."""
    rng = random.Random(seed)
    n, m, a = sym("N"), sym("M"), sym("a")
    i, r = iterator("i0"), iterator("r0")
    proved = 0
    for _ in range(100):
        loops = (
            ReadLoop(i, rng.choice([n, m, apply("+", n, m), apply("*", n, m)]), "traversal"),
            ReadLoop(r, rng.choice([n, m, apply("+", i, num(1))]), "sum"),
        )
        guard = apply(
            rng.choice(["<", "<=", "==", "!="]),
            _random_expression(rng, 1, [n, m, a, i, r]),
            _random_expression(rng, 2, [n, m, a, i, r]),
        )
        goal = _random_expression(rng, 3, [n, m, a, i, r])
        facts = both((Case((atom(n), atom(m))),), cases(guard))
        if not all(nonnegative(goal, loops, case) for case in facts):
            continue
        proved += 1
        for sizes in product(range(4), range(4), range(-3, 4)):
            at: dict[Scalar, int] = dict(zip((n, m, a), sizes, strict=True))
            for at_i in range(value(loops[0].extent, at)):
                for at_r in range(value(loops[1].extent, {**at, i: at_i})):
                    point = {**at, i: at_i, r: at_r}
                    with suppress(DataDependent):
                        assert not value(guard, point) or value(goal, point) >= 0, (goal, guard, point)
    assert proved > 20


def test_lowerings_are_read_like_operators(tmp_path: Path) -> None:
    """Those of the targets are in bounds; what a match decides (a coefficient, the range of an index) is no mistake."""
    path = tmp_path / "mine.rules"
    path.write_text(
        """dslc 1
lowering strided(X: T[N], Z: T[M]) on cuda { expr Y[n] = X[n] * Z[n * u] template "a" }
lowering windows(X: T[N], K: T[R]) on cuda { expr Y[o] = sum[r] X[o * u + r] * K[r] template "a" }
lowering guarded(A: T[M, K]) on cuda { expr Y[m] = f(A[m, m]) where K >= M, stride(A, m) == 1 template "a" }
lowering padded(X: T[N]) on cuda { expr Y[i: N] = X[i + 1, other=0] * f(X[N - 1 - i]) template "a" }
lowering diagonal(A: T[M, K]) on cuda { expr Y[m] = f(A[m, m]) where stride(A, m) == 1 template "a" }
""",
        "utf-8",
    )
    rules = load(str(path))
    found = {name.rpartition(".")[2]: lowering_bounds(rules, rule) for name, rule in rules.lowerings.items()}
    assert [finding.code for finding in found.pop("diagonal")] == ["E0401"]
    assert found == {name: [] for name in ("strided", "windows", "guarded", "padded")}
    targets = load("targets")
    assert [one for rule in targets.lowerings.values() for one in lowering_bounds(targets, rule)] == []
