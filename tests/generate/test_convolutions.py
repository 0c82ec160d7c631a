"""What a generation finds of convolutions: the substitutions of TASO's figures 8b and 8c, and consequences of its Table 2."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from handmade import IMAGE, KERNEL, SMALL, add, halves, op, taso, unattacked
from test_finds_std import reaches
from test_library import has

from dslc.generate.general.rules import definition, names_in, rule_text
from dslc.generate.library import GeneratedLibrary, generate
from dslc.generate.pruning.generality import key
from dslc.generate.settings import GenerationSettings
from dslc.generate.terms.term import Conjecture, Term, input_term, inputs, values
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, input_value
from dslc.match import GraphIndex, apply_match, compile_directions, find_matches
from dslc.semantics.apply import apply
from dslc.semantics.composites import spelled_out

# what figures 8c and 9c merge, and what 8b does: together they take twice as long
MERGED = ("ewadd", "conv", "enlarge", "concat", "split")
POOLED = ("ewadd", "pool_avg", "concat")
AVERAGED = ("conv", "pool_avg", "C_pool")
A, B, K, M, S = (input_term(k, type) for k, type in enumerate((IMAGE, IMAGE, KERNEL, KERNEL, SMALL)))


@pytest.fixture(scope="module")
def library() -> GeneratedLibrary:
    with unattacked():
        return generate(GenerationSettings(operators=MERGED, max_operators=3, proof=False))


@pytest.fixture(scope="module")
def pools() -> GeneratedLibrary:
    with unattacked():
        return generate(GenerationSettings(operators=POOLED, max_operators=3, inputs="count=2", proof=False))


@pytest.fixture(scope="module")
def averages() -> GeneratedLibrary:
    """With proofs."""
    return generate(GenerationSettings(operators=AVERAGED, max_operators=1, provers=0))


def conv(image: Term, kernel: Term) -> Term:
    return op("conv", image, kernel)


def pool(image: Term) -> Term:
    return op("pool_avg", image, kernel=(3, 3))


def averaging() -> Term:
    return op("C_pool", dtype=DType.F32, channels=4, kernel=(3, 3))


def rewritten(libraries: Sequence[GeneratedLibrary], left: Term, right: Term) -> bool:
    """Whether the rules lead from one term to the other in two steps."""
    rules = taso()
    compiled = [
        d for each in libraries for rule in each.found for d in compile_directions(rules, definition(rules, rule))
    ]
    feeds = {term: input_value(f"x{term.index}", term.type.tensor) for term in inputs((left, right))}
    sides = [spelled_out(rules, values(rules, (term,), feeds)) for term in (left, right)]
    return reaches(compiled, *(Graph(tuple(feeds.values()), side) for side in sides))


def test_figure_8b_two_average_pools_and_their_sum_are_one_convolution(
    pools: GeneratedLibrary, averages: GeneratedLibrary
) -> None:
    assert has(averages, conv(A, averaging()), pool(A))
    assert has(pools, add(pool(A), pool(B)), pool(add(A, B)))
    assert rewritten((pools, averages), add(pool(A), pool(B)), conv(add(A, B), averaging()))


def test_figure_8c_a_smaller_kernel_is_enlarged_and_merged(library: GeneratedLibrary) -> None:
    assert has(library, conv(A, op("enlarge", S, size=(3, 3))), conv(A, S))
    merged = conv(A, op("concat", K, M, axis=0))
    assert has(library, (conv(A, K), conv(A, M)), halves(merged, 1))


def test_what_follows_from_table_2_for_convolutions_concatenations_and_pools(
    library: GeneratedLibrary, pools: GeneratedLibrary
) -> None:
    assert has(library, op("concat", conv(A, K), conv(A, M), axis=1), conv(A, op("concat", K, M, axis=0)))
    assert has(library, add(conv(A, K), conv(A, M)), conv(A, add(K, M)))
    assert has(library, add(conv(A, K), conv(B, K)), conv(add(A, B), K))
    assert has(library, add(conv(A, K), conv(B, M)), conv(op("concat", A, B, axis=1), op("concat", K, M, axis=1)))
    assert has(pools, op("concat", pool(A), pool(B), axis=1), pool(op("concat", A, B, axis=1)))


def test_figure_9c_convolutions_are_merged_into_grouped_ones(library: GeneratedLibrary) -> None:
    # the group count needs no attribute of its own here: it follows from the channels, and the rule holds for any
    merged = conv(op("concat", A, B, axis=1), op("concat", K, M, axis=0))
    side_by_side = op("concat", conv(A, K), conv(B, M), axis=1)
    assert has(library, side_by_side, merged)
    (rule,) = [rule for rule in library.found if key(rule.candidate) == key(Conjecture((side_by_side,), (merged,)))]
    assert len(rule.form.grouped) == 4
    assert "(G, K)" in rule_text(library.rules, rule, "merged", names_in(rule))
    # two convolutions of 3 groups each, of different kernels, are one of 6
    rules = library.rules
    x, y = (input_value(name, TensorType(DType.F32, (1, 6, 5, 7))) for name in "xy")
    v, w = (input_value(name, TensorType(DType.F32, (9, 2, 3, 1))) for name in "vw")
    parts = [apply(rules, "taso.conv", pair)[0] for pair in ((x, v), (y, w))]
    graph = Graph((x, y, v, w), spelled_out(rules, apply(rules, "taso.concat", parts, {"axis": 1})))
    found = [
        new
        for way in compile_directions(rules, definition(rules, rule))
        for match in find_matches(way, GraphIndex(graph))
        if (new := apply_match(match, graph)) is not None
    ]
    convs = [[node for node in new.nodes() if getattr(node, "op", "") == "std.conv"] for new in found]
    assert any(len(one) == 1 and one[0].args[1].type.shape == (18, 2, 3, 1) for one in convs)


def test_a_rule_that_no_prover_decides_is_kept_in_a_form_that_one_proves(averages: GeneratedLibrary) -> None:
    (rule,) = [rule for rule in averages.found if has_operators(rule.candidate.sources + rule.candidate.targets)]
    # for kernels of every size the quotient is not decided; for this one it is, for all other attributes
    assert {name for name, _, _ in rule.form.holes} == {"stride", "padding"}
    assert averages.statuses[rule] in {"proved", "bounded"}


def has_operators(roots: tuple[Term, ...]) -> bool:
    return {term.item.short for term in roots if term.item is not None} == {"conv", "pool_avg"}
