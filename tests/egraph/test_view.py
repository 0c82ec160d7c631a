"""Rules see in an e-graph of one graph what they see in the graph; and where classes grow, every e-node of them."""

from __future__ import annotations

import random

import pytest
from egraphs import call, directions, library, named, random_graph, tensor

from benchmarks.zoo import build
from dslc.egraph.graph import EGraph
from dslc.egraph.incremental_matches import IncrementalMatches
from dslc.egraph.rewrite import Caps, apply_matches
from dslc.egraph.view import View, components
from dslc.ir.graph import Graph, Node
from dslc.match import GraphIndex, find_matches
from dslc.match.matcher import Match
from dslc.onnx.importer import import_model
from tests.egraph.steps import step


@pytest.mark.parametrize("name", ["nasrnn", "bert", "resnext50"])
def test_rules_match_an_e_graph_as_they_match_its_graph(name: str) -> None:
    graph = import_model(build(name, small=True), library()).graph
    index, view = GraphIndex(graph), View(EGraph.of(graph))
    several = 0
    for rule in directions():
        found = list(find_matches(rule, index, limit=400))
        assert len(list(find_matches(rule, view, limit=400))) == len(found), rule.name
        several += len(found)
    assert several > 20


def test_what_depends_on_what_sees_every_alternative() -> None:
    """x = f(y) or g(z): x depends on both, z on neither."""
    y, z = tensor("y", 2), tensor("z", 2)
    egraph = EGraph.of(Graph((y, z), (call("relu", y), call("exp", z))))
    a, b = egraph.roots
    egraph.union(a, b, "given")
    egraph.rebuild()
    view = View(egraph)
    x = egraph.value(a)
    leaves = [egraph.value(entry.outs[0]) for node, entry in egraph.memo.items() if not node.args]
    assert all(view.depends([x], [leaf]) and not view.depends([leaf], [x]) for leaf in leaves)
    marks = view.needing({x: 1})
    assert all(marks[node] == 1 for leaf in leaves for node in (leaf.node, x.node))


def test_a_circle_of_classes_depends_on_all_of_itself() -> None:
    """x = -(-x): both classes of the circle are below each other."""
    x = tensor("x", 2)
    once = call("neg", x)
    egraph = EGraph.of(Graph((x,), (once, call("neg", once), call("relu", x))))
    a, b, c = egraph.roots
    leaf = next(entry.outs[0] for node, entry in egraph.memo.items() if not node.args)
    egraph.union(b, leaf, "given")
    egraph.rebuild()
    view = View(egraph)
    first, second, top = (egraph.value(number) for number in (a, leaf, c))
    assert view.depends([first], [second]) and view.depends([second], [first])
    assert view.depends([top], [first]) and not view.depends([first], [top])
    assert [len(members) for members in components(view._kids)] == [2, 1]


def test_a_rule_looks_through_every_e_node_of_a_class() -> None:
    """relu(c), where c is x + y and also x * y: what is written for sums matches there, and what is for products too."""
    x, y = tensor("x", 2, 2), tensor("y", 2, 2)
    turned = call("transpose", call("add", x, y), perm=(1, 0))
    egraph = EGraph.of(Graph((x, y), (turned, call("transpose", call("relu", x), perm=(1, 0)))))
    both = [egraph.memo[node].outs[0] for node in egraph.memo if getattr(node, "op", "") in {"std.add", "std.relu"}]
    egraph.union(*both, "given")
    egraph.rebuild()
    view = View(egraph)
    for name in ("sum_turned", "relu_turned"):
        (rule,) = named(directions(), name)
        assert len(list(find_matches(rule, view))) == 1


