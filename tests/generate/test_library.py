"""What a generation finds: the substitutions of TASO's figures, by name, in a library that checks and passes its own tests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from handmade import add, halves, matmul, matrices, op, taso

from dslc.cli.main import cli
from dslc.generate.general.joins import along_axes, joined, taken_apart
from dslc.generate.general.rules import GeneralRule, definition, generalise
from dslc.generate.library import GeneratedLibrary, generate
from dslc.generate.proofs import library_text
from dslc.generate.pruning.generality import key
from dslc.generate.settings import GenerationSettings
from dslc.generate.terms.term import Conjecture, Equation, Term
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, input_value
from dslc.match import GraphIndex, apply_match, compile_directions, find_matches
from dslc.prove.evidence.digest import rule_digest
from dslc.prove.evidence.lock import LOCK, read_lock
from dslc.prove.run.verify import verify_rule
from dslc.semantics.apply import apply
from dslc.semantics.library import load_many
from dslc.store import write_file
from tests.caches import apart

A, B, C, D, E = matrices()
MATRIX_OPERATORS = ("matmul", "ewadd", "transpose", "concat", "split")


@pytest.fixture(scope="module")
def library() -> GeneratedLibrary:
    # proved in this process: others are started for the command
    return generate(GenerationSettings(operators=MATRIX_OPERATORS, max_operators=3, provers=0))


def has(library: GeneratedLibrary, left: Term | tuple[Term, ...], right: Term | tuple[Term, ...]) -> bool:
    """Whether a rule was found, up to the names of inputs and the direction; sizes in the keys are those of the enumeration."""
    sides = [side if isinstance(side, tuple) else (side,) for side in (left, right)]
    return any(key(rule.candidate) == key(Conjecture(*sides)) for rule in library.found)


def test_figure_2a_products_are_associative(library: GeneratedLibrary) -> None:
    assert has(library, matmul(A, matmul(B, C)), matmul(matmul(A, B), C))


def test_figure_2b_products_with_a_common_operand_are_merged(library: GeneratedLibrary) -> None:
    whole = matmul(A, op("concat", B, C, axis=1))
    assert has(library, (matmul(A, B), matmul(A, C)), halves(whole, 1))


def test_figure_5_a_product_is_the_transpose_of_one(library: GeneratedLibrary) -> None:
    assert has(library, op("transpose", matmul(A, B)), matmul(op("transpose", B), op("transpose", A)))


def test_figure_4_the_general_forms_are_there_and_their_instances_are_not(library: GeneratedLibrary) -> None:
    assert has(library, op("transpose", op("transpose", A)), A)
    assert not has(library, matmul(A, matmul(B, A)), matmul(matmul(A, B), A))
    assert not has(library, add(matmul(A, B), add(C, D)), add(add(matmul(A, B), C), D))


def test_every_rule_is_proved(library: GeneratedLibrary) -> None:
    assert library.found
    assert set(library.statuses.values()) <= {"proved", "bounded"}
    assert len(library.statuses) == len(library.found)


def test_figure_3_three_products_are_merged_by_nesting(library: GeneratedLibrary) -> None:
    rules = library.rules
    (merge,) = [
        rule for rule in library.found
        if key(rule.candidate) == key(Conjecture((matmul(A, B), matmul(A, C)), halves(matmul(A, op("concat", B, C, axis=1)), 1)))
    ]  # fmt: skip
    (forward, *_) = compile_directions(rules, definition(rules, merge))
    x = input_value("x", TensorType(DType.F32, (2, 3)))
    weights = [input_value(f"w{k}", TensorType(DType.F32, (3, k + 2))) for k in range(3)]
    graph = Graph((x, *weights), tuple(apply(rules, "std.matmul", [x, w])[0] for w in weights))
    for _ in range(2):
        # the products, then the merged one with the third
        graph = next(
            new for m in find_matches(forward, GraphIndex(graph)) if (new := apply_match(m, graph)) is not None
        )
    products = [node for node in graph.nodes() if getattr(node, "op", "") == "std.matmul"]
    assert len(products) == 1
    assert products[0].types[0] == TensorType(DType.F32, (2, 9))


def test_equations_with_free_inputs_are_joined() -> None:
    whole = matmul(A, op("concat", B, C, axis=1))
    first, second = halves(whole, 1)
    equations = [Equation(matmul(A, B), first), Equation(matmul(A, C), second)]
    assert list(joined(taso(), equations, 3)) == [Conjecture((matmul(A, B), matmul(A, C)), (first, second))]
    assert list(joined(taso(), equations, 2)) == []
    product = Conjecture((op("concat", matmul(A, B), matmul(A, C), axis=1),), (whole,))
    items = [first.item] if first.item is not None else []
    assert list(taken_apart(taso(), items, product, 3)) == [Conjecture((matmul(A, B), matmul(A, C)), (first, second))]


def test_a_rule_for_any_axis_is_taken_apart_on_each() -> None:
    """Sums joined side by side are a rule of their own: no search writes them as transposes of sums one above the other."""
    first, second = (op("ewadd", *pair) for pair in ((A, B), (C, D)))
    sums = op("ewadd", op("concat", A, C, axis=0), op("concat", B, D, axis=0))
    one = Conjecture((op("concat", first, second, axis=0),), (sums,))
    joins = [op("concat", A, B, axis=axis) for axis in (0, 1)]
    terms = [first, *joins, *(halves(join, axis)[0] for axis, join in enumerate(joins))]
    items = [term.item for term in terms if term.item is not None]
    found = [new for along in along_axes(taso(), items, one) for new in taken_apart(taso(), items, along, 4)]
    assert [new.sources for new in found] == [(first, second)] * 2
    assert [new.targets[0].item.axis for new in found if new.targets[0].item is not None] == [0, 1]


def test_attributes_that_do_not_matter_become_variables() -> None:
    x, y = op("relu", A), op("relu", B)
    rule = generalise(taso(), Conjecture((op("concat", x, y, axis=1),), (op("relu", op("concat", A, B, axis=1)),)))
    assert rule.form.pack == "axis"
    kernels = convolutions()
    assert set(kernels.form.holes.values()) == {"s", "p"}
    assert verify_rule(taso(), definition(taso(), kernels)).status in {"proved", "bounded"}


def convolutions() -> GeneralRule:
    from handmade import IMAGE, KERNEL

    from dslc.generate.terms.term import input_term

    x, k, m = input_term(0, IMAGE), input_term(1, KERNEL), input_term(2, KERNEL)
    # an activation would make the sum wrong: it stays as it is, stride and padding do not matter
    return generalise(taso(), Conjecture((add(op("conv", x, k), op("conv", x, m)),), (op("conv", x, add(k, m)),)))


def test_the_library_file_checks_and_passes_its_tests(library: GeneratedLibrary, tmp_path: Path) -> None:
    path = tmp_path / "found.rules"
    write_file(path, library_text(library.rules, library.found, ["Found by a test."], library.statuses))
    # a third of the rules at random sizes: each was tried at some when it was found
    some = tmp_path / "some.rules"
    write_file(some, library_text(library.rules, library.found[::3], ["Found by a test."], library.statuses))
    runner = CliRunner()
    for command in (["check", str(path)], ["fmt", "--check", str(path)], ["test", str(some)]):
        result = runner.invoke(cli, command, standalone_mode=False)
        assert result.exception is None and not result.return_value, (command, result.output)
    rules = load_many([path])
    assert len([name for name in rules.substitutions if name.startswith("found.")]) == len(library.found)
    sizes = {name: r for name, r in rules.rulesets.items() if name.startswith("found.size_")}
    assert set(sizes) == {f"found.size_{rule.size}" for rule in library.found}
    assert not list(tmp_path.glob(".found*"))


def test_the_same_settings_give_the_same_library(library: GeneratedLibrary) -> None:
    again = generate(GenerationSettings(operators=MATRIX_OPERATORS[:2], max_operators=2, proof=False))
    other = generate(GenerationSettings(operators=MATRIX_OPERATORS[:2], max_operators=2, proof=False))
    texts = [library_text(x.rules, x.found, [], x.statuses) for x in (again, other)]
    assert texts[0] == texts[1]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where the command has written `mine.rules` and `report.json`."""
    folder = tmp_path_factory.mktemp("written")
    args = ["generate", "ewadd", "transpose", "-n", "2", "-o", str(folder / "mine.rules")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSLC_CACHE", str(apart(folder / "cache")))
        result = CliRunner().invoke(cli, [*args, "--report", str(folder / "report.json"), "-q"], standalone_mode=False)
    assert result.exception is None, result.output
    return folder


def test_the_command_writes_a_library_and_a_report(written: Path) -> None:
    out = written / "mine.rules"
    found = json.loads((written / "report.json").read_text())
    assert found["counts"]["rules"] == len([s for s in load_many([out]).substitutions if s.startswith("mine.")]) > 0
    assert {"enumerate", "generalise", "prove"} <= set(found["seconds"])
    assert "taso.ewadd, taso.transpose" in out.read_text()


def test_a_budget_ends_a_generation_with_what_was_found() -> None:
    stopped = generate(GenerationSettings(operators=MATRIX_OPERATORS, max_operators=3, budget=0.0))
    assert stopped.stages.counts.get("stopped by the budget") == 1
    assert stopped.found == []


def test_an_interrupted_generation_goes_on_and_gives_the_same_library(tmp_path: Path) -> None:
    settings = GenerationSettings(operators=("ewadd", "transpose"), max_operators=2, provers=1, resume=tmp_path)

    def interrupted(stage: str, done: int, total: int, text: str) -> None:
        if "proofs" in stage and done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(settings, interrupted)
    kept = len(list((tmp_path / "proofs").glob("*.json")))
    assert kept >= 2
    assert list(tmp_path.glob("*/level-*.npz"))
    asked: list[int] = []
    resumed = generate(settings, lambda stage, done, total, text: asked.append(done) if "proofs" in stage else None)
    # what was proved before is not proved again
    assert len(asked) == len(list((tmp_path / "proofs").glob("*.json"))) - kept
    whole = generate(replace(settings, resume=None, provers=0))
    texts = [library_text(one.rules, one.found, [], one.statuses) for one in (resumed, whole)]
    assert texts[0] == texts[1]


def test_what_was_proved_is_in_the_lock_beside_the_library(written: Path) -> None:
    rules = load_many([written / "mine.rules"])
    lock = read_lock(written / LOCK)
    mine = [sub for name, sub in rules.substitutions.items() if name.startswith("mine.")]
    assert mine
    for sub in mine:
        verdict = lock.of(sub.name, rule_digest(rules, sub))
        assert verdict is not None and verdict.status in {"proved", "bounded"}
