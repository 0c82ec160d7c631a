"""TASO's prunings, each on the paper's figure, and what they must not lose."""

from __future__ import annotations

from functools import partial

from handmade import MATRIX, add, halves, matmul, matrices, op, taso

from benchmarks.table3 import without_common
from dslc.generate.pruning.generality import (
    PrimeValues,
    below_common_roots,
    key,
    most_general,
    reduced,
    without_renamed,
    without_same,
)
from dslc.generate.terms.term import Conjecture, input_term, outputs

A, B, C, D, E = matrices()
BUILD = partial(outputs, taso())


def one(left: object, right: object) -> Conjecture:
    return Conjecture((left,), (right,))  # type: ignore[arg-type]


REASSOCIATE = one(matmul(A, matmul(B, C)), matmul(matmul(A, B), C))


def test_figure_4a_a_renamed_input_is_redundant() -> None:
    redundant = one(matmul(A, matmul(B, A)), matmul(matmul(A, B), A))
    assert without_renamed([redundant, REASSOCIATE]) == [REASSOCIATE]


def test_other_names_and_the_other_direction_are_the_same_substitution() -> None:
    turned = one(matmul(matmul(C, A), B), matmul(C, matmul(A, B)))
    assert len(without_renamed([REASSOCIATE, turned])) == 1
    assert key(turned) == key(REASSOCIATE)


def test_what_holds_for_equal_inputs_only_is_kept() -> None:
    # matmul(A, matmul(A, A)) is an instance of associativity; the order of a product matters otherwise
    square = one(matmul(A, matmul(A, A)), matmul(matmul(A, A), A))
    commute = one(op("ewmul", A, B), op("ewmul", B, A))
    pruned = without_renamed([square, commute, REASSOCIATE])
    assert pruned == [commute, REASSOCIATE] or set(map(str, pruned)) == {str(commute), str(REASSOCIATE)}
    powers = one(matmul(A, matmul(A, B)), matmul(matmul(A, A), B))
    assert without_renamed([powers]) == [powers]
    assert key(most_general(powers, PrimeValues(taso()))) == key(REASSOCIATE)


def test_figure_4b_a_common_subgraph_at_the_inputs_is_redundant() -> None:
    shared = matmul(C, D)
    redundant = one(add(shared, add(A, B)), add(add(shared, A), B))
    assert [key(c) for c in reduced(redundant, PrimeValues(taso()), BUILD)] == [
        key(one(add(C, add(A, B)), add(add(C, A), B)))
    ]


def test_a_common_subgraph_stays_where_the_more_general_rule_is_false() -> None:
    # the first half of what was joined: with another tensor in place of `concat` nothing is left to be cut
    joined = op("concat", A, B, axis=1)
    needed = one(halves(joined, 1)[0], A)
    assert reduced(needed, PrimeValues(taso()), BUILD) == (needed,)
    both = one(add(op("relu", A), op("relu", A)), op("relu", add(op("relu", A), op("relu", A))))
    assert reduced(both, PrimeValues(taso()), BUILD) == (both,)


def test_figure_4c_a_common_subgraph_at_the_outputs_is_redundant() -> None:
    redundant = one(add(matmul(A, B), D), add(matmul(op("transpose", op("transpose", A)), B), D))
    found = reduced(redundant, PrimeValues(taso()), BUILD)
    assert [key(c) for c in found] == [key(one(op("transpose", op("transpose", A)), A))]


def test_results_that_are_the_same_on_both_sides_say_nothing() -> None:
    commute = one(add(A, B), add(B, A))
    for common in (C, op("relu", C), add(A, B)):
        beside = Conjecture((common, *commute.sources), (common, *commute.targets))
        assert [key(c) for c in reduced(beside, PrimeValues(taso()), BUILD)] == [key(commute)]
    nothing = one(add(A, B), add(A, B))
    assert without_same(nothing) == nothing


def test_equal_roots_stay_where_their_arguments_differ() -> None:
    commute = one(add(A, B), add(B, A))
    assert below_common_roots(commute, PrimeValues(taso())) is None


def test_the_more_general_rules_are_kept_once() -> None:
    candidates = [one(add(x, add(A, B)), add(add(x, A), B)) for x in (matmul(C, D), op("relu", C), op("transpose", D))]
    pruned = without_common(candidates, PrimeValues(taso()), BUILD)
    assert len(pruned.kept) == 1
    assert pruned.because[pruned.kept[0]] == candidates


def test_inputs_beyond_those_enumerated_are_told_apart() -> None:
    # found with two inputs, true for three
    candidate = one(add(A, add(B, A)), add(add(A, B), A))
    general = most_general(candidate, PrimeValues(taso()))
    assert key(general) == key(one(add(A, add(B, C)), add(add(A, B), C)))
    assert input_term(2, MATRIX) in set(general.sources[0].args) | set(general.sources[0].args[1].args)
