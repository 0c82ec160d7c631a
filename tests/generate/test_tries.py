"""In which order the forms of rules are proved, and what is foreseen in several processes."""

from __future__ import annotations

import pytest
from handmade import IMAGE, KERNEL, add, matmul, matrices, op, taso

from dslc.generate.enumeration import levels as settle
from dslc.generate.enumeration.levels import Enumerator
from dslc.generate.enumeration.rewrites import KeyIndex
from dslc.generate.general.rules import GeneralRule, Tries, definition, generalise, less_general
from dslc.generate.pruning.derivability import Classes, KnownRules, derivable_pairs
from dslc.generate.terms.inputs import InputSizes, families
from dslc.generate.terms.term import Conjecture, Equation, Term, TermType, input_term
from dslc.ir.dtype import DType
from dslc.prove.run.provers import exact_verdict

A, B, C, _, _ = matrices()
X, Y, K, M = (input_term(k, type) for k, type in enumerate((IMAGE, IMAGE, KERNEL, KERNEL)))


def general(left: Term, right: Term) -> GeneralRule:
    return generalise(taso(), Conjecture((left,), (right,)))


def sums(kernel: Term, other: Term) -> GeneralRule:
    return general(add(op("conv", X, kernel), op("conv", X, other)), op("conv", X, add(kernel, other)))


def test_a_kind_of_rule_that_nobody_decides_is_started_from_a_less_general_form() -> None:
    rules = [sums(K, M), sums(M, K), sums(K, M)]
    assert rules[0].form.grouped and rules[0].form.holes
    tries = Tries()
    now, later = tries.next(rules)
    assert (now, later) == (rules[:2], rules[2:])
    for rule in now:
        tries.undecided(rule)
    assert tries.hopeless(rules[2])
    weaker = tries.weaker(taso(), rules[2])
    assert weaker is not None and not weaker.form.grouped and not tries.hopeless(weaker)
    for _ in range(2):
        tries.undecided(weaker)
    weakest = tries.weaker(taso(), rules[2])
    assert weakest is not None and not weakest.form.holes
    assert less_general(taso(), weakest) is None


def test_what_is_proved_at_once_is_what_would_be_proved_first() -> None:
    rules = [sums(K, M), general(add(A, B), add(B, A)), sums(M, K), sums(K, M)]
    tries = Tries()
    assert [tries.at_once(rule) for rule in rules] == [True, True, True, False]
    assert tries.next(rules)[0] == rules[:3]
    tries.decided(rules[0])
    assert [tries.at_once(rule) for rule in rules] == [True] * 4
    assert tries.next(rules)[0] == rules


def test_a_kind_that_was_decided_once_is_always_tried() -> None:
    rules = [sums(K, M) for _ in range(4)]
    tries = Tries()
    tries.decided(rules[0])
    tries.undecided(rules[1])
    tries.undecided(rules[2])
    assert not tries.hopeless(rules[3])
    assert tries.next(rules) == (rules, [])


def test_several_processes_find_what_one_finds() -> None:
    known = KnownRules(taso(), Classes(taso(), (A, B, C)))
    known.keep(general(op("transpose", op("transpose", A)), A))
    known.keep(general(add(A, B), add(B, A)))
    pairs = [(add(op("transpose", op("transpose", one)), two), add(two, one)) for one in (A, B, C) for two in (A, B, C)]
    pairs += [(op("relu", add(one, two)), add(one, two)) for one in (A, B) for two in (A, C)]
    found = derivable_pairs(known, pairs * 40, 2)
    assert found == {pair: rests for pair in pairs if (rests := known.derivable(*pair)) is not None}
    assert len(found) == 9
    assert derivable_pairs(known, pairs, 2) == {}, "few are not worth processes"


