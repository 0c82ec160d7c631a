"""Mistakes in derivations are found where they are: none of these rules would ever do what it seems to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.diagnostics.registry import pages
from dslc.semantics.check import check
from dslc.semantics.library import load_many, modules_of

ONE = "index x: X, y: Y\n  term f(x, y)\n  expr [x] sum[y] f(x, y)\n  =>\n  expr [x] "
TWO = "index x: X, y: Y, z: Z\n  term f(x, y, z)\n  expr [x] sum[y, z] f(x, y, z)\n  =>\n  expr "
LEFT = "index x: X, y: Y\n  term f(x, y)\n  expr {}\n  =>\n  expr [x] sum[y] f(x, y)"
SET = (
    "index x: X, y: Y\n  term f(x, y)\n  set V\n  where {}\n  expr {{[x: X] sum[y] f(x, y)}}\n  =>\n"
    "  expr restrict({{[x: V] sum[y] f(x, y)}}, X)\n  search V in {}"
)
MAP = (
    "index x: X, y: Y\n  term f(x, y)\n  map phi: X -> W\n  expr [x] sum[y] f(x, y)\n  =>\n"
    "  expr [x] {{[w: W] sum[y] f({}(w), y)}}[{}]\n  search phi in {}"
)
PAIR = (
    "index x: X, y: Y\n  tensor A, B\n  term f(x, y, T)\n  {}expr P = [x] sum[y] f(x, y, A)\n  expr Q = [x] sum[y] f(x, y, B)\n"
    "  =>\n  expr {}\n  expr {}\n  expr P = [x] {}\n  expr Q = [x] {}"
)
STACK, BOTH = "S = stack(A, B)", "R = [i: 2, x] sum[y] f(x, y, S[i])"
ROUNDED = "rounded_up(X)"
SPREAD = "affine_bijections(X)"

#: a mistake, the rule, what is said of it, and the text that is marked
MISTAKES = [
    ("an index is missing", ONE + "sum[y] f(x)", "E0301", "f(x)"),
    ("indexes are swapped", ONE + "sum[y] f(y, x)", "E0306", "y"),
    ("an iterator of the scope around", TWO + "[x] sum[y] {[x] sum[z] f(x, y, z)}[x]", "E0201", "y"),
    ("a sum is lost", ONE + "f(x, y)", "E0201", "y"),
    ("an index that nobody declared", ONE + "sum[k] f(x, k)", "E0316", "k"),
    ("an index of the left side that nobody declared", "index x: X\n  term f(x, y)\n  expr [x] sum[y] f(x, y)\n  =>\n"
     "  expr [x] f(x, x)", "E0316", "y"),
    ("one iterator twice", "index x: X\n  term f(x)\n  expr [x, x] f(x)\n  =>\n  expr [x, x] f(x) + 0", "E0309", "x"),
    ("one index twice in a term", "index x: X\n  term f(x, y)\n  expr [x] f(x, x)\n  =>\n  expr [x] f(x, x)", "E0309", "x"),
    ("a result of more indexes", TWO + "[x, y] sum[z] f(x, y, z)", "E0307", "expr [x, y] sum[z] f(x, y, z)"),
    ("a result on another set", "index x: X, y: X, z: Z\n  term f(x, y)\n  expr [x] sum[y] f(x, y)\n  =>\n  expr [z] sum[y] f(y, y)",
     "E0306", "expr [z] sum[y] f(y, y)"),
    ("a result that nothing replaces", "index x: X\n  term f(x)\n  expr [x] f(x)\n  =>\n  expr P = [x] f(x)", "E0313", None),
    ("nothing changes", ONE + "sum[y] f(x, y)", "W0003", None),
    ("more with every step", ONE + "(sum[y] f(x, y)) + 0", "W0003", None),
    ("a scope in itself", TWO + "[x] {[x] sum[y, z] f(x, y, z)}[x]", "W0003", None),
    ("a function on the left", LEFT.format("[x] exp(sum[y] f(x, y))"), "E0326", "exp(sum[y] f(x, y))"),
    ("a choice on the left", LEFT.format("[x] sum[y] (f(x, y) if 1 < 2 else 0)"), "E0326", "f(x, y) if 1 < 2 else 0"),
    ("a condition on the left", LEFT.format("[x where 1 < 2] sum[y] f(x, y)"), "E0326", "1 < 2"),
    ("a condition of a sum on the left", LEFT.format("[x] sum[y where 1 < 2] f(x, y)"), "E0326", "1 < 2"),
    ("a sum below a product", LEFT.format("[x] 2 * (sum[y] f(x, y))"), "E0326", "sum[y] f(x, y)"),
    ("no scope on the left", "index x: X\n  term f(x)\n  expr f(x)\n  =>\n  expr [x] f(x)", "E0326", "f(x)"),
    ("a tensor at a sum of indexes", "index x: X, y: Y\n  tensor A\n  expr [x] sum[y] A[x + y]\n  =>\n  expr [x] sum[y] 1 * A[y + x]",
     "E0326", "A[x + y]"),
    ("three expressions", "index x: X\n  term f(x)\n  expr P = [x] f(x)\n  expr Q = [x] f(x)\n  expr R = [x] f(x)\n  =>\n"
     "  expr P = [x] f(x)", "E0326", "expr R = [x] f(x)"),
    ("a list on the right", ONE + "sum[y] f(x, y) + len([1])", "E0326", "len([1])"),
    ("a term without arguments", ONE + "sum[y] f", "E0326", "f"),
    ("an index as a term", ONE + "sum[y] x(y)", "E0326", "x(y)"),
    ("a map without arguments", MAP.format("phi.inverse", "phi", SPREAD), "E0326", "phi"),
    ("a part that no map has", MAP.format("phi.back", "phi(x)", SPREAD), "E0201", "phi.back(w)"),
    ("a map that is looked for elsewhere", MAP.format("phi.inverse", "phi(x)", "affine_bijections(Y)"), "E0306", "Y"),
    ("no condition", SET.format("X", ROUNDED), "E0315", "X"),
    ("an order that is not known", SET.format("X < V", ROUNDED), "E0315", "X < V"),
    ("a function in a condition", SET.format("round(V)", ROUNDED), "E0315", "round(V)"),
    ("a sum of sets", SET.format("X + 1 <= V", ROUNDED), "E0304", "X + 1"),
    ("a set for a map", SET.format("bijective(V)", ROUNDED), "E0304", "V"),
    ("a set for an index", SET.format("X <= V, reads(f, X)", ROUNDED), "E0304", "X"),
    ("a map's generator for a set", SET.format("X <= V", "nonzero_positions(f, Y)"), "E0304", None),
    ("a term and a set swapped", SET.format("total(V, f)", ROUNDED), "E0304", "V"),
    ("a term that is 1", SET.format("forall x in X - V: f(x, y) == 1", ROUNDED), "E0315", "forall x in X - V: f(x, y) == 1"),
    ("a term on the whole set", SET.format("forall x in V: f(x, y) == 0", ROUNDED), "E0315", "V"),
    ("looked for twice", SET.format("X <= V", ROUNDED + "\n  search V in halves(X)"), "E0309", "search V in halves(X)"),
    ("looked for and known", ONE + "2 * {[x] sum[y] f(x, y)}[x]\n  search Y in halves(X)", "E0309", "search Y in halves(X)"),
    ("rounded to one", SET.format("X <= V", "rounded_up(X, to=[1])"), "E0304", "[1]"),
    ("the shape of an index", PAIR.format("where shape(x) == shape(B)\n  ", STACK, BOTH, "R[0, x]", "R[1, x]"), "E0304", "shape(x)"),
    ("a stack of results", PAIR.format("", "S = stack(P, Q)", "R = [i: 2, x] S[i, x]", "R[0, x]", "R[1, x]"), "E0304", "P"),
    ("what is made later", PAIR.format("", BOTH, STACK, "R[0, x]", "R[1, x]"), "E0201", "S"),
    ("a third of two", PAIR.format("", STACK, BOTH, "R[0, x]", "R[2, x]"), "E0401", "2"),
    ("an index too few", PAIR.format("", STACK, BOTH, "R[x]", "R[1, x]"), "E0307", "R[x]"),
    ("the other's part", "index x: X, y: Y\n  term f(x, y)\n  set U, V\n  where X == hull(U, V)\n  expr P = [x: U] sum[y] f(x, y)\n"
     "  expr Q = [x: V] sum[y] f(x, y)\n  =>\n  expr R = [x: X] sum[y] f(x, y)\n  expr P = restrict(R, V)\n  expr Q = restrict(R, U)",
     "E0306", "expr P = restrict(R, V)"),
    ("an unknown without a use", "index x: X\n  term f(x), g(x)\n  expr [x] f(x)\n  =>\n  expr [x] -{[x] -f(x)}[x]", "W0005", "g(x)"),
    ("one name for two terms", "index x: X\n  term f(x, y), f(x)\n  expr [x] f(x)\n  =>\n  expr [x] -{[x] -f(x)}[x]", "E0213", "f(x)"),
    ("one name for an index and its set", "index x: x\n  term f(x)\n  expr [x] f(x)\n  =>\n  expr [x] -{[x] -f(x)}[x]", "E0213",
     "x: x"),
    ("a division by zero", ONE + "sum[y] f(x, y) / 0", "E0327", "f(x, y) / 0"),
]  # fmt: skip


@pytest.mark.parametrize("rule, code, marked", [each[1:] for each in MISTAKES], ids=[each[0] for each in MISTAKES])
def test_a_mistake_has_a_code_a_place_and_a_hint(tmp_path: Path, rule: str, code: str, marked: str | None) -> None:
    file = tmp_path / "own.rules"
    file.write_text(f'dslc 1\nlibrary own 1.0.0\n\nderivation one {{\n  """One."""\n  {rule}\n}}\n')
    rules = load_many([file])
    problems = check(rules, modules_of(rules, [file]))
    found = {(problem.code, problem.span.text if problem.span else None): problem for problem in problems}
    wanted = [problem for (own, text), problem in found.items() if own == code and marked in {None, text}]
    assert wanted, [*found]
    assert wanted[0].span is not None and code in pages()
    assert wanted[0].hint or code == "E0301"
