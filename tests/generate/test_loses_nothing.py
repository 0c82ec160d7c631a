"""Pruning loses nothing: what all equations connect, the kept rules connect.

Up to two operators over products, sums and transposes: for 100 random equations that were found and pruned, rewriting with the kept
rules alone (24 terms rewritten, of at most two operators more) leads from one side to the other.
"""

from __future__ import annotations

import random
from dataclasses import replace

from handmade import taso

from dslc.generate.enumeration.levels import Enumerator
from dslc.generate.library import generate
from dslc.generate.pruning.derivability import Classes, KnownRules, family_inputs
from dslc.generate.settings import GenerationSettings
from dslc.generate.terms.inputs import Family, InputSizes, families
from dslc.generate.terms.term import Term, applied, input_term, inputs

OPERATORS = ("matmul", "ewadd", "transpose")


def family() -> Family:
    rules = taso()
    (found,) = families(rules, [rules.operators[f"taso.{name}"] for name in OPERATORS], InputSizes())
    return found


def other_names(term: Term, numbers: dict[int, int]) -> Term:
    if term.item is None:
        return input_term(numbers[term.index], term.type)
    return applied(term.item, tuple(other_names(arg, numbers) for arg in term.args), term.output, term.type)


def test_pruned_and_unpruned_rules_reach_the_same_classes() -> None:
    library = generate(replace(GenerationSettings(), operators=OPERATORS, max_operators=3, proof=False))
    equations = list(Enumerator(taso(), ("taso",), family(), 3).run().equations())
    # no classes: only the rules themselves may be used
    known = KnownRules(taso(), Classes(taso(), family_inputs(family().inputs)))
    for rule in library.found:
        known.keep(rule)
    chance = random.Random(5)
    reached = 0
    for _ in range(100):
        equation = chance.choice(equations)
        used = inputs((equation.left, equation.right))
        numbers = dict(zip([t.index for t in used], chance.sample(range(len(used)), len(used)), strict=True))
        left, right = (other_names(side, numbers) for side in (equation.left, equation.right))
        assert known.derivable(right, left) is not None or known.derivable(left, right) is not None, (
            f"{left} == {right}"
        )
        reached += 1
    assert reached == 100


def test_without_a_rule_something_is_lost() -> None:
    library = generate(replace(GenerationSettings(), operators=OPERATORS[:2], max_operators=2, proof=False))
    known = KnownRules(taso(), Classes(taso(), family_inputs(family().inputs)))
    reassociation = [
        rule for rule in library.found if {i.op for t in rule.candidate.sources for i, _ in [t.node]} == {"taso.matmul"}
    ]
    for rule in library.found:
        if rule not in reassociation:
            known.keep(rule)
    assert reassociation
    (source,), (target,) = reassociation[0].candidate.sources, reassociation[0].candidate.targets
    assert known.derivable(source, target) is None
