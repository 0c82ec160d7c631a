"""Searches over e-graphs: saturation, and tree search. At prices that are fixed, what they find is known."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.cost.measure import Measured, Measurer, Sample
from dslc.cost.model import CostModel
from dslc.deadline import Deadline
from dslc.egraph.explain import fact, used
from dslc.egraph.extract import EXTRACTORS, ExtractionProblem
from dslc.egraph.extract.file import read, written
from dslc.egraph.extract.program import extract
from dslc.egraph.story import kept
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Graph, Kernel, Value, input_value
from dslc.match import CompiledRule
from dslc.report import KERNELS
from dslc.search.candidates.candidate import Candidate, Limits
from dslc.search.generators.rules import dumped
from dslc.search.options.strategies import STRATEGIES, Auto, Backtrack, Mcts, Saturate, Strategy
from dslc.search.region_rewrites.building import Builder
from dslc.search.region_rewrites.derivations import Derivations, derivations_of
from dslc.search.region_rewrites.validate import claims_of, validate
from dslc.search.runs.selection import chosen_rules
from dslc.search.strategies.partition import is_large, is_repeated
from dslc.search.strategies.space import KernelMoves, SearchedEGraph, Source, Space, Substitutions
from dslc.semantics.apply import apply
from dslc.semantics.library import load_many, standard
from tests.pressed import press
from tests.tuned import tuned

RULES = standard()
SEARCHES = [
    pytest.param(Saturate(enodes=800, rounds=3, tidy=False), id="saturate"),
    pytest.param(Mcts(simulations=12, rollout=4), id="mcts"),
]
GATES = ("merge_matmuls", "split_through_binary", "add_of_matmuls", "merge_three_matmuls")


class Launches(Measurer):
    """Every node costs as much as any other, splits a little more."""

    def __init__(self) -> None:
        pass

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        lines = sample.text.splitlines()
        return Measured(
            1e-5 * sum("= std." in line for line in lines) + 1e-6 * sum("= std.split#" in line for line in lines)
        )


@dataclass
class Searched:
    start: Candidate
    found: list[Candidate]
    limits: Limits

    @property
    def best(self) -> Candidate:
        return self.found[-1] if self.found else self.start


class Dear(Launches):
    """Transposed convolutions cost a hundred times as much as all else."""

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        return Measured(super().measured(sample, turn).seconds + 1e-3 * sample.text.count("= std.conv_transpose"))


def prices(measurer: Measurer | None = None) -> CostModel:
    return CostModel(RULES, measurer or Launches(), lambda inputs, outputs: b"", 20)


def searched(
    strategy: Strategy, graph: Graph, rules: list[CompiledRule], limits: Limits, seed: int = 0, moves: Sequence[Source] = (),
    costs: CostModel | None = None, **about: Any,
) -> Searched:  # fmt: skip
    costs = costs or prices()
    start = Candidate(graph, costs.graph_cost(graph))
    found = list(strategy.explore(Space(start, (Substitutions(tuple(rules)), *moves), costs, limits, seed, **about)))
    assert all(one.cost < start.cost for one in found)
    return Searched(start, found, limits)


@pytest.mark.parametrize(
    ("strategy", "count"),
    [(Backtrack, 2), (partial(Saturate, enodes=150), 2), (partial(Mcts, enodes=300), 2), (Auto, 1)],
    ids=["Backtrack", "Saturate", "Mcts", "Auto"],
)
def test_a_note_says_what_was_done_beside_a_search_and_without_it_there_is_none(strategy: Any, count: int) -> None:
    for tidy in (True, False):
        notes: list[str] = []
        searched(strategy(tidy=tidy), gates(count), named(*GATES), Limits(30), note=notes.append)
        assert any(note.startswith("rule sweeps") and "predicted time down" in note for note in notes) is tidy
        assert any("rules searched" in note for note in notes)


def named(*names: str) -> list[CompiledRule]:
    return chosen_rules(RULES, [f"std.{name}" for name in names])


def op(name: str, *args: Any, **attrs: Any) -> Value:
    return apply(RULES, f"std.{name}", args, attrs)[0]


def tensor(name: str, *shape: int) -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def weights(count: int, *shape: int) -> list[Value]:
    """Constants whose elements nothing has to compute with."""
    return [input_value(f"w{k}", TensorType(DType.F32, shape), constant=True) for k in range(count)]


def gates(count: int = 8) -> Graph:
    """The products of a recurrent step: half of them of the input, half of the state, and their sums."""
    x, state = tensor("x", 1, 32), tensor("state", 1, 32)
    known = weights(2 * count, 32, 32)
    pairs = zip(known[::2], known[1::2], strict=True)
    return Graph((x, state), tuple(op("add", op("matmul", x, one), op("matmul", state, two)) for one, two in pairs))


def operators(graph: Graph) -> list[str]:
    return sorted(
        node.op.removeprefix("std.") for node in graph.nodes() if isinstance(node, Call) and not node.constant
    )


@pytest.mark.parametrize("strategy", SEARCHES)
def test_what_shrinks_by_any_rule_shrinks(strategy: Strategy) -> None:
    x = tensor("x", 3, 4)
    turned = op("transpose", op("transpose", op("neg", op("neg", op("relu", op("relu", x)))), perm=(1, 0)), perm=(1, 0))
    found = searched(strategy, Graph((x,), (turned,)), chosen_rules(RULES), Limits(150))
    assert operators(found.best.graph) == ["relu"]


@pytest.mark.parametrize("strategy", SEARCHES)
def test_gates_become_products_of_what_they_share_and_every_fact_is_proved(strategy: Strategy) -> None:
    """Products are merged step by step: some steps gain nothing by themselves, and the path says which."""
    found = searched(strategy, gates(5), named(*GATES), Limits(100))
    assert operators(found.best.graph).count("matmul") <= operators(found.start.graph).count("matmul") // 2
    assert found.best.cost < 0.4 * found.start.cost
    path = found.best.path()[1:]
    # what a step rests on are its facts, or its graph tells of its rewrites
    assert path and all({fact.rule for fact in step.facts} <= {step.rule} for step in path)
    proved = validate(RULES, claims_of(found.best))
    assert proved.usable and set(proved.how.values()) == {"exact"}
    assert set(proved.how) == {step.rule for step in path} and proved.rewrites >= len(path)


ARMS = [
    pytest.param(
        Mcts(simulations=5, rollout=4, reward=reward, final=final, near=0.0, tidy=False, whole=True),
        id=f"{reward}/{final}",
    )
    for reward, final in (
        ("default", "default"),
        ("default", "ilp"),
        ("shared", "shared"),
        ("shared", "ilp"),
        ("ilp", "ilp"),
    )
]


@pytest.mark.parametrize("strategy", [*ARMS, pytest.param(Saturate(tensat=True, enodes=800), id="tensat")])
def test_each_arm_of_the_paper_finds_what_gates_share_by_e_graphs_alone(strategy: Strategy) -> None:
    notes: list[str] = []
    found = searched(strategy, gates(3), named(*GATES), Limits(40), note=notes.append)
    assert found.best.cost < 0.8 * found.start.cost
    assert any("4 rules" in note for note in notes) and not any("sweeps" in note for note in notes)


def test_what_is_done_beside_the_e_graph_is_noted_with_what_it_gained() -> None:
    notes: list[str] = []
    searched(Mcts(enodes=300, simulations=12, rollout=4), gates(2), named(*GATES), Limits(30), note=notes.append)
    (note,) = [one for one in notes if one.startswith("rule sweeps and backtracking")]
    steps, share = re.findall(r": (\d+) steps?, predicted time down (.*)%", note)[0]
    assert int(steps) > 0 and 0 <= float(share) < 100


def test_the_last_program_is_taken_out_as_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def told(_egraph: object, _price: object, how: str, **_: object) -> None:
        asked.append(how)

    monkeypatch.setattr("dslc.search.strategies.tree.extract", told)
    options: dict[str, Any] = {"simulations": 12, "rollout": 4, "tidy": False}
    searched(Mcts(reward="shared", final="ilp", **options), gates(4), named(*GATES), Limits(30))
    assert asked and set(asked) == {"ilp"}
    asked.clear()
    searched(Mcts(reward="shared", final="shared", **options), gates(4), named(*GATES), Limits(30))
    assert not asked


@pytest.mark.parametrize("strategy", SEARCHES)
def test_the_same_seed_finds_the_same_in_as_many_steps(strategy: Strategy) -> None:
    first, again = (searched(strategy, gates(3), named(*GATES), Limits(15), seed=3) for _ in range(2))
    assert first.best.graph.outputs == again.best.graph.outputs
    assert list(first.best.rules()) == list(again.best.rules()) and first.limits.done == again.limits.done


@pytest.mark.parametrize("strategy", SEARCHES)
def test_rules_that_explode_stay_within_the_limits(strategy: Strategy) -> None:
    """Any order and any brackets of a sum of 64 terms; nothing costs less, so nothing is found. Sums within sums are looked through,
    and in an e-graph there is no end of them: no rule may take the time of all."""
    terms = [tensor(f"x{k}", 2) for k in range(64)]
    total = terms[0]
    for term in terms[1:]:
        total = op("add", total, term)
    # the solver has a part of the time
    limits = Limits(40, until=Deadline.after(0.7))
    orders = load_many(["std", str(Path(__file__).parents[2] / "benchmarks" / "egraph.rules")])
    explode = [rule for rule in chosen_rules(orders) if rule.name.startswith(("std.add_of", "egraph.add_"))]
    found = searched(strategy, Graph(tuple(terms), (total,)), explode, limits)
    assert found.limits.done <= 40
    assert found.best.cost <= found.start.cost


@pytest.mark.parametrize("name", ["saturate", "mcts"])
def test_an_interrupt_leaves_what_was_found(name: str) -> None:
    """The second thing that is better is one too many: whoever is told of it presses Ctrl-C."""
    heard: list[Candidate] = []

    def built(candidate: Candidate) -> None:
        heard.append(candidate)
        raise KeyboardInterrupt

    limits = Limits(200, on_built=built)
    x = tensor("x", 3, 4)
    found = searched(
        STRATEGIES[name](), Graph((x,), (op("neg", op("neg", op("relu", op("relu", x)))),)), chosen_rules(RULES), limits
    )
    assert limits.interrupted and limits.stopped and len(heard) == 1
    assert found.best.cost <= found.start.cost


@pytest.mark.parametrize("strategy", SEARCHES)
def test_without_steps_nothing_happens(strategy: Strategy) -> None:
    found = searched(strategy, gates(), named(*GATES), Limits(0))
    assert found.found == [] and found.limits.done == 0


def test_a_large_graph_is_saturated_in_regions_and_facts_go_with_them() -> None:
    """Four hundred nodes in which each second pair of negations vanishes: a region's facts hold wherever it stands."""
    x = tensor("x", 3, 4)
    at = x
    for _ in range(100):
        at = op("relu", op("neg", op("neg", op("sigmoid", at))))
    found = searched(Saturate(enodes=400, rounds=2, tidy=False), Graph((x,), (at,)), named("double_neg"), Limits(60))
    assert operators(found.best.graph).count("neg") < 100
    assert all(step.facts for step in found.best.path()[1:])
    proved = validate(RULES, claims_of(found.best))
    assert proved.usable and proved.how == {"std.double_neg": "exact"}


