"""Guards and right sides are looked at once for each guard key; whatever matches with a key that was seen is only put in.

A guard key is all that guards and a right side can ask: types and constness of the tensors, which of them are the same, numbers that
constants hold everywhere, attributes. A network with a hundred equal blocks has a hundred matches of a rule, and one key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dslc.errors import DslcError
from dslc.ir.graph import Value
from dslc.match.guards import environment, freeze, solved
from dslc.match.index import Index
from dslc.match.outline import number_at
from dslc.match.pattern import Result
from dslc.match.recipe import Recipe, Refused, leaf, recipe
from dslc.match.rule import CompiledRule
from dslc.match.state import AttributeEquals, NumberEquals, Pending, State
from dslc.semantics.apply import rules_cache
from dslc.semantics.env import Env, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.syntax import tree as t


class Leaves(NamedTuple):
    """The tensors of a match that have names, each once; constants with a number are no leaves, they stay what they are.

    `pattern` says for every name of the rule which leaf it is, or which constant.
    """

    values: tuple[Value, ...]
    pattern: tuple[int | Value, ...]


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
        self._known: dict[Any, Verdict] = {}

    def __len__(self) -> int:
        return sum(isinstance(found, Case) for found in self._known.values())

    def of(self, state: State, index: Index) -> tuple[Leaves, Case]:
        """The case of a structural match, and its tensors.

        Raises:
            Mismatch, DslcError, Unbound: guards that do not hold, or have no meaning.
        """
        leaves, tokens = self._leaves(state, index)
        names = state.names
        key = (
            leaves.pattern,
            tokens,
            tuple([freeze(names[name]) if name in names else None for name in self._binds]),
            tuple([_pending_key(item) for item in state.pending]),
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._judged(state)
        if isinstance(found, Case):
            return leaves, found
        if isinstance(found, Mismatch):
            raise Mismatch(found.reason, found.span)
        raise found.with_traceback(None)

    def _leaves(self, state: State, index: Index) -> tuple[Leaves, tuple[Any, ...]]:
        values = [state.values[name] for name in self._variables]
        values += [state.results[p.site][p.output] for p in self._results]
        number: dict[Value, int] = {}
        pattern: list[int | Value] = []
        tokens: list[Any] = []
        for value in values:
            if value.constant and number_at(value, index) is not None:
                pattern.append(value)
                continue
            at = number.get(value)
            if at is None:
                at = number[value] = len(number)
                tokens.append(value.node.types[value.index])
                tokens.append(value.constant)
            pattern.append(at)
        return Leaves(tuple(number), tuple(pattern)), tuple(tokens)

    def _judged(self, state: State) -> Verdict:
        try:
            names = solved(self._rule, state)
            return Case(names, tuple(_choices(self._rule, state, names)))
        except (Mismatch, DslcError, Unbound) as problem:
            return problem

    def replacement(self, state: State, leaves: Leaves, case: Case, choice: int) -> tuple[Value, ...]:
        """What the right side gives for each root.

        Raises:
            Refused: it has no value here, or one of another type.
        """
        found = case.recipes.get(choice)
        if found is None:
            try:
                made = [leaf(k, value) for k, value in enumerate(leaves.values)]
                over = self._over_leaves(state, leaves, made)
                found = recipe(self._rule, over, case.names, case.choices[choice], made)
            except Refused as problem:
                found = str(problem)
            case.recipes[choice] = found
        if isinstance(found, str):
            raise Refused(found)
        return found.over(leaves.values)

    def _over_leaves(self, state: State, leaves: Leaves, made: Sequence[Value]) -> State:
        values = [made[entry] if isinstance(entry, int) else entry for entry in leaves.pattern]
        count = len(self._variables)
        results = {site: list(found) for site, found in state.results.items()}
        for pattern, value in zip(self._results, values[count:], strict=True):
            results[pattern.site][pattern.output] = value
        return State(
            dict(zip(self._variables, values, strict=False)),
            state.names,
            state.nodes,
            {site: tuple(found) for site, found in results.items()},
            state.wraps,
            state.pending,
        )


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


__all__ = ["Case", "Cases", "Leaves", "cases_of"]
