"""Derivations are judged as substitutions are: by `dslc check`, by `dslc verify` and by tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dslc.checking.rule_tests import run_tests
from dslc.cli.derive import command as derive
from dslc.cli.verify import command as verify
from dslc.derivation.calls import read_call
from dslc.derivation.steps import Steps
from dslc.errors import DslcError
from dslc.ir.graph import ScopeNode, topological
from dslc.prove.derivations import verify_derivation
from dslc.semantics.check import check
from dslc.semantics.elaborate import expand
from dslc.semantics.library import load_many, modules_of
from tests.libraries import libraries

HEAD = "dslc 1\nlibrary own 1.0.0\n\n"
LEFT = "index x: X, y: Y, z: Z\n  term f(x, y, z)\n  expr [x] sum[y, z] f(x, y, z)\n  =>\n  "
RELAXED = (
    "index x: X, y: Y\n  term f(x, y)\n  set V\n  where X <= V, total(f, V)\n"
    "  expr {[x: X] sum[y] f(x, y)}\n  =>\n  expr restrict("
)
MAPPED = "index x: X, y: Y\n  term f(x, y)\n  map phi: X -> W\n  expr [x] sum[y] f(x, y)\n  =>\n  expr [x] "


def written(folder: Path, *rules: str) -> Path:
    file = folder / "own.rules"
    file.write_text(
        HEAD + "\n".join(f'derivation rule{k} {{\n  """One."""\n  {rule}\n}}' for k, rule in enumerate(rules)) + "\n"
    )
    return file


@pytest.mark.parametrize(
    "rule, code",
    [
        (LEFT + "expr [x] sum[y] {[x, y] sum[z] f(x, y, z)}[x, y]", None),
        (LEFT + "expr [x] sum[y] {[x, y] sum[z] f(x, y, z)}[x]", "E0307"),
        (LEFT + "expr [x] sum[y] {[x, y] sum[z] f(x, y, z)}[y, x]", "E0306"),
        (LEFT + "expr [x] sum[y, z] f(x, z, y)", "E0306"),
        (LEFT + "expr [x] sum[y] {[x] sum[z] f(x, y, z)}[x]", "E0201"),
        (LEFT + "expr [x] sum[y, z] {[x, y, z] f(x, y, z)}[x, y, z]", "W0003"),
        (MAPPED + "{[w: W] sum[y] f(phi.inverse(w), y)}[phi(x)]\n  search phi in affine_bijections(X)", None),
        (MAPPED + "{[w: W] sum[y] f(phi.inverse(w), y)}[phi(x)]", "E0323"),
        (MAPPED + "{[w: W] sum[y] f(phi.inverse(w), y)}[phi(x, x)]\n  search phi in affine_bijections(X)", "E0307"),
        (MAPPED + "{[w: W] sum[y] f(phi(w), y)}[phi(x)]\n  search phi in affine_bijections(X)", "E0306"),
        (RELAXED + "{[x: V] sum[y] f(x, y)}, X)\n  search V in rounded_up(X, to=[4])", None),
        (RELAXED + "{[x: V] sum[y] f(x, y)}, X)", "E0323"),
        (RELAXED + "{[x: V] sum[y] f(x, y)}, X)\n  search V in rounded_up(X, up=[4])", "E0302"),
        (RELAXED + "{[x: V] sum[y] f(x, y)}, X)\n  search V in rounded_up(X, to=f)", "E0304"),
        (RELAXED + "{[x: V] sum[y] f(x, y)}, X)\n  search V in rounded_up(X, Y)", "E0301"),
        (RELAXED + "{[x: V] sum[y] f(x, y)}, X)\n  search V in affine_bijections(X)", "E0304"),
        (RELAXED + "{[x: V] sum[y] f(x, y)}, X)\n  search V in divisors(X)", "E0326"),
    ],
)
def test_what_is_used_otherwise_than_declared_or_by_nothing_determined_is_found(
    tmp_path: Path, rule: str, code: str | None
) -> None:
    file = written(tmp_path, rule)
    rules = load_many([file])
    found = {problem.code for problem in check(rules, modules_of(rules, [file]))}
    assert found == ({code} if code else set())


def test_wrong_derivations_are_refuted_by_an_instance_and_right_ones_tested(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        LEFT + "expr [x] sum[y] {[x, y] sum[z] f(x, y, z)}[x, y]",
        LEFT + "expr [x] sum[y] {[x, y] sum[z] f(x, y, z)}[x, y] + 1",
        "index x: X, y: Y\n  term f(x, y)\n  set U\n  expr [x] sum[y] f(x, y)\n  =>\n"
        "  expr [x] sum[y: U] f(x, y)\n  search U in halves(Y)",
    )
    done = CliRunner().invoke(
        verify, [str(file), "--output-format", "json", "--no-lock", "--jobs", "0"], catch_exceptions=False
    )
    facts = json.loads(done.output)
    assert [each["status"] for each in facts["rules"]] == ["tested", "refuted", "refuted"]
    assert [each["code"] for each in facts["findings"]] == ["E0501", "E0501"]


def test_einnet_s_derivations_hold_on_random_expressions() -> None:
    rules = libraries("einnet")
    helpers = list(rules.derivations.values())
    verdicts = {each.name: verify_derivation(rules, each, 1, helpers, most=2) for each in helpers}
    assert {name: verdict.status for name, verdict in verdicts.items()} == dict.fromkeys(rules.derivations, "tested")


def test_a_generator_takes_the_sizes_that_the_rule_names(tmp_path: Path) -> None:
    """`to=[7]`: what is computed is rounded up to a multiple of seven, and to nothing else."""
    file = written(tmp_path, RELAXED + "{[x: V] sum[y] f(x, y)}, X)\n  search V in rounded_up(X, to=[7])")
    rules = load_many(["std", file])
    (value,) = expand(
        rules, (read_call(rules, "conv(X: f32[1, 2, 5, 5], K: f32[3, 2, 3, 3], pads=[1, 1, 1, 1])").value,)
    )
    steps = Steps(list(rules.derivations.values()))
    near = [
        node
        for _, new in steps.near(steps.start(value))
        for node in topological([new.node])
        if isinstance(node, ScopeNode)
    ]
    assert {size for node in near for size in node.scope.extents} == {1, 3, 5, 7}


TESTED = f"""derivation inner {{
  \"\"\"The last of two summations is done first.\"\"\"
  {LEFT}expr [x] sum[y] {{[x, y] sum[z] f(x, y, z)}}[x, y]
}}
test inner {{
  given A: f32[4, 3, 5], B: f32[3, 5]
  derives {{ Y = {{[i: 4] sum[r: 3, s: 5] A[i, r, s] * B[r, s]}} =>
            P = {{[a: 4, b: 3] sum[s: 5] B[b, s] * A[a, b, s]}}  Y = {{[i: 4] sum[r: 3] P[i, r]}} }}
  fires {{ Y = {{[i: 4] sum[r: 3, s: 5] A[i, r, s]}} }}
  silent {{ Y = {{[i: 4] sum[r: 3] A[i, r, 0]}} }}
}}
"""


@pytest.mark.parametrize(
    "old, new, codes",
    [
        ("", "", []),
        ("sum[s: 5] B", "sum[s: 4] B", ["E0505"]),
        ("fires { Y = {[i: 4] sum[r: 3, s: 5] A[i, r, s]", "fires { Y = {[i: 4] sum[r: 3] A[i, r, 1]", ["E0505"]),
        ("A[i, r, 0]} }", "sum[s: 5] A[i, r, s]} }", ["E0506"]),
        ("test inner", "test outer", ["E0214", "E0214", "E0214"]),
    ],
)
def test_tests_say_what_a_derivation_makes(tmp_path: Path, old: str, new: str, codes: list[str]) -> None:
    file = tmp_path / "own.rules"
    file.write_text(HEAD + (TESTED.replace(old, new) if old else TESTED))
    rules = load_many([file])
    outcomes: Any = run_tests(rules, modules=modules_of(rules, [file]))
    assert [problem.code for each in outcomes for problem in each.diagnostics] == codes


@pytest.mark.parametrize(
    "text, code, marked",
    [
        ("conv(X: f33[1, 4, 8, 8], K: f32[4, 4, 3, 3])", "E0305", "f33"),
        ("relu(X: f32[" + ", ".join(["1"] * 500) + "])", "E0911", ""),
    ],
)
def test_a_wrong_call_is_one_error(text: str, code: str, marked: str) -> None:
    with pytest.raises(DslcError) as raised:
        CliRunner().invoke(derive, [text], catch_exceptions=False)
    (problem,) = raised.value.diagnostics
    assert problem.code == code
    assert problem.span is None or problem.span.text == marked


def test_an_operator_that_reads_beside_its_tensor_is_not_derived(tmp_path: Path) -> None:
    file = tmp_path / "own.rules"
    file.write_text(
        HEAD + 'operator beside(X: f32[N, 8]) -> Y: f32[N, 8] {\n  """Too far."""\n  Y[n, i] = X[n, i + 1]\n}\n'
    )
    with pytest.raises(DslcError) as raised:
        CliRunner().invoke(derive, [f"{file}::beside", "--bind", "N=2"], catch_exceptions=False)
    assert [problem.code for problem in raised.value.diagnostics] == ["E0401"]


def test_a_derivation_that_explodes_ends_with_its_budget(tmp_path: Path) -> None:
    file = written(tmp_path, LEFT + "expr [x] sum[y, z] f(x, y, z) + 0 * f(x, y, z)")
    call = "conv(X: f32[1, 3, 5, 5], K: f32[2, 3, 3, 3])"
    arguments = [call, "--rules", str(file), "--rules", "einnet", "--max-states", "40", "--output-format", "json"]
    facts = json.loads(CliRunner().invoke(derive, arguments, catch_exceptions=False).output)
    assert facts["states"] <= 40 and not facts["complete"]
