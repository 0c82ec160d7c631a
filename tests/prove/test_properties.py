"""TASO's properties: each proved for all sizes, and shown on every small shape; the paper's wrong example is rejected."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from benchmarks.polynomials import Polynomials
from benchmarks.small_shapes import SmallShapes, check
from dslc.prove.field.prover import field_verdict
from dslc.prove.laws import law_substitutions
from dslc.prove.run.provers import exact_verdict
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.library import Rules, load, load_many

RULES = load("taso")
LAWS = {
    sub.name.partition(".")[2]: sub
    for name, law in RULES.laws.items()
    if name.startswith("taso.") and law.trait is None
    for sub in law_substitutions(law)
}
# shapes on which a law is shown here, or all that there are; `python -m benchmarks.properties` takes all of them
ENOUGH = 6


def test_there_are_43() -> None:
    assert len(LAWS) == 43


@pytest.mark.parametrize("name", [name for name in LAWS if "conv" not in name and "pool" not in name])
def test_a_property_is_proved_for_all_sizes(name: str) -> None:
    assert exact_verdict(RULES, LAWS[name]).answer == "equal"


@pytest.mark.parametrize("name", ["conv_with_the_identity_kernel"])
def test_a_property_of_convolutions_is_proved_for_all_sizes(name: str) -> None:
    assert exact_verdict(RULES, LAWS[name]).answer == "equal"


@pytest.mark.parametrize("name", LAWS)
def test_a_property_is_an_identity_of_polynomials_on_small_shapes(name: str) -> None:
    tally = check(RULES, LAWS[name], 2, "polynomials", enough=ENOUGH)
    assert not tally.wrong
    assert tally.shown == ENOUGH or (tally.shown > 0 and tally.tried == tally.choices)
    assert tally.tried == tally.shown + tally.excluded


@pytest.mark.parametrize("name", LAWS)
def test_a_property_holds_modulo_a_prime_on_larger_shapes(name: str) -> None:
    tally = check(RULES, LAWS[name], 3, "field", enough=ENOUGH, seed=1)
    assert not tally.wrong
    assert tally.shown == ENOUGH or (tally.shown > 0 and tally.tried == tally.choices)
    assert tally.tried == tally.shown + tally.excluded
    assert tally.error_bound < 1e-5


# ---- what is wrong ------------------------------------------------------------------------------------------------

WRONG = """dslc 1
import taso.operators (conv, ewadd, enlarge, concat, smul, transpose, matmul, pool_avg)
property conv_is_linear_whatever_its_activation(X: T[N, (G, C), H, W], Y: T[N, (G, C), H, W], Z: T[(G, F), C, R, S]) {
  holds conv(ewadd(X, Y), Z, activation=c) == ewadd(conv(X, Z, activation=c), conv(Y, Z, activation=c))
}
property enlarged_whatever_the_padding(X: T[N, C, H, W], Y: T[F, C, R, S]) {
  holds conv(X, Y, stride=s, padding="valid")
          == conv(X, enlarge(Y, size=[R, S]), stride=s, padding="same")
}
property transpose_keeps_the_order(X: T[M, M], Y: T[M, M]) {
  holds transpose(matmul(X, Y)) == matmul(transpose(X), transpose(Y))
}
"""


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    file = tmp_path_factory.mktemp("wrong") / "wrong.rules"
    file.write_text(WRONG)
    return load_many([file])


def equation(rules: Rules, name: str) -> SubstitutionDef:
    (found,) = law_substitutions(rules.laws[f"wrong.{name}"])
    return found


def test_the_papers_wrong_example_conv_with_relu_called_linear_is_rejected(wrong: Rules) -> None:
    """TASO, section 3: "the (wrong) property stating the convolution operator is linear for all activation modes"."""
    sub = equation(wrong, "conv_is_linear_whatever_its_activation")
    field = field_verdict(wrong, sub)
    assert field.answer == "differs"
    assert field.counterexample is not None
    assert "relu" in str(field.counterexample.drawn)
    polynomials = check(wrong, sub, 2, "polynomials")
    assert "c = relu" in polynomials.wrong
    # to the exact prover relu is an unknown function: what differs then is not proved, but not refuted either
    assert exact_verdict(wrong, sub).answer != "equal"


@pytest.mark.parametrize("name", ["enlarged_whatever_the_padding", "transpose_keeps_the_order"])
def test_other_wrong_properties_are_rejected(wrong: Rules, name: str) -> None:
    sub = equation(wrong, name)
    assert check(wrong, sub, 3, "polynomials").wrong
    assert check(wrong, sub, 3, "field", enough=1000).wrong
    assert exact_verdict(wrong, sub).answer != "equal"


# ---- the parts ----------------------------------------------------------------------------------------------------


def test_every_shape_is_a_choice_once() -> None:
    shapes = SmallShapes(RULES, LAWS["product_of_concats"], 2)
    found = {tuple(shapes.choice(k)[name] for name in "MKNL") for k in range(len(shapes))}
    assert len(found) == len(shapes) == 2**4


def test_packs_have_every_shape_up_to_rank_four() -> None:
    assert len(SmallShapes(RULES, LAWS["ewadd_is_commutative"], 2)) == sum(2**rank for rank in range(5))


def test_polynomials_are_a_ring_and_maxima_are_of_sets() -> None:
    domain = Polynomials()
    x, y, z = (domain.symbols(name, (2,)) for name in "xyz")

    def same(a: object, b: object) -> bool:
        return bool(np.all(domain.close(a, b, 0.0)))  # type: ignore[arg-type]

    add, mul = (partial(domain.arithmetic, name) for name in "+*")
    assert same(mul(add(x, y), z), add(mul(z, y), mul(z, x)))
    assert not same(mul(x, x), x)
    assert same(add(x, mul(domain.number(-1), x)), domain.number(0))
    maximum = domain.function("max", domain.function("max", x, y), domain.number(0))
    assert same(maximum, domain.function("max", domain.number(0), domain.function("max", y, x), x))
    assert not same(maximum, domain.function("max", x, y))
    assert same(domain.arithmetic("/", add(x, x), domain.number(2)), x)
