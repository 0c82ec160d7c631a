"""The axioms prover: TASO's substitutions from TASO's properties, in Z3, with every step checked for types."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from benchmarks.axiom_checks import collapse, redundant, without_positions
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Value, input_value
from dslc.ir.scalar import dimension
from dslc.prove.axioms.prover import AxiomProver, law_theory
from dslc.prove.axioms.solver import Answer, Axiom, Solver, Term
from dslc.prove.field.prover import field_verdict
from dslc.prove.laws import law_substitutions
from dslc.semantics.apply import apply
from dslc.semantics.definitions import PropertyDef
from dslc.semantics.library import Rules, load, load_many

FILE = Path(__file__).parent / "taso_substitutions.rules"
RULES = load(FILE)
NAMES = [name.partition(".")[2] for name in RULES.substitutions if name.startswith("taso_substitutions.")]
RIGHT = [name for name in NAMES if name.startswith("right_")]
WRONG = [name for name in NAMES if name.startswith("wrong_")]


def taso_laws(rules: Rules) -> list[PropertyDef]:
    return [law for name, law in rules.laws.items() if name.startswith("taso.") and law.trait is None]


@pytest.fixture(scope="module")
def prover() -> AxiomProver:
    return AxiomProver(taso_laws(RULES))


# ---- substitutions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RIGHT)
def test_a_true_substitution_is_proved_for_all_sizes_and_strides(prover: AxiomProver, name: str) -> None:
    verdict = prover.verdict(RULES, RULES.substitutions[f"taso_substitutions.{name}"])
    print(f"{name}: {verdict.milliseconds} ms; {verdict.reason}")
    assert verdict.answer == "equal", verdict.reason
    assert not verdict.scope


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_substitution_stays_unknown_and_is_refuted_elsewhere(prover: AxiomProver, name: str) -> None:
    sub = RULES.substitutions[f"taso_substitutions.{name}"]
    assert prover.verdict(RULES, sub).answer == "unknown"
    assert field_verdict(RULES, sub).answer == "differs"


def test_the_cases_cover_the_notes_of_the_paper() -> None:
    assert len(RIGHT) >= 21
    assert len(WRONG) >= 5
    assert {"figure_2a", "figure_2b", "figure_4a", "figure_4b", "figure_4c", "figure_5", "figure_8b"} <= {
        "_".join(name.split("_")[1:3]) for name in RIGHT
    }


def test_what_only_holds_without_shapes_is_found_by_z3_and_dropped() -> None:
    """`concat(1, conv(x, y), conv(x, z)) = conv(x, concat(0, y, z))` wants one group; the untyped logic cannot say so."""
    sub = RULES.substitutions["taso_substitutions.wrong_grouped_kernels_joined"]
    own = AxiomProver(taso_laws(RULES))
    assert own.verdict(RULES, sub).answer == "unknown"
    assert own.mistyped > 0


def test_symbolic_programs_without_a_rule(prover: AxiomProver) -> None:
    """`entails` takes any two programs of one library over common inputs."""
    rows, inner, columns = dimension("M"), dimension("K"), dimension("N")
    a = input_value("A", TensorType(DType.F32, (rows, inner)))
    b = input_value("B", TensorType(DType.F32, (inner, columns)))

    def one(op: str, *args: Value) -> Value:
        return apply(RULES, f"taso.{op}", args)[0]

    left = one("relu", one("transpose", one("matmul", a, b)))
    right = one("transpose", one("relu", one("matmul", a, b)))
    assert prover.entails(RULES, (left,), (right,)) == ("taso.relu_commutes_with_transpose",)
    assert prover.entails(RULES, (left,), (left,)) == ()
    assert isinstance(prover.entails(RULES, (left,), (one("transpose", one("matmul", a, b)),)), str)


# ---- laws of users ------------------------------------------------------------------------------------------------

OWN = """dslc 1
operator twist(X: T[M, N]) -> Y: T[N, M] {
  attr times: int = 1
  where times >= 1
  Y[i, j] = X[j, i] * times
}
operator halve(X: T[M, N]) -> Y: T[N, M] {
  attr times: int = 1
  where times >= 1
  Y[i, j] = X[j, i] / times
}
property halve_undoes_twist(X: T[M, N]) {
  where floating(T)
  holds halve(twist(X, times=k), times=k) == X
}
property only_of_squares(X: T[M, M]) {
  where M >= 3
  holds twist(twist(X, times=1), times=1) == X
}
substitution undone(X: T[M, N]) -> Y {
  Y = twist(halve(twist(X, times=n), times=n), times=n)
  where floating(T)
  =>
  Y = twist(X, times=n)
}
substitution undone_in_integers(X: T[M, N]) -> Y { Y = halve(twist(X, times=n), times=n) where integer(T) => Y = X }
substitution other_number(X: T[M, N]) -> Y { Y = halve(twist(X, times=n), times=k) => Y = X }
substitution guarded(X: T[M, M]) -> Y {
  Y = twist(twist(X))
  where M >= 4
  =>
  Y = X
}
substitution unguarded(X: T[M, M]) -> Y { Y = twist(twist(X)) => Y = X }
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    file = tmp_path_factory.mktemp("own") / "own.rules"
    file.write_text(OWN)
    return load_many([file])


