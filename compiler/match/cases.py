"""Guards and right sides are looked at once for each guard key; whatever matches with a key that was seen is only put in.

A guard key is all that guards and a right side can ask: types and constness of the tensors, which of them are the same, numbers that
constants hold everywhere, attributes. A network with a hundred equal blocks has a hundred matches of a rule, and one key.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dslc.errors import DslcError
from dslc.ir.graph import Value, Values
from dslc.match.guards import environment, solved
from dslc.match.index import Index
from dslc.match.pattern import Result
from dslc.match.prefilter import kind_at
from dslc.match.recipe import Make, Recipe, Refused, leaf, recipe
from dslc.match.rule import CompiledRule, Placed
from dslc.match.state import MatchState
from dslc.match.substitutions import PartSubstitution, joined
from dslc.semantics.env import Env, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import rules_cache
from dslc.syntax import tree as t


@dataclass(slots=True)
class GuardCase:
    """Facts of all matches of one guard key: the values of all names, and of `search` parameters (one match for each).

    `recipes` are the right sides built so far, or why they cannot be, by the number of the choice.
    """

    names: Mapping[str, Any]
    choices: tuple[Mapping[str, Any], ...]
    recipes: dict[int, Recipe | str] = field(default_factory=dict)


Verdict = GuardCase | Mismatch | DslcError | Unbound


class Cases:
    """The guard keys of one rule that were met so far."""

    def __init__(self, rule: CompiledRule) -> None:
        self._rule = rule
        side = rule.left
        self._variables = tuple(sorted(side.variables))
        self._results = tuple(dict.fromkeys(p for p in side.names.values() if isinstance(p, Result)))
        self._known: dict[Any, Verdict] = {}

    def __len__(self) -> int:
        return sum(isinstance(found, GuardCase) for found in self._known.values())

    def of(self, order: Sequence[Placed], ways: Sequence[PartSubstitution]) -> tuple[Values, Verdict]:
        """The tensors with names of a structural match, each once, and its case, or why it has none.

        `order` has the parts of the ways.
        """
        tensors: Values = ()
        codes: tuple[int, ...] = ()
        for way in ways:
            tensors, codes = tensors + way.tensors, codes + way.codes
        shared: tuple[int, ...] = ()
        if len(set(codes)) < len(codes):
            shared = tuple(map(codes.index, codes))
            tensors = tuple([tensors[k] for k, first in enumerate(shared) if k == first])
        # `order` is the same object wherever parts come in the same order
        key = (order, shared, *[way.signature for way in ways])
        found = self._known.get(key)
        if not found:
            found = self._known[key] = self._judged(state_of(order, ways))
        return tensors, found

    def _judged(self, state: MatchState) -> Verdict:
        try:
            names = solved(self._rule, state)
            admitted = self._rule.admitted
            if admitted is not None and not any(types.fits(names) for types in admitted):
                raise Mismatch(admitted[0].missed(admitted, names), self._rule.span)
            return GuardCase(names, tuple(_choices(self._rule, state, names)))
        except (Mismatch, DslcError, Unbound) as problem:
            return problem

    def replacement(
        self,
        order: Sequence[Placed],
        ways: Sequence[PartSubstitution],
        index: Index,
        leaves: Sequence[Value],
        case: GuardCase,
        choice: int,
        make: Make | None = None,
    ) -> Values:
        """Build the value of the right side for each root; `make` makes its nodes, where they are no nodes as such.

        Raises:
            Refused: it has no value here, or one of another type.
        """
        found = case.recipes.get(choice)
        if found is None:
            # what holds one number stays what it is: guards and attributes may ask for the number
            made = [v if isinstance(kind_at(v, index), Value) else leaf(k, v) for k, v in enumerate(leaves)]
            try:
                over = self._over(dict(zip(leaves, made, strict=True)), state_of(order, ways))
                found = recipe(self._rule, over, case.names, case.choices[choice], made)
            except Refused as problem:
                found = str(problem)
            case.recipes[choice] = found
        if isinstance(found, str):
            raise Refused(found)
        return found.built(self._rule.rules, leaves, index.memory.made) if make is None else found.over(leaves, make)

    def _over(self, leaf_of: Mapping[Value, Value], state: MatchState) -> MatchState:
        """The match with leaves for its named tensors."""
        results = {site: list(found) for site, found in state.results.items()}
        for pattern in self._results:
            results[pattern.site][pattern.output] = leaf_of[state.results[pattern.site][pattern.output]]
        return state._replace(
            values={name: leaf_of[state.values[name]] for name in self._variables},
            results={site: tuple(found) for site, found in results.items()},
        )


def state_of(order: Sequence[Placed], ways: Sequence[PartSubstitution]) -> MatchState:
    """All parts together, in the names of the rule."""
    return functools.reduce(joined, [part.own(way.state) for part, way in zip(order, ways, strict=True)])


def cases_of(rule: CompiledRule) -> Cases:
    """The cases of a rule, kept as long as its library."""
    # the rule itself and not its name: one rule may be compiled once for each mode of an operator
    known: dict[CompiledRule, Cases] = rules_cache(rule.rules, "cases")
    if rule not in known:
        known[rule] = Cases(rule)
    return known[rule]


def _choices(rule: CompiledRule, state: MatchState, names: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every combination of the values of `search` parameters."""
    searches = [s for s in rule.right if isinstance(s, t.Search)]

    def go(k: int, env: Env, chosen: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if k == len(searches):
            yield chosen
            return
        domain = evaluate(searches[k].domain, env)
        for value in domain if isinstance(domain, tuple) else (domain,):
            inner = env.child()
            inner.bind(searches[k].name, value)
            yield from go(k + 1, inner, {**chosen, searches[k].name: value})

    return go(0, environment(rule, state, names), {})
