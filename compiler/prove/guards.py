"""Guards that make a rule hold: found by examples, weakest first, and then proved.

Random instances of a rule are compared. Where some differ, conditions of a stated vocabulary are tried as further guards, alone and
two together: sizes that are equal or 1, groups and strides that are 1, pads that are 0 or those of SAME padding, divisibility, flags,
relations between axes and ranks, lists that are equal or that continue one another. A guard stays a candidate while no instance
that meets it differs; of the candidates the one that most instances meet is the weakest. The provers then say whether it is enough.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from dslc.errors import Diagnostic, DslcError, Fix, Source, Span
from dslc.interpret.check_rule import compare, term_choices
from dslc.interpret.instantiate import Instance, Rejected, instantiate
from dslc.prove.ranks import packs_of
from dslc.prove.verdict import Verdict
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.env import AttrSet, Env, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate, truth
from dslc.semantics.library import Rules
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t
from dslc.syntax.parser import parse

_DRAWS = 400
_MOST_DIFFERING = 40
_MOST_TRIED = 24
_ENOUGH = 4
_CHECKED = 16
_ATTEMPTS = 800

Prover = Callable[[Rules, SubstitutionDef], Verdict]


@dataclass(frozen=True, slots=True)
class Guard:
    """Conditions under which a rule holds, as text for its `where`.

    `kept`: the share of the random instances that meet them; `verdict`: what the prover says of the rule with the guard, None where
    none was asked.
    """

    conditions: tuple[str, ...]
    kept: float
    verdict: Verdict | None = None

    @property
    def text(self) -> str:
        return ", ".join(self.conditions)


def find_guards(
    rules: Rules, sub: SubstitutionDef, seed: int = 0, prover: Prover | None = None, most: int = 3, seconds: float = inf
) -> tuple[Guard, ...]:
    """The weakest guards from the vocabulary under which no instance was found to differ, proved ones first.

    Empty where no instance differs without a guard, or no guard of at most two conditions helps. After `seconds` of processor time
    nothing more is tried.
    """
    rng, ends = np.random.default_rng(seed), time.process_time() + seconds
    samples = _samples(rules, sub, rng, ends)
    differing = [drawn for drawn, holds in samples if not holds]
    if not differing:
        return ()
    telling = [each for each in samples if all(len(value) for value in _lists(each[0]))]
    samples = telling if any(not holds for _, holds in telling) else samples
    words = _vocabulary(sub, [drawn for drawn, _ in samples])
    table = {text: [_holds(rules, sub, text, drawn) for drawn, _ in samples] for text in words}
    bad = [k for k, (_, holds) in enumerate(samples) if not holds]
    found: list[Guard] = []
    covered: list[frozenset[int]] = []
    for size in (1, 2):
        for conditions in _candidates(table, bad, len(samples), size):
            if time.process_time() > ends:
                break
            met = frozenset(k for k in range(len(samples)) if all(table[c][k] is True for c in conditions))
            # what meets it meets a guard that was found before: no weaker one
            if any(met <= before for before in covered if met or not before) or not _stands(rules, sub, conditions, rng):
                continue
            found.append(Guard(conditions, len(met) / len(samples)))
            covered.append(met)
            if len(found) == most:
                break
        if found:
            break
    if prover is not None:
        found = [_asked(rules, sub, each, prover, ends) for each in found]
        found.sort(key=lambda each: each.verdict is None or each.verdict.answer != "equal")
    return tuple(found)


def _asked(rules: Rules, sub: SubstitutionDef, guard: Guard, prover: Prover, ends: float) -> Guard:
    """A guard with the prover's verdict, as long as there is time."""
    if time.process_time() > ends:
        return guard
    return replace(guard, verdict=prover(rules, guarded(sub, guard.conditions)))