def test_lookups_of_many_keys() -> None:
    import numpy as np

    keys = np.unique(np.random.default_rng(0).integers(0, 1 << 63, 5000, dtype=np.uint64) * np.uint64(2))
    found = KeyIndex.of(keys[::-1], np.arange(len(keys)))
    assert np.array_equal(found.find(keys), np.arange(len(keys))[::-1])
    assert (found.find(keys + np.uint64(1)) == -1).all()
    both = found.plus(keys + np.uint64(1), np.arange(len(keys)) + len(keys))
    assert np.array_equal(both.find(keys + np.uint64(1)), np.arange(len(keys)) + len(keys))
    assert (KeyIndex.of(keys[:0], np.zeros(0, dtype=np.int64)).find(keys) == -1).all()


def test_a_search_from_both_sides_needs_fewer_steps_and_uses_only_rules_that_are_kept() -> None:
    known = KnownRules(taso(), Classes(taso(), (A, B, C)))
    turned = general(op("transpose", op("transpose", A)), A)
    apart = general(op("transpose", add(A, B)), add(op("transpose", A), op("transpose", B)))
    for rule in (turned, apart, general(add(A, B), add(B, A)), general(add(add(A, B), C), add(A, add(B, C)))):
        known.keep(rule)
    left, right = add(op("transpose", add(A, B)), C), op("transpose", add(op("transpose", C), add(B, A)))
    assert known.derivable(left, right) is None
    rests = known.follows(left, right, 8)
    assert rests is not None and {turned, apart} <= rests
    assert known.follows(add(A, B), add(A, C)) is None
    known.drop(turned)
    assert known.follows(left, right) is None


def test_a_prover_out_of_time_gives_up_by_itself() -> None:
    sub = definition(taso(), general(op("transpose", op("transpose", A)), A))
    assert exact_verdict(taso(), sub).answer == "equal"
    late = exact_verdict(taso(), sub, seconds=0.0)
    assert late.answer == "unknown" and late.reason.startswith("the time is up")


def test_sizes_that_only_attributes_say_are_bound_and_are_the_same_everywhere() -> None:
    def largest(term: Term, window: int = 3) -> Term:
        return op("pool_max", term, kernel=(window, window))

    def joined(left: Term, right: Term) -> Term:
        return op("concat", left, right, axis=1)

    known = KnownRules(taso(), Classes(taso(), (X, Y)))
    known.keep(general(largest(joined(X, Y)), joined(largest(X), largest(Y))))
    assert known.derivable(largest(largest(joined(X, X))), joined(largest(largest(X)), largest(largest(X)))) is not None
    assert known.derivable(largest(joined(X, Y), 1), joined(largest(X, 1), largest(Y, 1))) is not None
    assert known.follows(joined(largest(X), largest(Y, 1)), largest(joined(X, Y))) is None


def test_no_identity_is_found_in_a_tensor() -> None:
    factor = input_term(7, TermType(DType.F32, ()))
    unit = op("I_matmul", dtype=DType.F32, size=4)
    known = KnownRules(taso(), Classes(taso(), (A, B, C, factor)))
    whole, moved = op("smul", matmul(A, B), factor), matmul(A, op("smul", B, factor))
    for left, right in (
        (matmul(unit, A), A),
        (matmul(matmul(A, B), C), matmul(A, matmul(B, C))),
        (matmul(op("smul", A, factor), B), moved),
    ):
        known.keep(general(left, right))
        if right is A:
            known.classes.add(Equation(A, left))
    # (factor I) (A B) is both: but nobody who rewrites by these rules comes to think of I
    assert known.follows(whole, moved) is None


def test_connected_terms_are_joined_in_parts_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = taso()
    names = ("ewadd", "matmul", "transpose")
    (family,) = families(rules, [rules.operators[f"taso.{name}"] for name in names], InputSizes(count=2))
    whole = Enumerator(rules, ("taso",), family, 3).run()
    monkeypatch.setattr(settle, "PAIRS", 20)
    parts = Enumerator(rules, ("taso",), family, 3).run()
    assert len(whole) > 40
    assert list(map(str, parts.equations())) == list(map(str, whole.equations()))
