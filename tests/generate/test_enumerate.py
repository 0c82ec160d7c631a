"""The enumeration: its counts against brute force, split trees, equations, user operators, determinism, resuming."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from benchmarks.counted_graphs import all_terms, count_graphs, second_hash
from dslc.generate.enumeration.checkpoints import Blocks, digest
from dslc.generate.enumeration.evaluation import EnumerationState, TupleChunk, evaluate_chunk
from dslc.generate.enumeration.fingerprint import first_hash
from dslc.generate.enumeration.levels import Enumeration, Enumerator
from dslc.generate.enumeration.mappers import forked, serial
from dslc.generate.terms.inputs import Family, InputSizes, MenuValues, families, items
from dslc.generate.terms.term import (
    Item,
    Term,
    TermType,
    applications,
    in_order,
    input_term,
    inputs,
    meet,
    outputs,
    subterms,
    values,
)
from dslc.interpret.domain import Array
from dslc.interpret.field import Field, P
from dslc.interpret.run import run
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import input_value
from dslc.semantics.library import Rules, load_many
from tests.libraries import libraries

F32 = DType.F32
NAMES = "transpose matmul concat split"


@pytest.fixture(scope="module")
def rules() -> Rules:
    return libraries("taso")


def family(rules: Rules, names: str, count: int = 2, library: str = "taso") -> Family:
    return families(rules, [rules.operator(f"{library}.{name}") for name in names.split()], InputSizes(count=count))[0]


def enumerated(rules: Rules, names: str, operators: int, count: int = 2, seed: int = 0) -> Enumeration:
    return Enumerator(rules, ("taso",), family(rules, names, count), operators, seed).run()


@pytest.fixture(scope="module")
def whole(rules: Rules) -> Enumeration:
    """What other ways to enumerate are compared with."""
    return enumerated(rules, NAMES, 3)


def shown(found: Enumeration) -> set[str]:
    return {str(equation) for equation in found.equations()}


def tensor(*dims: object) -> TermType:
    return TermType(F32, dims)  # type: ignore[arg-type]


# ---- terms and split trees --------------------------------------------------------------------------------------


def test_split_trees_of_figure_3(rules: Rules) -> None:
    """Products that share an operand, merged: each split cuts where the tensors were joined, whatever was done between."""
    a, b, c = (input_term(k, tensor(2 + k if k == 2 else 4, 4)) for k in range(3))
    join, cut = Item("taso.concat", (("axis", 0),)), Item("taso.split", (("axis", 0),), "sizes", 0)
    (both,) = outputs(rules, join, (b, c))
    assert both.type.dims == ((4, 4), 4)
    (wide,) = outputs(rules, Item("taso.matmul"), (both, a))
    assert wide.type.dims == ((4, 4), 4)
    left, right = outputs(rules, cut, (wide,))
    assert left.type.dims == right.type.dims == (4, 4)
    assert len(applications((left, right))) == 3, "two parts of one tensor are one operator"


def test_nested_trees_cut_the_last_join_first(rules: Rules) -> None:
    x = [input_term(k, tensor(k + 1, 4)) for k in range(3)]
    join, cut = Item("taso.concat", (("axis", 0),)), Item("taso.split", (("axis", 0),), "sizes", 0)
    (two,) = outputs(rules, join, (x[0], x[1]))
    (three,) = outputs(rules, join, (two, x[2]))
    assert three.type.dims[0] == ((1, 2), 3)
    first, rest = outputs(rules, cut, (three,))
    assert (first.type.dims[0], rest.type.dims[0]) == ((1, 2), 3)
    assert [part.type.dims[0] for part in outputs(rules, cut, (first,))] == [1, 2]


def test_trees_go_through_operators_as_sizes_do(rules: Rules) -> None:
    x, k = input_term(0, tensor((1, 1), 4, 5, 5)), input_term(1, tensor((4, 4), 4, 3, 3))
    (y,) = outputs(rules, Item("taso.conv"), (x, k))
    assert y.type.dims == ((1, 1), (4, 4), 5, 5)
    (strided,) = outputs(rules, Item("taso.conv", (("stride", (2, 2)),)), (x, k))
    assert strided.type.dims == ((1, 1), (4, 4), 3, 3)
    (turned,) = outputs(rules, Item("taso.transpose"), (input_term(0, tensor((4, 4), 4)),))
    assert turned.type.dims == (4, (4, 4))
    # sums of tensors that were joined at different places can be cut at neither
    assert meet((4, (2, 2)), (4, 4)) == (4, 4) and meet((4, (2, 2)), ((4, 2), 2)) == 8


def test_terms_are_hash_consed_and_renamed(rules: Rules) -> None:
    x, y = input_term(0, tensor(4, 4)), input_term(1, tensor(4, 4))
    add = Item("taso.ewadd")
    (one,), (other,) = outputs(rules, add, (x, y)), outputs(rules, add, (y, x))
    assert one is not other and outputs(rules, add, (x, y))[0] is one
    assert in_order((other,)) == (one,)
    assert pickle.loads(pickle.dumps(one)) is one


# ---- menus and inputs -------------------------------------------------------------------------------------------


def test_menu_follows_from_declarations(rules: Rules) -> None:
    play = MenuValues(((4, 4), (1, 4, 5, 5)), (3, 1))
    conv = items(rules, rules.operator("taso.conv"), play)
    assert {(dict(i.attrs)["padding"], dict(i.attrs)["activation"], dict(i.attrs)["stride"]) for i in conv} == set(
        product(("same", "valid"), ("none", "relu"), ((1, 1), (2, 2)))
    )
    assert {dict(i.attrs)["axis"] for i in items(rules, rules.operator("taso.concat"), play)} == {0, 1, 2, 3}
    (cut, *_) = items(rules, rules.operator("taso.split"), play)
    assert cut.cut == "sizes" and "sizes" not in dict(cut.attrs)
    ones = items(rules, rules.operator("taso.I_ewmul"), play)
    assert {dict(i.attrs)["shape"] for i in ones} == {(4, 4), (1, 4, 5, 5)} and ones[0].sized == ("shape",)


def test_inputs_follow_from_declarations(rules: Rules) -> None:
    names = "ewadd ewmul smul transpose matmul conv enlarge relu pool_avg pool_max concat split C_pool I_conv I_matmul I_ewmul"
    matrix, image = families(rules, [rules.operator(f"taso.{name}") for name in names.split()], InputSizes())
    assert [type.shape for type in matrix.inputs] == [(4, 4)] * 3 + [()]
    assert [type.shape for type in image.inputs] == [(1, 4, 5, 5)] * 2 + [(4, 4, 3, 3)] * 2 + [(4, 4, 1, 1), ()]
    assert {item.short for item in matrix.items} == set("ewadd ewmul smul transpose matmul relu concat split".split())
    assert {item.short for item, _ in image.constants} == {"C_pool", "I_conv", "I_ewmul"}


# ---- counts against brute force -----------------------------------------------------------------------------------


def brute(rules: Rules, found: Family, operators: int) -> list[Term]:
    """Every term of up to so many operators, by definition: all applications to all terms, then those that are small enough."""
    leaves = [input_term(k, type) for k, type in enumerate(found.inputs)]
    leaves += [outputs(rules, item, ())[0] for item, _ in found.constants]
    terms = dict.fromkeys(leaves)
    for _ in range(operators):
        for item in found.items:
            params = rules.operators[item.op].syntax.params
            small = [term for term in terms if term.size < operators]
            for args in product(small, repeat=len(params)):
                if len(applications(args)) < operators:
                    try:
                        made = outputs(rules, item, args)
                    except Exception:
                        continue
                    terms.update(dict.fromkeys(term for term in made if term.size <= operators))
    return list(terms)


@pytest.mark.parametrize("names", ["ewadd concat split", "matmul transpose smul"])
def test_all_terms_of_two_operators(rules: Rules, names: str) -> None:
    small = family(rules, names)
    expected = brute(rules, small, 2)
    table, hashes, _ = all_terms(rules, ("taso",), small, 2)
    for size in range(3):
        assert int((table.size == size).sum()) == sum(term.size == size for term in expected)
    assert len(np.unique(hashes)) == len({_value(rules, small, term) for term in expected})


def _value(rules: Rules, found: Family, term: Term) -> bytes:
    rng = np.random.default_rng(5)
    feeds = {input_term(k, type): rng.integers(1, P, type.shape) for k, type in enumerate(found.inputs)}
    given = {leaf: input_value(f"v{leaf.index}", leaf.type.tensor) for leaf in feeds}
    (value,) = values(rules, (term,), given)
    (array,) = run(rules, [value], {given[leaf]: data for leaf, data in feeds.items()}, Field(0))
    return str(array.shape).encode() + np.asarray(array).tobytes()


def test_three_operators_over_representatives_have_nearly_all_values(rules: Rules) -> None:
    """What is missed has three operators only because it shares a subterm that is no representative; so no value of two is missed."""
    for operators in (1, 2):
        small = family(rules, "ewadd transpose matmul", count=2)
        _, hashes, _ = all_terms(rules, ("taso",), small, operators)
        levels = Enumerator(rules, ("taso",), small, operators).run().levels
        assert sum(level.classes for level in levels) + len(small.inputs) == len(np.unique(hashes))
    small = family(rules, "ewadd transpose matmul", count=2)
    found = Enumerator(rules, ("taso",), small, 3).run()
    _, hashes, _ = all_terms(rules, ("taso",), small, 3)
    classes = sum(level.classes for level in found.levels) + len(small.inputs)
    assert 0.99 * len(np.unique(hashes)) < classes <= len(np.unique(hashes))


def test_shared_subterms_count_once(rules: Rules) -> None:
    """(x + x) * (x + x) has two operators."""
    table, _, _ = all_terms(rules, ("taso",), family(rules, "ewadd ewmul", count=1), 2)
    squares = [row for row in range(len(table)) if table.size[row] == 2 and table.args[row, 0] == table.args[row, 1]]
    assert len(squares) == 4, "each of the two operators on each of x + x, x * x"


# ---- equations ----------------------------------------------------------------------------------------------------


def test_equations_of_the_matrix_family(rules: Rules) -> None:
    found = shown(enumerated(rules, "ewadd ewmul smul transpose matmul relu concat split I_matmul I_ewmul", 2, count=3))
    assert "x0 == transpose(transpose(x0))" in found
    assert "ewadd(x0, x1) == ewadd(x1, x0)" in found
    assert "matmul(x0, matmul(x1, x2)) == matmul(matmul(x0, x1), x2)" in found
    assert "transpose(relu(x0)) == relu(transpose(x0))" in found
    assert "x0 == matmul(x0, I_matmul(dtype=f32, size=4))" in found


def test_figure_2b_one_output_at_a_time(rules: Rules) -> None:
    found = shown(enumerated(rules, "matmul concat split", 3))
    assert any("split(matmul(" in text and "concat(" in text for text in found)


def test_equations_hold(rules: Rules) -> None:
    """Each on new inputs, evaluated term by term by the interpreter."""
    small = family(rules, "ewadd smul transpose matmul concat split I_matmul", count=2)
    found = Enumerator(rules, ("taso",), small, 2).run()
    listed = list(found.equations())
    assert len(listed) > 15
    for equation in listed:
        assert _value(rules, small, equation.left) == _value(rules, small, equation.right), str(equation)


def test_no_equation_twice(rules: Rules) -> None:
    found = enumerated(rules, "ewadd transpose matmul split concat", 3)
    listed = [in_order((e.left, e.right)) for e in found.equations()]
    assert len(listed) == len(set(listed))
    assert all(left is not right for left, right in listed)


def test_nothing_is_lost_by_leaving_out_what_follows(rules: Rules) -> None:
    """The kept equations connect all terms of equal values: congruence closure under them has no more classes than there are values."""
    small = family(rules, "ewadd transpose", count=2)
    found = Enumerator(rules, ("taso",), small, 2).run()
    terms = brute(rules, small, 2)
    parent = {term: term for term in terms}

    def root(term: Term) -> Term:
        while parent[term] is not term:
            term = parent[term]
        return term

    names = [leaf for leaf in terms if leaf.is_leaf]
    patterns = [pair for e in found.equations() for pair in ((e.left, e.right), (e.right, e.left))]
    changed = True
    while changed:
        changed = False
        for term in terms:
            for below in subterms((term,)):
                for source, target in patterns:
                    bound = _match(source, below, {})
                    if bound is None:
                        continue
                    missing = [leaf for leaf in inputs((target,)) if leaf not in bound]
                    if missing:
                        continue
                    other = _replaced(rules, term, below, _instance(rules, target, bound))
                    if other in parent and root(other) is not root(term):
                        parent[root(other)] = root(term)
                        changed = True
    assert len(names) == 2
    assert len({root(term) for term in terms}) == len({_value(rules, small, term) for term in terms})


def _match(pattern: Term, term: Term, bound: dict[Term, Term]) -> dict[Term, Term] | None:
    if pattern.item is None:
        if bound.setdefault(pattern, term) is not term:
            return None
        return bound
    if term.item != pattern.item or term.output != pattern.output:
        return None
    for a, b in zip(pattern.args, term.args, strict=True):
        if _match(a, b, bound) is None:
            return None
    return bound


def _instance(rules: Rules, pattern: Term, bound: dict[Term, Term]) -> Term:
    if pattern.item is None:
        return bound[pattern]
    return outputs(rules, pattern.item, tuple(_instance(rules, arg, bound) for arg in pattern.args))[pattern.output]


def _replaced(rules: Rules, term: Term, old: Term, new: Term) -> Term:
    if term is old:
        return new
    if not term.args:
        return term
    assert term.item is not None
    return outputs(rules, term.item, tuple(_replaced(rules, arg, old, new) for arg in term.args))[term.output]


# ---- what needs care ----------------------------------------------------------------------------------------------


def test_enlarge_only_on_inputs(rules: Rules) -> None:
    found = family(rules, "conv enlarge relu", count=2)
    table, _, _ = all_terms(rules, ("taso",), found, 2)
    number = next(k for k, item in enumerate(found.items) if item.short == "enlarge")
    rows = np.flatnonzero(table.item == number)
    assert len(rows) and (table.size[rows] == 1).all()
    assert (table.item[table.args[rows, 0]] == -1).all()


def test_stand_in_for_relu(rules: Rules) -> None:
    """With max(x, 0) itself relu(relu(x)) = relu(x); what stands in for it has no such law, and laws of max are not found."""
    found = enumerated(rules, "relu transpose", 2, count=1)
    assert "relu(transpose(x0)) == transpose(relu(x0))" in shown(found)
    assert not any("relu(relu(" in text for text in shown(found))


def test_what_stands_in_is_tested_as_it_is(rules: Rules) -> None:
    """x (x + 1) + 1 at 1 is 1 + 1 + 1; relu is not: the equation falls on floats and is listed."""
    found = enumerated(rules, "ewadd relu I_ewmul", 2, count=1)
    assert any("relu(I_ewmul" in str(equation) for equation in found.fallen)
    assert not any("relu(I_ewmul" in text for text in shown(found))


USER = """dslc 1
operator twice(X: T[*S]) -> Y: T[*S] {
  Y[*i] = X[*i] + X[*i]
}
operator shift(X: T[*S]) -> Y: T[*S] {
  attr axis: axis
  Y[*i] = X[*i] * 3 + 1
}
operator plus(X: T[*S], Z: T[*S]) -> Y: T[*S] {
  Y[*i] = X[*i] + Z[*i]
}
operator fused(A: T[M, K], B: T[K, N], C: T[M, N]) -> Y: T[M, N] {
  Y[m, n] = (sum[k] A[m, k] * B[k, n]) + C[m, n]
}
operator product(A: T[M, K], B: T[K, N]) -> Y: T[M, N] {
  Y[m, n] = sum[k] A[m, k] * B[k, n]
}
"""


def test_operators_of_a_user(tmp_path: Path) -> None:
    """Operators that dslc has never seen, one of them of three tensors: no other word about them."""
    path = tmp_path / "mine.rules"
    path.write_text(USER, encoding="utf-8")
    rules = load_many([path])
    (matrix,) = families(rules, list(rules.operators.values()), InputSizes(count=3))
    assert {item.short for item in matrix.items} == {"twice", "shift", "plus", "fused", "product"}
    listed = shown(Enumerator(rules, (str(path),), matrix, 2).run())
    assert "twice(x0) == plus(x0, x0)" in listed
    assert "fused(x1, x2, x0) == plus(x0, product(x1, x2))" in listed


# ---- determinism, workers, resuming ---------------------------------------------------------------------------------


def test_same_seed_same_result(rules: Rules, whole: Enumeration) -> None:
    again = enumerated(rules, NAMES, 3)
    assert [str(e) for e in whole.equations()] == [str(e) for e in again.equations()]
    assert [level.terms for level in whole.levels] == [level.terms for level in again.levels]
    other = enumerated(rules, NAMES, 3, seed=7)
    assert shown(other) == shown(whole), "which equations hold does not depend on the inputs' values"


def test_workers_find_the_same(rules: Rules, whole: Enumeration) -> None:
    several = Enumerator(rules, ("taso",), family(rules, NAMES), 3, mapper=partial(forked, 2)).run()
    assert [str(e) for e in whole.equations()] == [str(e) for e in several.equations()]


def test_chunks_are_pure(rules: Rules) -> None:
    """A state that was sent to another process gives the same fingerprints."""
    seen: list[tuple[EnumerationState, TupleChunk, Array]] = []

    def mapper(state: EnumerationState, chunks: Iterable[TupleChunk]) -> Iterator[Array]:
        for chunk in chunks:
            result = evaluate_chunk(state, chunk)
            seen.append((pickle.loads(pickle.dumps(state)), chunk, result))
            yield result

    Enumerator(rules, ("taso",), family(rules, NAMES), 2, mapper=mapper).run()
    state, chunk, result = seen[-1]
    assert np.array_equal(evaluate_chunk(state, pickle.loads(pickle.dumps(chunk))), result)


def test_interrupted_enumerations_go_on(rules: Rules, whole: Enumeration, tmp_path: Path) -> None:
    small = family(rules, NAMES)

    def broken(state: EnumerationState, chunks: Iterable[TupleChunk]) -> Iterator[Array]:
        for k, array in enumerate(serial(state, chunks)):
            if k == 20:
                raise KeyboardInterrupt
            yield array

    folder = tmp_path / digest(rules.digest, small, 0)
    with pytest.raises(KeyboardInterrupt):
        Enumerator(rules, ("taso",), small, 3, mapper=broken, store=Blocks(folder, seconds=0)).run()
    count = 0

    def counted(state: EnumerationState, chunks: Iterable[TupleChunk]) -> Iterator[Array]:
        nonlocal count
        for array in serial(state, chunks):
            count += 1
            yield array

    assert not list(folder.glob("*.part"))
    # a block that was not written whole is as good as none
    (folder / "level-3-00012.npz").write_bytes(b"cut off")
    resumed = Enumerator(rules, ("taso",), small, 3, mapper=counted, store=Blocks(folder)).run()
    assert [str(e) for e in resumed.equations()] == [str(e) for e in whole.equations()]
    resumed_chunks, count = count, 0
    Enumerator(rules, ("taso",), small, 3, mapper=counted).run()
    assert 0 < resumed_chunks < count


# ---- fingerprints and graphs ---------------------------------------------------------------------------------------


def test_fingerprints() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, P, (50, 4, 6)).astype(np.uint32)
    square, flat = TensorType(F32, (4, 6)), TensorType(F32, (6, 4))
    hashes = first_hash(values, square)
    assert np.array_equal(hashes, first_hash(values.astype(np.int64), square)) and len(np.unique(hashes)) == 50
    assert not np.intersect1d(hashes, first_hash(values.reshape(50, 6, 4), flat)).size, "the shape counts"
    changed = values.copy()
    changed[0, 3, 5] ^= 1
    assert first_hash(changed, square)[0] != hashes[0]
    pairs = np.stack([hashes[:-1], hashes[1:]], axis=1)
    assert np.array_equal(second_hash(pairs), second_hash(pairs[:, ::-1]))
    assert len(np.unique(second_hash(pairs))) == 49


def test_graphs_of_two_operators(rules: Rules) -> None:
    """All sets of at most two applications, each with what it needs in the set, by definition."""
    small = family(rules, "ewadd transpose concat split", count=2)
    terms = brute(rules, small, 2)
    nodes = {term.node for term in terms if term.args}
    graphs = {frozenset({node}) for node in nodes if all(arg.is_leaf for arg in node[1])}
    pairs = {
        one | {node}
        for one in graphs
        for node in nodes
        if node not in one and all(a.is_leaf or a.node in one for a in node[1])
    }
    counted = count_graphs(rules, ("taso",), small, 2)
    assert counted.graphs == (len(graphs), len(pairs))
    for k in range(counted.candidates):
        candidate = counted.candidate(k)
        for source, target in zip(candidate.sources, candidate.targets, strict=True):
            assert _value(rules, small, source) == _value(rules, small, target)
