"""Every rule finds the same places, in the same order, as the first matcher did, which tried every rule at every node.

    python tests/search/test_match_golden.py     # writes the golden file again, with the matcher at hand

Rules whose text has changed since the file was written are left out; new ones are too.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_match_random import BASES, STEPS, build

from benchmarks.zoo import build as network
from dslc.ir.graph import Graph
from dslc.match import CompiledRule, GraphIndex, Match, find_matches
from dslc.match.apply import replacements
from dslc.match.recipe import Refused
from dslc.onnx.importer import import_model
from dslc.search.runs.selection import chosen_rules
from dslc.semantics.library import Rules
from tests.libraries import libraries

GOLDEN = Path(__file__).with_name("golden_matches.json")
MODELS = ("nasrnn", "nasnet_pools", "bert", "resnext50", "nasnet_a")
RANDOM = 16


@functools.cache
def library() -> tuple[Rules, tuple[CompiledRule, ...]]:
    rules = libraries("std", "taso_generated")
    return rules, tuple(chosen_rules(rules))


def graph(name: str) -> Graph:
    """A small network of the zoo, or a random graph of a number."""
    rules, _ = library()
    if not name.isdecimal():
        return import_model(network(name, small=True, weights=False), rules).graph
    rng = random.Random(int(name))
    steps = [(rng.randrange(len(STEPS)), *(rng.randrange(n) for n in (4, 4, 6))) for _ in range(rng.randrange(6, 24))]
    return build(rules, rng.randrange(len(BASES)), steps)


def text_of(rule: CompiledRule) -> str:
    """A rule's text, as a few letters."""
    return digest(" ".join(rule.definition.syntax.span.text.split()))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def is_unchanged(rule: CompiledRule, golden: dict[str, str]) -> bool:
    """True where a rule is as it was, or has got no more than its word about special numbers, on which no match depends."""
    text = " ".join(rule.definition.syntax.span.text.split())
    before = text.replace(" verify numerics = nonfinite", "").replace("[reassociates, nonfinite]", "reassociates")
    return golden.get(rule.name) in {text_of(rule), digest(before)}


def found(name: str) -> dict[str, list[int | str]]:
    """For every rule that matches: its matches, those that can be applied, and a digest of all places in their order."""
    model = graph(name)
    index = GraphIndex(model)
    places: dict[str, list[str]] = {}
    applied: Counter[str] = Counter()
    for rule in library()[1]:
        for match in find_matches(rule, index):
            values = [value for _, value in match.roots] + [match.variables[name] for name in sorted(match.variables)]
            place = " ".join(f"{index.position.get(value.node, '?')}.{value.index}" for value in values)
            places.setdefault(rule.name, []).append(place)
            try:
                replacements(match)
                applied[rule.name] += 1
            except Refused:
                continue
    return {
        rule: [len(every), applied[rule], hashlib.sha256("\n".join(every).encode()).hexdigest()[:8]]
        for rule, every in places.items()
    }


@pytest.mark.parametrize("name", [*MODELS, *map(str, range(RANDOM))])
def test_the_same_places_in_the_same_order(name: str) -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    unchanged = {rule.name for rule in library()[1] if is_unchanged(rule, golden["rules"])}
    now = {rule: values for rule, values in found(name).items() if rule in unchanged}
    assert now == {rule: values for rule, values in golden["found"][name].items() if rule in unchanged}


@pytest.mark.parametrize("name", ["nasrnn", *map(str, range(6))])
def test_parts_joined_are_what_is_found_one_after_the_other(name: str) -> None:
    """An explanation looks for each part beside those before it, without joining: it finds the same places of all such rules."""
    model = graph(name)
    index, single = GraphIndex(model), GraphIndex(model)
    single.memory.few = True
    some = 0
    for rule in library()[1]:
        if len(rule.left.tops) < 2:
            continue
        joined = {match.key for match in find_matches(rule, index)}
        explained = {match.key for match in find_matches(rule, single) if not circular(match)}
        assert joined == explained, rule.name
        some += len(joined)
    assert some or name != "nasrnn"


def circular(match: Match) -> bool:
    """Whether a tensor of a match is computed from one of several results that it would replace: nothing can be built from it."""
    roots = [value for _, value in match.roots]
    return len({value.node for value in roots}) > 1 and match.index.depends(match.variables.values(), roots)


def test_most_rules_are_compared() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    unchanged = {rule.name for rule in library()[1] if is_unchanged(rule, golden["rules"])}
    assert len({rule for one in golden["found"].values() for rule in one} & unchanged) > 100


if __name__ == "__main__":
    found_now = {name: found(name) for name in (*MODELS, *map(str, range(RANDOM)))}
    parts = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in found_now.items()]
    texts = json.dumps({rule.name: text_of(rule) for rule in library()[1]})
    GOLDEN.write_text('{"found": {\n' + ",\n".join(parts) + '\n },\n "rules": ' + texts + "}\n", encoding="utf-8")