def test_a_view_that_goes_on_from_earlier_ones_sees_what_a_new_one_does() -> None:
    """A walk of random rules, whose views know only what some rules asked: fitting calls, what depends on what, and matches agree."""
    rng = random.Random(0)
    egraph = EGraph.of(random_graph(4))
    view = View(egraph)
    growing = [rule for rule in directions() if rule.name.startswith("egraph.")]
    found = 0
    for _ in range(24):
        egraph = egraph.clone()
        step(egraph, rng.choice(growing), rng, Caps(matches=6, looked=20), view)
        view, new = View(egraph, before=view), View(egraph)
        for rule in rng.sample(growing, 8):
            for prefilter in rule.prefilters:
                assert prefilter.fitting(view).calls == prefilter.fitting(new).calls
            there, here = ({match.key for match in find_matches(rule, one, limit=300)} for one in (new, view))
            assert here == there or len(there) == 300
            found += len(there)
        values = [egraph.value(number) for number in egraph.members]
        assert set(view.position) == set(new.position)
        for value in rng.sample(values, 6):
            others = rng.sample(values, 6)
            assert [view.depends([value], [one]) for one in others] == [new.depends([value], [one]) for one in others]
    assert found > 10


def test_matches_are_carried_over_to_clones_without_those_applied_and_with_those_near_what_changed() -> None:
    """A walk of random rules: what is known of a rule in each clone is what is found there anew, but for what was applied."""
    rng = random.Random(0)
    egraph = EGraph.of(random_graph(4))
    places = IncrementalMatches(View(egraph))
    growing = [rule for rule in directions() if rule.name.startswith("egraph.")]
    some, applied, compared, carried = Caps(matches=2), list[Match](), 0, 0
    for _ in range(24):
        for rule in growing:
            known, sampled = places.of(rule, rng, Caps(matches=1_000))
            if sampled:
                continue
            here = {identity(egraph, match) for match in find_matches(rule, View(egraph))}
            there = {identity(egraph, match) for match in known}
            assert there <= here
            assert here - there <= {identity(egraph, match) for match in applied}
            compared += len(here)
            carried += sum(match.index is not places.view for match in known)
        matches = places.of(rng.choice(growing), rng, some).matches[: some.matches]
        child = egraph.clone()
        apply_matches(child, matches, some)
        applied += matches
        places, egraph = IncrementalMatches(View(child, before=places.view), places, matches), child
    assert compared > 50 and carried > 25


def test_matches_among_some_e_nodes_are_carried_over_while_others_are_seen() -> None:
    """As above where every clone sees another share of the e-nodes: none is missed, and none has a call that is not seen."""
    rng = random.Random(1)
    egraph = EGraph.of(random_graph(4))
    growing = [rule for rule in directions() if rule.name.startswith("egraph.")]
    some, applied, compared, carried = Caps(matches=2), list[Match](), 0, 0
    places = IncrementalMatches(View(egraph, seen_of(egraph, rng)))
    for _ in range(24):
        for rule in growing:
            known, sampled = places.of(rule, rng, Caps(matches=1_000))
            assert all(node in places.view for match in known for node in match.calls)
            if sampled:
                continue
            here = {identity(egraph, match) for match in find_matches(rule, places.view)}
            there = {identity(egraph, match) for match in known}
            assert here - there <= {identity(egraph, match) for match in applied}
            compared += len(here)
            carried += sum(match.index is not places.view for match in known)
        matches = places.of(rng.choice(growing), rng, some).matches[: some.matches]
        child = egraph.clone()
        apply_matches(child, matches, some)
        applied += matches
        places, egraph = IncrementalMatches(View(child, seen_of(child, rng), places.view), places, matches), child
    assert compared > 50 and carried > 25


def seen_of(egraph: EGraph, rng: random.Random) -> frozenset[Node]:
    """Most e-nodes, by chance."""
    return frozenset(node for node in egraph.memo if rng.random() < 0.95)


def identity(egraph: EGraph, match: Match) -> tuple[object, ...]:
    """A match by the classes of its results and variables."""
    values = [*match.replaced, *(value for _, value in sorted(match.variables.items(), key=lambda one: one[0]))]
    return (match.rule.name, *[egraph.find(egraph.number(egraph.add(value))) for value in values])