def test_tree_search_joins_all_products_of_one_operand() -> None:
    """Each step joins two, and leaves parts of parts: only as one split do they pay."""
    x = tensor("x", 1, 32)
    products = Graph((x,), tuple(op("matmul", x, weight) for weight in weights(5, 32, 8)))
    found = searched(Mcts(), products, named("merge_matmuls", "matmul_turned", "stack_matmuls"), Limits(120))
    assert operators(found.best.graph) == ["matmul", "split"]


def test_a_rule_makes_a_kernel_possible_that_neither_finds_alone() -> None:
    """Three products with something behind each. Rules alone join them, which hardly pays, since each part has its own operators
    behind it; kernels alone take one product each. Joined first, all that is behind them is one kernel."""
    x = tensor("x", 64, 32)
    graph = Graph((x,), tuple(op("sigmoid", op("neg", op("matmul", x, weight))) for weight in weights(3, 32, 32)))
    rules, groups = named("merge_matmuls", "merge_three_matmuls"), KernelMoves(RULES)

    def best(rules: list[CompiledRule], *moves: KernelMoves) -> Candidate:
        return searched(Mcts(mixed=True, enodes=250), graph, rules, Limits(30), moves=moves, price=groups.price).best

    alone, without, mixed = best(rules), best([], groups), best(rules, groups)
    assert mixed.cost < 0.8 * min(alone.cost, without.cost)
    assert {step.rule.partition("^")[0] for step in mixed.path()[1:]} == {"std.merge_three_matmuls", KERNELS}
    assert [type(node) for node in mixed.graph.nodes() if node.args and not node.constant] == [Call, Kernel]
    proved = validate(RULES, claims_of(mixed))
    assert proved.usable and set(proved.how.values()) == {"exact"}


