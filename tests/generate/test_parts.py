"""What makes large levels affordable: parts that are settled alone, pairs by shared operators, no constants in large terms."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from handmade import taso

from dslc.generate.enumeration.evaluation import evaluate_chunk
from dslc.generate.enumeration.levels import Enumerator, settled
from dslc.generate.enumeration.mappers import TermsByOperators, sharing
from dslc.generate.terms.inputs import Family, InputSizes, families
from dslc.generate.terms.term import subterms
from dslc.semantics.library import Rules


@pytest.fixture(scope="module")
def rules() -> Rules:
    return taso()


def family(rules: Rules, names: str, count: int) -> Family:
    return families(rules, [rules.operator(f"taso.{name}") for name in names.split()], InputSizes(count=count))[0]


def test_parts_of_a_level_are_settled_alone(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large level is settled part by part, in bounded memory: the result is that of the level as a whole."""
    small = family(rules, "ewadd transpose matmul concat split I_matmul", count=2)
    whole = Enumerator(rules, ("taso",), small, 3).run()
    monkeypatch.setattr("dslc.generate.enumeration.levels.PART", 700)
    sizes: list[int] = []

    def mapper(state: Any, tasks: Iterable[Any], work: Any = evaluate_chunk) -> Iterator[Any]:
        for task in tasks:
            if work is settled:
                sizes.append(len(task.hashes))
                # as on a worker: nothing but what is sent
                yield work(pickle.loads(pickle.dumps(state)), task)
            else:
                yield work(state, task)

    parts = Enumerator(rules, ("taso",), small, 3, mapper=mapper).run()
    assert len(sizes) > 5 and max(sizes) < 1500
    assert [str(e) for e in parts.equations()] == [str(e) for e in whole.equations()]
    counts = [(level.terms, level.classes, level.equations, level.kept) for level in whole.levels]
    assert counts == [(level.terms, level.classes, level.equations, level.kept) for level in parts.levels]


def test_large_terms_have_no_constants(rules: Rules) -> None:
    small = family(rules, "ewadd matmul I_matmul", count=2)
    free = family(rules, "ewadd matmul", count=2)
    two, none = (Enumerator(rules, ("taso",), one, 3, constants=2).run() for one in (small, free))
    assert two.levels[0].terms > none.levels[0].terms and two.levels[1].terms > none.levels[1].terms
    constants = [any(term.is_constant for term in subterms((e.left, e.right))) for e in two.equations()]
    sizes = [e.right.size for e in two.equations()]
    assert any(constant and size == 2 for constant, size in zip(constants, sizes, strict=True))
    assert not any(constant and size == 3 for constant, size in zip(constants, sizes, strict=True))
    assert two.levels[2].terms == none.levels[2].terms


def test_pairs_that_share_operators() -> None:
    """Each pair that has exactly so many operators in common, once; by definition."""
    rng = np.random.default_rng(0)
    for mine, theirs, shared in ((2, 2, 1), (3, 2, 2), (3, 3, 1), (3, 3, 2), (4, 3, 3), (1, 4, 1)):
        rows, ops = (np.full((60, 5), -1, dtype=np.int32) for _ in range(2))
        for size, table in ((mine, rows), (theirs, ops)):
            for k in range(len(table)):
                table[k, :size] = np.sort(rng.choice(7, size, replace=False))
        terms = np.arange(10, 60, dtype=np.int32)
        found = [
            (int(row), int(term))
            for left, right in sharing(rows, TermsByOperators(terms, ops), shared)
            for row, term in zip(left, right, strict=True)
        ]
        own = [set(row[row >= 0].tolist()) for row in rows]
        other = {int(term): set(ops[term][ops[term] >= 0].tolist()) for term in terms}
        assert sorted(found) == [(k, t) for k in range(60) for t in other if len(own[k] & other[t]) == shared]