def guard_diagnostics(sub: SubstitutionDef, guards: Sequence[Guard]) -> tuple[Diagnostic, ...]:
    """E0511 for the best guard, with the edit that puts it into the rule, and the others as alternatives."""
    if not guards:
        return ()
    best, *others = guards
    shown = best.verdict is not None and best.verdict.answer == "equal"
    how = "it is proved" if shown else "no counterexample is known"
    scope = f" ({best.verdict.scope})" if shown and best.verdict is not None and best.verdict.scope else ""
    also = f"; or `where {'`, `where '.join(each.text for each in others)}`" if others else ""
    span = _before_arrow(sub)
    return (
        Diagnostic(
            "E0511",
            f"`{sub.name}` holds only under a condition",
            sub.syntax.span,
            hint=f"with `where {best.text}` {how}{scope}{also}",
            fix=None if span is None else Fix(span, f"where {best.text}\n  "),
        ),
    )


def guarded(sub: SubstitutionDef, conditions: Sequence[str]) -> SubstitutionDef:
    """The rule with more guards."""
    where = t.Where(tuple(_parsed(text) for text in conditions), span=sub.syntax.span)
    return replace(sub, syntax=replace(sub.syntax, left=(*sub.syntax.left, where)))


def _before_arrow(sub: SubstitutionDef) -> Span | None:
    """The place of the arrow, before which a guard is inserted."""
    source, start = sub.syntax.span.source, max((s.span.end for s in sub.syntax.left), default=sub.syntax.span.start)
    at = source.text.find(sub.syntax.arrow, start, sub.syntax.span.end)
    return Span(source, at, at) if at >= 0 else None


# ---- examples ---------------------------------------------------------------------------------------------------


def _samples(rules: Rules, sub: SubstitutionDef, rng: np.random.Generator, ends: float) -> list[tuple[Mapping[str, Any], bool]]:
    out: list[tuple[Mapping[str, Any], bool]] = []
    differing = 0
    for instance, holds in _compared(rules, sub, rng, _DRAWS):
        differing += not holds
        if holds or differing <= _MOST_DIFFERING:
            out.append((instance.drawn, holds))
        if len(out) >= _MOST_DIFFERING * 4 or time.process_time() > ends:
            break
    return out


def _compared(
    rules: Rules, sub: SubstitutionDef, rng: np.random.Generator, attempts: int
) -> Iterator[tuple[Instance, bool]]:
    """Random instances, and whether the sides agree on them."""
    choices = list(term_choices(rules, sub, rng, 3))
    for attempt in range(attempts):
        try:
            instance = instantiate(rules, sub, rng, choices[attempt % len(choices)])
        except (Rejected, IndexError):
            continue
        verdict = compare(rules, sub, instance, rng)
        if verdict is not None:
            yield instance, not isinstance(verdict, Diagnostic)


def _stands(rules: Rules, sub: SubstitutionDef, conditions: Sequence[str], rng: np.random.Generator) -> bool:
    """Whether some instances meet a guard, and all of them agree."""
    met = 0
    for _, holds in _compared(rules, guarded(sub, conditions), rng, _ATTEMPTS):
        if not holds:
            return False
        met += 1
        if met == _CHECKED:
            break
    return met >= _ENOUGH


def _candidates(
    table: Mapping[str, Sequence[bool | None]], bad: Sequence[int], count: int, size: int
) -> list[tuple[str, ...]]:
    """Conjunctions that no differing sample meets, those first that most samples meet; each part is needed."""
    usable = {text: values for text, values in table.items() if None not in values and not all(values)}
    useful = {text: frozenset(k for k in bad if not values[k]) for text, values in usable.items()}
    everything = frozenset(bad)
    good: list[tuple[str, ...]]
    if size == 1:
        good = [(text,) for text in usable if useful[text] == everything]
    else:
        some = [text for text in usable if useful[text] and useful[text] != everything]
        good = [pair for pair in itertools.combinations(some, 2) if useful[pair[0]] | useful[pair[1]] == everything]

    def weight(conditions: tuple[str, ...]) -> tuple[int, bool, int]:
        met = sum(all(usable[text][k] for text in conditions) for k in range(count))
        # of two that are met equally often, the one about attributes says more
        return -met, any(text[:1].isupper() or text.startswith("all(") for text in conditions), sum(map(len, conditions))

    return sorted(good, key=weight)[:_MOST_TRIED]