@pytest.mark.parametrize(
    ("name", "answer"), [("undone", "equal"), ("undone_in_integers", "unknown"), ("other_number", "unknown")]
)
def test_any_operator_with_any_attributes(own: Rules, name: str, answer: str) -> None:
    assert AxiomProver().verdict(own, own.substitutions[f"own.{name}"]).answer == answer


@pytest.mark.parametrize(("name", "answer"), [("guarded", "equal"), ("unguarded", "unknown")])
def test_a_guard_is_discharged_from_the_guards_of_the_rule_or_the_law_is_not_used(
    own: Rules, name: str, answer: str
) -> None:
    verdict = AxiomProver([own.laws["own.only_of_squares"]]).verdict(own, own.substitutions[f"own.{name}"])
    assert verdict.answer == answer


# ---- the laws themselves ------------------------------------------------------------------------------------------


def test_all_43_properties_become_axioms() -> None:
    theory = law_theory(RULES, taso_laws(RULES), traits=False)
    assert len(theory.laws) == 43
    assert not theory.skipped


def test_no_property_follows_from_the_others_and_they_force_nothing_together() -> None:
    """As in TASO. That nothing is forced is no proof of consistency: the interpreter is, in which all of them hold."""
    assert list(redundant(AxiomProver(taso_laws(RULES), traits=False), RULES, taso_laws(RULES))) == []
    assert collapse(law_theory(RULES, taso_laws(RULES)), 3000).used is None


def test_a_law_that_follows_is_found(tmp_path: Path) -> None:
    file = tmp_path / "more.rules"
    file.write_text(
        "dslc 1\nimport taso.operators (transpose, ewadd)\nimport taso.properties (ewadd_is_associative)\n"
        "property three(X: T[M, N]) { holds transpose(transpose(transpose(X))) == transpose(X) }\n"
    )
    rules = load_many([file])
    found = list(redundant(AxiomProver(list(rules.laws.values())), rules, [rules.laws["more.three"]]))
    assert found == [("more.three", "by taso.transpose_is_its_own_inverse")]


def _split_of_concats(axioms: Sequence[Axiom], sizes: bool) -> Answer:
    """Whether A = concat(A, B) follows, with the first part of concat(concat(A, B), C) at hand."""
    a, b, c = (((name,),) for name in "ABC")
    axis, anything = (("known", False, 0),), (("anything",),)

    def concat(x: Term, y: Term) -> Term:
        return (("output", "taso.concat", 0), axis, x, y)

    seed: Term = (("output", "taso.split", 0), axis, *((anything,) if sizes else ()), concat(concat(a, b), c))
    return Solver(axioms).ask([(a, concat(a, b))], range(len(axioms)), (), [seed], 3000)


