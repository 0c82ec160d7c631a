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
from dslc.ir.graph import Value, with_args
from dslc.match.guards import environment, freeze, solved
from dslc.match.index import Index
from dslc.match.outline import kind_at
from dslc.match.pattern import Result
from dslc.match.recipe import Make, Recipe, Refused, leaf, recipe
from dslc.match.rule import CompiledRule
from dslc.match.state import AttributeEquals, NumberEquals, Pending, State
from dslc.match.ways import Way, joined
from dslc.semantics.apply import rules_cache
from dslc.semantics.env import Env, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.syntax import tree as t


@dataclass(slots=True)
class Case:
    """What holds for all matches of one guard key: the values of all names, and of `search` parameters (one match for each).

    `recipes` are the right sides built so far, or why they cannot be, by the number of the choice.
    """

    names: Mapping[str, Any]
    choices: tuple[Mapping[str, Any], ...]
    recipes: dict[int, Recipe | str] = field(default_factory=dict)


Verdict = Case | Mismatch | DslcError | Unbound


class Cases:
    """The guard keys of one rule that were met so far."""

    def __init__(self, rule: CompiledRule) -> None:
        self._rule = rule
        side = rule.left
        self._variables = tuple(sorted(side.variables))
        self._results = tuple(dict.fromkeys(p for p in side.names.values() if isinstance(p, Result)))
        self._binds = tuple(sorted(side.binds))
        self._looks: dict[Any, int] = {}
        self._known: dict[Any, Verdict] = {}

    def __len__(self) -> int:
        return sum(isinstance(found, Case) for found in self._known.values())

    def way(self, state: State, index: Index, top: int | None) -> Way:
        """A state of the part under `top`, or of all parts, with what its guard key is made of."""
        values, results, names, memory = state.values, state.results, state.names, index.memory
        here = [name for name in self._variables if name in values]
        tensors = [values[name] for name in here]
        tensors += [results[p.site][p.output] for p in self._results if p.site in results]
        look = (
            top,
            tuple([kind_at(value, index) for value in tensors]),
            tuple([freeze(names[name]) if name in names else None for name in self._binds]),
            tuple([_pending_key(item) for item in state.pending]),
        )
        code = memory.codes
        codes = tuple([code.setdefault(value, len(code)) for value in tensors])
        roots: dict[int, Value] = {}
        for k, (_, pattern) in enumerate(self._rule.left.roots):
            if pattern.site in results:
                wrap = state.wraps.get(pattern.site)
                # of a longer associative call the whole is replaced
                roots[k] = results[pattern.site][pattern.output] if wrap is None else index.results(wrap.node)[0]
        chosen = [(site, frozenset([wrap.operands[k] for k in wrap.chosen])) for site, wrap in state.wraps.items()]
        identity = (*[code.setdefault(value, len(code)) for value in roots.values()], *codes[: len(here)], *chosen)
        return Way(self._rule, index, state, tuple(tensors), codes, self._looks.setdefault(look, len(self._looks)), identity, roots)

    def of(self, ways: Sequence[Way]) -> tuple[tuple[Value, ...], Verdict]:
        """The tensors with names of a structural match, each once, and its case, or why it has none."""
        tensors: tuple[Value, ...] = ()
        codes: tuple[int, ...] = ()
        for way in ways:
            tensors, codes = tensors + way.tensors, codes + way.codes
        shared: tuple[int, ...] = ()
        if len(set(codes)) < len(codes):
            shared = tuple(map(codes.index, codes))
            tensors = tuple([tensors[k] for k, first in enumerate(shared) if k == first])
        key = (shared, *[way.look for way in ways])
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._judged(whole(ways))
        return tensors, found

    def _judged(self, state: State) -> Verdict:
        try:
            names = solved(self._rule, state)
            admitted = self._rule.admitted
            if admitted is not None and not any(types.fits(names) for types in admitted):
                raise Mismatch(f"it is proved only for the element types {', '.join(map(str, admitted))}", self._rule.span)
            return Case(names, tuple(_choices(self._rule, state, names)))
        except (Mismatch, DslcError, Unbound) as problem:
            return problem

    def replacement(
        self, ways: Sequence[Way], index: Index, leaves: Sequence[Value], case: Case, choice: int, make: Make = with_args
    ) -> tuple[Value, ...]:
        """What the right side gives for each root; `make` makes its nodes.

        Raises:
            Refused: it has no value here, or one of another type.
        """
        found = case.recipes.get(choice)
        if found is None:
            # what holds one number stays what it is: guards and attributes may ask for the number
            made = [v if isinstance(kind_at(v, index), Value) else leaf(k, v) for k, v in enumerate(leaves)]
            try:
                over = self._over(dict(zip(leaves, made, strict=True)), whole(ways))
                found = recipe(self._rule, over, case.names, case.choices[choice], made)
            except Refused as problem:
                found = str(problem)
            case.recipes[choice] = found
        if isinstance(found, str):
            raise Refused(found)
        return found.over(leaves, make)

    def _over(self, leaf_of: Mapping[Value, Value], state: State) -> State:
        """The match with leaves for its named tensors."""
        results = {site: list(found) for site, found in state.results.items()}
        for pattern in self._results:
            results[pattern.site][pattern.output] = leaf_of[state.results[pattern.site][pattern.output]]
        return state._replace(
            values={name: leaf_of[state.values[name]] for name in self._variables},
            results={site: tuple(found) for site, found in results.items()},
        )


def whole(ways: Sequence[Way]) -> State:
    """All parts together."""
    return functools.reduce(joined, [way.state for way in ways])


def cases_of(rule: CompiledRule) -> Cases:
    """The cases of a rule, kept as long as its library."""
    # the rule itself and not its name: one rule may be compiled once for each mode of an operator
    known: dict[CompiledRule, Cases] = rules_cache(rule.rules, "cases")
    if rule not in known:
        known[rule] = Cases(rule)
    return known[rule]


def _pending_key(item: Pending) -> Any:
    if isinstance(item, NumberEquals):
        return (item.quoted, freeze(item.number))
    node = item.node
    call = (node.op, node.tag, tuple([arg.node.types[arg.index] for arg in node.args]))
    if isinstance(item, AttributeEquals):
        return (item.quoted, freeze(item.actual), call)
    return (call, item.attrs)


def _choices(rule: CompiledRule, state: State, names: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
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

    if not searches:
        yield {}
        return
    yield from go(0, environment(rule, state, names), {})


__all__ = ["Case", "Cases", "Verdict", "cases_of", "whole"]
