"""Another engine finds the same: random rules over operators without laws, round by round."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from egraphs import check, tensor

from dslc.egraph.graph import EGraph
from dslc.egraph.rewrite import SaturationLimits, saturate
from dslc.ir.graph import Call, Graph, Value
from dslc.search.runs.selection import chosen_rules
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules, load

#: neither of them is commutative or associative: rules match what is written, as the other engine's do
OPERATORS = {"p": 2, "q": 2, "n": 1}
LIBRARY = """dslc 1
operator p(A: T[*S], B: T[*S]) -> Y: T[*S] {\n  Y[*i] = A[*i] * A[*i] + B[*i]\n}
operator q(A: T[*S], B: T[*S]) -> Y: T[*S] {\n  Y[*i] = A[*i] - B[*i] * B[*i]\n}
operator n(A: T[*S]) -> Y: T[*S] {\n  Y[*i] = A[*i] * A[*i] - 3\n}
"""
#: a name, or an operator and what it is applied to
Term = str | tuple[Any, ...]


def random_term(rng: random.Random, leaves: str, depth: int, top: bool = True) -> Term:
    if not depth or (not top and rng.random() < 0.4):
        return rng.choice(leaves)
    op = rng.choice(list(OPERATORS))
    return (op, *(random_term(rng, leaves, depth - 1, False) for _ in range(OPERATORS[op])))


def names_in(term: Term) -> set[str]:
    return {term} if isinstance(term, str) else set().union(*map(names_in, term[1:]))


def random_rules(rng: random.Random, count: int) -> list[tuple[Term, Term]]:
    out: list[tuple[Term, Term]] = []
    while len(out) < count:
        left = random_term(rng, "abc", rng.choice([1, 1, 2]))
        right = random_term(rng, "".join(sorted(names_in(left))), 2, top=rng.random() < 0.7)
        if left != right:
            out.append((left, right))
    return out


def ours(term: Term) -> str:
    return term.upper() if isinstance(term, str) else f"{term[0]}({', '.join(map(ours, term[1:]))})"


def theirs(term: Term, leaf: str) -> str:
    return (
        leaf.format(term)
        if isinstance(term, str)
        else f"({term[0].upper()} {' '.join(theirs(one, leaf) for one in term[1:])})"
    )


def library(folder: Path, rules: list[tuple[Term, Term]]) -> Rules:
    lines = [LIBRARY]
    for k, (left, right) in enumerate(rules):
        names = ", ".join(f"{name.upper()}: T[*S]" for name in sorted(names_in(left)))
        lines.append(f"substitution r{k}({names}) -> Y {{\n  Y = {ours(left)}\n  =>\n  Y = {ours(right)}\n}}\n")
    path = folder / "random.rules"
    path.write_text("".join(lines))
    return load(path)


def built(rules: Rules, term: Term, inputs: dict[str, Value]) -> Value:
    if isinstance(term, str):
        return inputs[term]
    module = next(name for name in rules.operators if name.endswith(f".{term[0]}"))
    return apply(rules, module, [built(rules, one, inputs) for one in term[1:]], {})[0]


@pytest.mark.parametrize("seed", range(12))
def test_after_each_round_there_are_the_same_e_nodes_classes_and_equalities(tmp_path: Path, seed: int) -> None:
    egglog = pytest.importorskip("egglog.bindings")
    rng = random.Random(seed)
    rules, terms = random_rules(rng, rng.randrange(3, 7)), [random_term(rng, "xy", 3) for _ in range(6)]

    loaded = library(tmp_path, rules)
    inputs = {name: tensor(name, 2) for name in "xy"}
    values = [built(loaded, term, inputs) for term in terms]
    egraph = EGraph.of(Graph(tuple(inputs.values()), (*values, *inputs.values())))
    compiled = [rule for rule in chosen_rules(loaded) if not rule.name.endswith("^-1")]
    assert len(compiled) == len(rules)

    other = egglog.EGraph()

    def told(text: str) -> list[Any]:
        return list(other.run_program(*other.parse_program(text)))

    told("(datatype E (X String) (P E E) (Q E E) (N E))")
    for left, right in rules:
        told(f"(rewrite {theirs(left, '{}')} {theirs(right, '{}')})")
    for k, term in enumerate((*terms, "x", "y")):
        told(f"(let t{k} {theirs(term, chr(40) + 'X ' + chr(34) + '{}' + chr(34) + chr(41))})")

    for _ in range(3):
        saturate(egraph, compiled, SaturationLimits(nodes=3_000, rounds=1, matches=100_000, asked=10**9))
        if len(egraph) >= 3_000:
            return
        told("(run 1)")
        check(egraph)
        sizes = {name: int(str(told(f"(print-size {name.upper()})")[0])) for name in OPERATORS}
        found = [node.op.rpartition(".")[2] for node in egraph.memo if isinstance(node, Call)]
        assert {name: found.count(name) for name in OPERATORS} == sizes
        nodes = json.loads(other.serialize([]).to_json())["nodes"].values()
        classes = {node["eclass"] for node in nodes if node["op"] in {"P", "Q", "N", "X"}}
        assert len(classes) == len(egraph.members)
        for (i, one), (j, another) in itertools.combinations(enumerate(egraph.roots), 2):
            try:
                told(f"(check (= t{i} t{j}))")
                same = True
            except Exception as problem:
                assert "Check failed" in str(problem)
                same = False
            assert same == (egraph.find(one) == egraph.find(another))