def test_a_split_that_forgets_where_it_cuts_is_inconsistent_with_associativity() -> None:
    """TASO's encoding, with `concat is associative` added, proves A = concat(A, B). Here a split has its sizes."""
    ours = law_theory(RULES, taso_laws(RULES))
    assert "taso.concat.associative" in {law.rule.name for law in ours.laws}
    position = [attr.name for attr in RULES.operator("taso.split").attrs].index("sizes")
    naive = without_positions(ours, "taso.split", position)
    found = _split_of_concats(naive, sizes=False)
    assert found.used is not None
    assert {naive[k].name for k, _ in found.used} == {"taso.concat.associative", "taso.first_part_of_a_concat"}
    assert _split_of_concats(ours.axioms, sizes=True).used is None


def test_a_law_is_not_proved_by_itself(prover: AxiomProver) -> None:
    (law,) = law_substitutions(RULES.laws["taso.matmul_is_associative"])
    assert prover.verdict(RULES, law).answer == "unknown"


# ---- the solver ---------------------------------------------------------------------------------------------------


def test_a_query_that_runs_long_ends_at_its_limit_and_the_next_one_is_answered() -> None:
    """Whether a sum of many terms is the sum of all but one of them, in any order and with any brackets: Z3 tries them all."""

    def f(one: Term, other: Term) -> Term:
        return (("f",), one, other)

    x, y, z = "x", "y", "z"
    left, right = f(f(x, y), z), f(x, f(y, z))
    axioms = (
        Axiom("associative", (x, y, z), (), left, right, (left,)),
        Axiom("associative", (x, y, z), (), right, left, (right,)),
        Axiom("commutative", (x, y), (), f(x, y), f(y, x), (f(x, y),)),
    )
    terms: list[Term] = [((f"c{k}",),) for k in range(14)]
    sums = list(accumulate(terms, f))
    simple = [(f(terms[0], terms[1]), f(terms[1], terms[0]))]
    solver = Solver(axioms)
    assert solver.ask(simple, [2], (), (), 5000).used is not None
    began = time.monotonic()
    assert solver.ask([(sums[-1], sums[-2])], [0, 1, 2], (), (), 1000).used is None
    assert time.monotonic() - began < 30
    assert solver.ask(simple, [2], (), (), 5000).used is not None


def test_hundreds_of_rules_go_through_one_solver(prover: AxiomProver) -> None:
    sub = RULES.substitutions["taso_substitutions.right_transposes_around_a_product"]
    theory, began = prover.theory(RULES), time.monotonic()
    for _ in range(100):
        assert prover.verdict(RULES, sub).answer == "equal"
    assert prover.theory(RULES) is theory
    print(f"{10 * (time.monotonic() - began):.2f} ms a rule")


# ---- terms --------------------------------------------------------------------------------------------------------

TERMS = (
    ("X", "add(X, Z)", "add(Z, X)", "equal"),
    ("X, Z", "X, add(X, Z)", "X, add(Z, X)", "equal"),
    ("X, Z", "X, Z", "Z, X", "unknown"),
    ("X", "add(X, Z)", "add(X, X)", "unknown"),
)


def test_a_term_is_an_operator_of_which_no_law_says_anything(tmp_path: Path) -> None:
    """One solver sees terms of one name with one operand and with two."""
    file = tmp_path / "terms.rules"
    body = "term f({one})\n  where pointwise(f)\n  Y = f({left})\n  =>\n  Y = f({right})"
    rule = "substitution s{k}(X: T[M, N], Z: T[M, N]) -> Y {{\n  " + body + "\n}}"
    written = [rule.format(k=k, one=one, left=left, right=right) for k, (one, left, right, _) in enumerate(TERMS)]
    file.write_text("\n".join(["dslc 1", "import std.pointwise (add)", *written, ""]), encoding="utf-8")
    rules = load(file)
    for k, (*_, answer) in enumerate(TERMS):
        verdict = AxiomProver().verdict(rules, rules.substitutions[f"terms.s{k}"])
        assert (verdict.answer, verdict.scope) == (answer, ""), verdict.reason
        assert verdict.reason.startswith(
            "by std.add.commutative" if answer == "equal" else "no proof from the laws is found"
        )
