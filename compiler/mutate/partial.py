"""Partial substitutions written by hand: what they make of a region is a mutant, and is tested and corrected like the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from dslc.errors import DslcError
from dslc.ir.graph import Graph, Value
from dslc.match import CompiledRule, GraphIndex, Match, Refused, compile_directions, find_matches, replacements
from dslc.mutate.correct import LIMIT
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.env import Env, EvalError, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.syntax import tree as t


@dataclass(frozen=True, slots=True)
class PartialRule:
    """A partial substitution as one that is matched, and the share of the result that may be corrected, which sizes may decide."""

    definition: SubstitutionDef
    rule: CompiledRule
    limit: t.Expr | None


@dataclass(frozen=True, slots=True)
class Applied:
    """What a partial substitution makes of a region: the mutant, and the largest share that may be corrected."""

    rule: str
    value: Value
    limit: float


def compiled(rules: Rules, definitions: Iterable[SubstitutionDef]) -> tuple[PartialRule, ...]:
    """The partial substitutions among some that have `correct auto`, each direction."""
    found = []
    for definition in definitions:
        syntax = definition.syntax
        if not syntax.partial or not corrects_itself(definition):
            continue
        corrections = [one for one in (*syntax.left, *syntax.right) if isinstance(one, t.Correct)]
        left, right = (tuple(one for one in side if not isinstance(one, t.Correct)) for side in (syntax.left, syntax.right))
        plain = replace(definition, syntax=replace(syntax, partial=False, left=left, right=right))
        limit = next((one.limit for one in corrections if one.limit is not None), None)
        found += [PartialRule(definition, rule, limit) for rule in compile_directions(rules, plain)]
    return tuple(found)


def corrects_itself(definition: SubstitutionDef) -> bool:
    """Whether a partial substitution says `correct auto`, and nothing else."""
    return all(one.what == "auto" for one in (*definition.syntax.left, *definition.syntax.right) if isinstance(one, t.Correct))


def applied(rules: Rules, every: Iterable[PartialRule], region: Graph) -> Iterator[Applied]:
    """What partial substitutions make of a region of one result, by the one matcher."""
    (old,) = region.outputs
    index = GraphIndex(region)
    for each in every:
        for match in find_matches(each.rule, index):
            try:
                new = replacements(match).get(old)
            except Refused:
                continue
            if new is not None and new != old:
                yield Applied(each.rule.name, new, _limit(rules, each, match))


def _limit(rules: Rules, rule: PartialRule, match: Match) -> float:
    if rule.limit is None:
        return LIMIT
    env = Env(rule.definition.module, rules)
    for name, value in match.names.items():
        env.bind(name, value)
    try:
        found = evaluate(rule.limit, env)
    except (Unbound, Mismatch, EvalError, DslcError):
        return 0.0
    return float(found) if isinstance(found, int | float | Fraction) else 0.0


__all__ = ["Applied", "PartialRule", "applied", "compiled", "corrects_itself"]
