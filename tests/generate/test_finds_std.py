"""Which rules of the standard library a generation finds by itself, and which it does not, and why.

Asked are the rules of `std` whose sides consist of operators of matrices that TASO's Table 1 stands for. One is found if rewriting an
instance of its left side with generated rules alone, in at most two steps, gives its right side.
"""

from __future__ import annotations

import numpy as np
import pytest
from handmade import unattacked

from dslc.generate.general.rules import definition
from dslc.generate.library import generate
from dslc.generate.settings import GenerationSettings
from dslc.interpret.instantiate import Rejected, instantiate
from dslc.ir.graph import Call, Graph, topological
from dslc.match import CompiledRule, GraphIndex, apply_match, compile_directions, find_matches
from dslc.semantics.composites import spelled_out
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.library import Rules

OPERATORS = ("ewadd", "transpose", "matmul", "relu", "concat", "split")
BEHIND = {"std.add", "std.transpose", "std.matmul", "std.relu", "std.concat", "std.split"}
#: what is not found, and why
NOT_FOUND = {
    "std.relu_of_relu": "x (x + 1) + 1 stands for relu, as in TASO, and is not idempotent",
    "std.concat_of_split": "a tensor is cut only where it was joined",
    "std.split_of_last_part": "a tensor is cut only where it was joined",
    "std.transpose_through_split": "a tensor is cut only where it was joined",
    "std.merge_three_matmuls": "five operators; the rule for two, used twice, gives nested splits (test_figure_3_...)",
    "std.transpose_of_transpose": "TASO's transpose has no permutation; here the permutations are random",
    "std.transpose_of_nothing": "TASO's transpose has no permutation; here it is the identity",
    "std.matmul_turned": "follows from smaller rules, but only by way of two transposes that no pattern can bring in",
}


@pytest.fixture(scope="module")
def compiled() -> tuple[Rules, list[CompiledRule]]:
    names = tuple(f"taso.{name}" for name in OPERATORS)
    with unattacked():
        library = generate(GenerationSettings(libraries=("taso", "std"), operators=names, max_operators=3, proof=False))
    return library.rules, [
        d for rule in library.found for d in compile_directions(library.rules, definition(library.rules, rule))
    ]


def instance(rules: Rules, sub: SubstitutionDef) -> tuple[Graph, Graph] | None:
    """A random instance of two-dimensional tensors over the operators in question."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        try:
            found = instantiate(rules, sub, rng)
        except Rejected:
            continue
        left, right = (spelled_out(rules, tuple(side.values())) for side in (found.left, found.right))
        nodes = topological(value.node for value in (*left, *right))
        calls = [node for node in nodes if isinstance(node, Call)]
        if not calls or any(call.op not in BEHIND for call in calls):
            return None
        if all(len(value.type.shape) == 2 for node in nodes for value in node.values):
            return Graph(found.inputs, left), Graph(found.inputs, right)
    return None


def reaches(compiled: list[CompiledRule], left: Graph, right: Graph, steps: int = 2) -> bool:
    level, seen = [left], {left.outputs}
    for _ in range(steps):
        following = []
        for graph in level:
            index = GraphIndex(graph)
            for rule in compiled:
                for match in find_matches(rule, index, constants=True):
                    new = apply_match(match, graph)
                    if new is None or new.outputs in seen:
                        continue
                    if new.outputs == right.outputs:
                        return True
                    seen.add(new.outputs)
                    following.append(new)
        level = following[:40]
    return False


def test_rules_of_std_that_a_generation_finds(compiled: tuple[Rules, list[CompiledRule]]) -> None:
    rules, directions = compiled
    found, missing = [], []
    for name, sub in rules.substitutions.items():
        if sub.syntax.partial or not name.startswith("std."):
            continue
        sides = instance(rules, sub)
        if sides is not None:
            (found if reaches(directions, *sides) else missing).append(name)
    assert len(found) >= 8, found
    assert set(missing) - set(NOT_FOUND) == set()
    assert set(NOT_FOUND) - set(missing) == set()