def test_a_step_of_derivation_is_a_move_beside_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is derived of a dear operator needs no rule, and two negations need no derivation: together they are a mixed program."""
    # three steps suffice, and a busy machine has the time for them
    tuned(monkeypatch, "search.region_rewrites.derivations", depth=3, states=60, priced=2, seconds=120.0)
    x, kernel = tensor("x", 1, 4, 2, 2), array_value(np.ones((4, 3, 4, 4), np.float32))
    turned = op("conv_transpose", op("neg", op("neg", x)), kernel, stride=(2, 2))
    costs, groups = prices(Dear()), KernelMoves(RULES)
    derived = Derivations(Builder(RULES, costs, 17, margin=0.0), derivations=derivations_of(RULES))
    strategy = Mcts(simulations=8, rollout=3, mixed=True)
    found = searched(
        strategy,
        Graph((x,), (turned,)),
        named("double_neg"),
        Limits(16),
        moves=(derived,),
        costs=costs,
        price=groups.price,
    )
    rules = [step.rule for step in found.best.path()[1:]]
    assert "std.double_neg" in rules and any("einnet." in rule for rule in rules)
    assert "conv_transpose" not in operators(found.best.graph) and found.best.cost < 0.1 * found.start.cost
    proved = validate(RULES, claims_of(found.best))
    assert proved.usable and set(proved.how.values()) == {"exact"}


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize(("name", "moment"), [("saturate", 1), ("saturate", 2), ("mcts", 1), ("mcts", 3), ("mcts", 9)])
def test_an_interrupt_at_any_step_leaves_the_best_so_far(name: str, moment: int) -> None:
    def pressed(done: int) -> None:
        if done == moment:
            press()

    limits = Limits(20, on_step=pressed)
    x = tensor("x", 3, 4)
    heard: list[Candidate] = []
    graph = Graph((x,), (op("neg", op("neg", op("relu", op("relu", x)))),))
    found = searched(STRATEGIES[name](), graph, chosen_rules(RULES), limits, told=heard.append)
    assert limits.interrupted or limits.done < moment
    assert found.best is (heard[-1] if heard else found.start)


def blocks(count: int) -> Graph:
    """Equal blocks with weights of their own, of five nodes each."""
    at = x = tensor("x", 4, 4)
    for k in range(count):
        weight = array_value(np.random.default_rng(k).standard_normal((4, 4)).astype(np.float32))
        at = op("relu", op("neg", op("neg", op("add", at, op("matmul", at, weight)))))
    return Graph((x,), (at,))


def test_a_graph_of_equal_blocks_is_saturated_in_regions_though_it_is_not_large() -> None:
    """A hundred and fifty nodes would be one e-graph, in which each rule is matched at every block."""
    graph = blocks(30)
    assert not is_large(graph)
    notes: list[str] = []
    found = searched(Saturate(enodes=800, rounds=3), graph, named("double_neg"), Limits(30), note=notes.append).best
    assert notes and "neg" not in operators(found.graph)
    assert is_repeated(graph, prices())
    assert not is_repeated(gates(), prices()), "what is one region is not divided"


def test_steps_with_the_same_weights_are_not_searched_apart() -> None:
    x, weight = tensor("x", 4, 4), input_value("w", TensorType(DType.F32, (4, 4)), constant=True)
    at = x
    for _ in range(40):
        at = op("relu", op("exp", op("neg", op("add", at, op("matmul", at, weight)))))
    graph = Graph((x,), (at,))
    assert not is_repeated(graph, prices())


def test_saturation_goes_on_from_its_best_program_until_nothing_is_gained() -> None:
    """An e-graph of so few nodes holds a part of what rules make of the gates: the next one is of what came out of that."""
    alone = searched(Saturate(enodes=120, rounds=3, tidy=False), gates(), named(*GATES), Limits(200))
    further = searched(Saturate(enodes=120, rounds=3), gates(), named(*GATES), Limits(200))
    assert further.best.cost < alone.best.cost
    assert further.limits.done < 200, "it ends by itself"
    assert all(one.facts or one.rule for one in further.best.path()[1:])


def test_a_tree_tries_rules_about_any_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """`term f(X)` names no operator: the rule fits wherever the others of its operators are."""
    monkeypatch.setattr("dslc.search.strategies.tree.Searching._tidy", lambda self, swept=False: None)
    x, y = tensor("x", 2, 3), tensor("y", 2, 5)
    graph = Graph((x, y), (op("concat", op("relu", x), op("relu", y), axis=1),))
    found = searched(Mcts(simulations=8, rollout=2), graph, named("concat_through_unary"), Limits(40))
    assert found.best.cost < found.start.cost


@pytest.mark.parametrize("strategy", [*SEARCHES, pytest.param(Backtrack(), id="backtrack")])
def test_what_equal_regions_save_is_noted(strategy: Strategy) -> None:
    """Eighty equal blocks with weights of their own: some of their regions stand in several places."""
    notes: list[str] = []
    searched(strategy, blocks(80), named("double_neg"), Limits(30), note=notes.append)
    (note,) = [one for one in notes if "regions" in one]
    different, count = re.findall(
        r"(\d+) different regions were searched once, in .* s, and used (\d+) times: that saved", note
    )[0]
    assert int(count) > int(different) > 0


def test_what_it_chooses_follows_from_the_size_and_the_budget_and_is_said() -> None:
    x = tensor("x", 3, 4)
    small = Graph((x,), (op("neg", op("neg", x)),))
    chain = mixed = middle = x
    chance = random.Random(0)
    for _ in range(300):
        chain = op("relu", op("neg", chain))
        mixed = op(chance.choice(["relu", "exp", "sigmoid"]), op(chance.choice(["neg", "tanh", "abs"]), mixed))
    for _ in range(40):
        middle = op(chance.choice(["relu", "exp", "sigmoid"]), op(chance.choice(["neg", "tanh", "abs"]), middle))

    def note(graph: Graph, **about: Any) -> str:
        notes: list[str] = []
        searched(Auto(), graph, named("double_neg"), Limits(0), note=notes.append, **about)
        (only,) = [line for line in notes if line.startswith("strategy")]
        return only

    between = Graph((x,), (middle,))
    assert note(small).startswith("strategy saturate: what rules make of 2 nodes")
    assert note(Graph((x,), (chain,))).startswith("strategy saturate: half of 600 nodes is repeated")
    assert note(Graph((x,), (mixed,))).startswith("strategy backtrack: 600 nodes are searched in regions")
    assert note(between, budget=20.0) == "strategy backtrack: 20 s are too short for a tree, which takes 45"
    assert note(between, steps=50) == "strategy backtrack: 50 steps are too few for a tree, which takes 1,000"
    assert note(between, budget=20.0, steps=5000).startswith("strategy mcts: 80 nodes are one graph")


@pytest.mark.parametrize("strategy", SEARCHES)
def test_the_e_graph_of_a_search_is_a_file_whose_best_program_costs_what_the_search_says(
    strategy: Strategy, tmp_path: Path
) -> None:
    grown: list[SearchedEGraph] = []
    found = searched(strategy, gates(4), named(*GATES), Limits(12), grown=grown.extend)
    path = tmp_path / "grown.json"
    assert dumped(path, grown)
    problem = read(path).problem()
    again = read_again(problem, tmp_path)
    best, same = (EXTRACTORS["ilp"](one, Deadline.after(5)) for one in (problem, again))
    assert best is not None and same is not None and best.cost <= found.best.cost + 1e-12
    assert same.cost == pytest.approx(best.cost) and len(again) == len(problem)
    sums = sum(one.price(node) for one in grown for node in found.start.graph.nodes())
    assert best.cost < sums


def read_again(problem: ExtractionProblem, folder: Path) -> ExtractionProblem:
    """What is read of what was written."""
    path = folder / "again.json"
    path.write_text(json.dumps(written(problem)), "utf-8")
    return read(path).problem()


def test_the_regions_of_a_large_graph_stand_side_by_side_in_the_file(tmp_path: Path) -> None:
    x = tensor("x", 3, 4)
    at = x
    for _ in range(100):
        at = op("relu", op("neg", op("neg", op("sigmoid", at))))
    grown: list[SearchedEGraph] = []
    searched(
        Saturate(enodes=400, rounds=2, tidy=False),
        Graph((x,), (at,)),
        named("double_neg"),
        Limits(20),
        grown=grown.extend,
    )
    assert len(grown) > 1 and dumped(tmp_path / "e.json", grown)
    read_back = read(tmp_path / "e.json")
    assert len(read_back.roots) == sum(len(set(map(one.egraph.find, one.egraph.roots))) for one in grown)
    assert not dumped(tmp_path / "none.json", []) and not (tmp_path / "none.json").exists()


def test_what_a_program_rests_on_is_kept_in_an_e_graph_of_its_own() -> None:
    """Without all else; the program is in it, and rests on the same facts there."""
    grown: list[SearchedEGraph] = []
    start = gates()
    searched(Saturate(enodes=600, rounds=2, tidy=False), start, named(*GATES), Limits(60), grown=grown.extend)
    (one,) = grown
    best = extract(one.egraph, one.price, "ilp")
    assert best is not None
    alone = kept(one.egraph, best, start)
    assert len(alone) < len(one.egraph)
    again = extract(alone, one.price, "ilp")
    assert again is not None and again.cost == pytest.approx(best.cost)
    told = {fact(applied)[0] for applied in used(one.egraph, best)}
    assert {fact(applied)[0] for applied in used(alone, again)} <= told
