"""Rules that hold only where sizes are equal, or where a kernel has one position: their most general form is wrong."""

from __future__ import annotations

import pytest
from handmade import IMAGE, KERNEL, SMALL, op, taso

from dslc.generate.general.dimensions import NotGeneral
from dslc.generate.general.naming import described, stem
from dslc.generate.general.rules import GeneralRule, definition, generalise, names_in, narrowed, rule_text
from dslc.generate.terms.term import Conjecture, Term, input_term
from dslc.prove.run.verify import verify_rule

X, K, POINT = input_term(0, IMAGE), input_term(1, KERNEL), input_term(2, SMALL)


def strided(x: Term, k: Term, stride: int = 1, padding: str = "same") -> Term:
    return op("conv", x, k, stride=(stride, stride), padding=padding)


def averaged(x: Term) -> Term:
    return op("pool_avg", x, kernel=(3, 3), stride=(1, 1), padding="same")


def text(rule: GeneralRule) -> str:
    return rule_text(taso(), rule, "rule", names_in(rule))


def test_a_kernel_of_one_position_stays_one_where_the_rule_needs_it() -> None:
    rule = narrowed(taso(), Conjecture((strided(averaged(X), POINT),), (averaged(strided(X, POINT)),)))
    assert "B: T[Q, K, 1, 1]" in text(rule)
    # the batch, which has one position in the enumeration as well, is free again
    assert "A: T[M, K, N, P]" in text(rule)
    assert verify_rule(taso(), definition(taso(), rule)).status in {"proved", "bounded"}


def test_strides_are_exchanged_where_nothing_slides() -> None:
    candidate = Conjecture((strided(strided(X, K, 2), POINT),), (strided(strided(X, K), POINT, 2),))
    with pytest.raises(NotGeneral):
        generalise(taso(), candidate)
    rule = narrowed(taso(), candidate)
    assert ", 1, 1]" in text(rule)
    assert stem(rule) == "restate_conv_of_conv"
    assert described(rule) == "`conv` of `conv` is the same with other attributes."


def test_what_differs_at_other_sizes_stays_out() -> None:
    # 5 = 3 + 2: only an input of this size has the same result
    whole = op("pool_max", X, kernel=(3, 3), stride=(2, 2), padding="same")
    with pytest.raises(NotGeneral):
        narrowed(taso(), Conjecture((whole,), (op("pool_max", X, kernel=(3, 3), stride=(1, 1), padding="valid"),)))