def _lists(drawn: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for value in drawn.values():
        if isinstance(value, tuple):
            yield value
        elif isinstance(value, AttrSet):
            yield from _lists(value.values)


# ---- vocabulary ---------------------------------------------------------------------------------------------------


def _vocabulary(sub: SubstitutionDef, samples: Sequence[Mapping[str, Any]]) -> list[str]:
    """The conditions that are tried, about the names of a rule."""
    kinds: dict[str, str] = {}
    for drawn in samples:
        for name, value in drawn.items():
            for full, kind in _named(name, value):
                # one number stands for every entry of a list
                kinds[full] = kind if kinds.get(full, kind) == kind else "list"
    ints = [name for name, kind in kinds.items() if kind == "int"]
    lists = [name for name, kind in kinds.items() if kind == "list"]
    packs = packs_of(sub)
    sizes = {node.id for param in sub.syntax.params for node in walk_expr(param.type) if isinstance(node, t.Name)}
    out: dict[str, None] = {}
    for name, kind in kinds.items():
        if kind == "bool":
            out.update({name: None, f"not {name}": None})
        elif kind == "int":
            tests: tuple[str, ...] = ("== 1", "> 1", "== 2")
            if name not in sizes:
                tests = (*tests, "== 0", ">= 0", ">= 1", "!= 0")
            out.update(dict.fromkeys(f"{name} {test}" for test in tests))
            out.update(dict.fromkeys(f"{name} == rank({pack}){after}" for pack in packs for after in ("", " - 1")))
        elif kind == "list":
            tests = ("== 1", "% 2 == 1") if name in packs else ("== 1", "== 0", ">= 0", ">= 1", "% 2 == 1")
            out.update(dict.fromkeys(f"all({name} {test})" for test in tests))
    out.update((f"{a} == {b}", None) for a, b in itertools.combinations(ints, 2))
    out.update((f"{a} % {b} == 0", None) for a, b in itertools.permutations(ints, 2) if "." not in a)
    out.update((f"{a} == {b}", None) for a, b in itertools.combinations(lists, 2))
    out.update((f"rank({a}) == rank({b})", None) for a, b in itertools.combinations(packs, 2))
    free = [name for name in lists if name not in packs]
    for group in (lists, ints):
        for a, b, c in itertools.permutations(group, 3):
            if a not in packs and a not in sizes and b < c:
                out[f"{a} == {b} + {c}"] = None
    out.update((f"{p} == [*(({k} - 1) // 2), *({k} // 2)]", None) for p, k in itertools.permutations(lists, 2) if p in free)
    return list(out)


def _named(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, AttrSet):
        for key, part in value.values.items():
            yield from _named(f"{name}.{key}", part)
    elif isinstance(value, bool):
        yield name, "bool"
    elif isinstance(value, int):
        yield name, "int"
    elif isinstance(value, tuple) and all(isinstance(part, int) and not isinstance(part, bool) for part in value):
        yield name, "list"


def _holds(rules: Rules, sub: SubstitutionDef, text: str, drawn: Mapping[str, Any]) -> bool | None:
    """Whether a condition holds of a sample; None where it has no meaning there."""
    env = Env(sub.module, rules)
    for name, value in drawn.items():
        env.bind(name, value)
    try:
        value = truth(evaluate(_parsed(text), env))
    except (Mismatch, Unbound, DslcError, ArithmeticError, TypeError, IndexError):
        return None
    return value if isinstance(value, bool) else None


_CACHE: dict[str, t.Expr] = {}


def _parsed(text: str) -> t.Expr:
    """A condition as syntax."""
    if text not in _CACHE:
        source = Source("guard", f"dslc 1\nsubstitution guard(X: T[]) -> Y {{\n  Y = X\n  where {text}\n  =>\n  Y = X\n}}\n")
        (item,) = (item for item in parse(source).items if isinstance(item, t.Substitution))
        _CACHE[text] = next(c for s in item.left if isinstance(s, t.Where) for c in s.conditions)
    return _CACHE[text]
