"""Guards that make a rule hold: found by examples, weakest first, and then proved.

Random instances of a rule are compared. Where some differ, conditions of a stated vocabulary (`words`) are tried as further
guards, alone and two together. A guard stays a candidate while no instance that meets it differs; of the candidates the one that
most instances meet is the weakest. The provers then say whether it is enough; what they refute is no guard.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from dslc.errors import Diagnostic, DslcError, Fix, SourceText, Span
from dslc.interpret.check_rule import compare
from dslc.interpret.draws import SIGNED
from dslc.interpret.instantiate import Instance, Rejected, instantiate, term_choices
from dslc.prove.guards.words import vocabulary
from dslc.prove.verdict import Verdict
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.env import AttrSet, Env, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate, truth
from dslc.semantics.library import Rules
from dslc.syntax import tree as t
from dslc.syntax.parser import parse

DRAWS = 400  #: draws of instances at first
MORE_DRAWS = 4000  #: draws where these were too few
ASKED = 10  #: guards that a prover is asked for
FEW = 8  #: instances of either kind, equal and different, that are enough
MOST_TRIED = 24  #: guards that are tried, the weakest first
ENOUGH = 4  #: instances that meet a guard, without which it says nothing
CHECKED = 16  #: instances on which a guard is checked
ATTEMPTS = 800  #: draws for these
OPERATORS = 24  #: in the place of a term: enough that some have a property and some have not
TELLING = 100  #: so many instances that differ tell that hardly any agrees
COMPARISON = 4  #: steps of a draw that fits and is compared; one that fits nothing is a step
STEPS = 4000.0  #: steps for the guards of one rule among many: some seconds
#: share of instances that meet a guard; one that hardly any instance meets makes a rule right and useless
USEFUL = 0.05

_MOST = {True: 120, False: 40}

#: the reason of a verdict that says which guards there are
SEARCHED = "guards were looked for"

Prover = Callable[[Rules, SubstitutionDef], Verdict]


@dataclass
class _Work:
    """What a search may still take: steps of draws, which every machine counts alike, and processor time until a moment."""

    steps: float
    ends: float

    @property
    def is_over(self) -> bool:
        return self.steps <= 0 or time.process_time() > self.ends


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
    rules: Rules,
    sub: SubstitutionDef,
    seed: int = 0,
    prover: Prover | None = None,
    most: int = 3,
    seconds: float = inf,
    steps: float = inf,
    least: float = 0.0,
) -> tuple[Guard, ...]:
    """The weakest guards from the vocabulary under which no instance was found to differ; the first that is proved alone, where one is.

    Empty where no instance differs without a guard, or no guard of at most two conditions helps.

    Args:
        seconds: of processor time, after which nothing more is tried.
        steps: of drawing and comparing instances, after which nothing more is tried: what is found then depends on no clock.
        least: the share of the instances that a guard has to keep.
    """
    rng, work = np.random.default_rng(seed), _Work(steps, time.process_time() + seconds)
    samples = _samples(rules, sub, rng, work, least)
    if all(holds for _, holds in samples) or sum(holds for _, holds in samples) < least * len(samples):
        return ()
    telling = [each for each in samples if all(len(value) for value in _lists(each[0]))]
    samples = telling if any(not holds for _, holds in telling) else samples
    table = _table(rules, sub, samples)
    bad = [k for k, (_, holds) in enumerate(samples) if not holds]
    found: list[Guard] = []
    asked = 0
    for size in (1, 2):
        covered: list[frozenset[int]] = []
        for conditions in _candidates(table, bad, len(samples), size):
            if work.is_over or len(found) >= most:
                break
            met = frozenset(k for k in range(len(samples)) if all(table[c][k] is True for c in conditions))
            guard = Guard(conditions, len(met) / len(samples))
            # what meets it meets a guard that was found before: no weaker one
            known = any(met <= before for before in covered if met or not before)
            if known or guard.kept < least or not _stands(rules, sub, conditions, rng, work):
                continue
            if prover is not None and asked < ASKED:
                guard, asked = _asked(rules, sub, guard, prover, work), asked + 1
            answer = "" if guard.verdict is None else guard.verdict.answer
            if answer == "equal":
                return (guard,)
            if answer != "differs":
                found.append(guard)
                covered.append(met)
        if found:
            break
    return tuple([each for each in found if each.kept] or found)


def guards_verdict(rules: Rules, sub: SubstitutionDef, seed: int = 0) -> Verdict:
    """The guards that are worth a proof, as far as a fixed number of steps finds them; every process finds the same."""
    began = time.perf_counter()
    found = tuple(guard.text for guard in find_guards(rules, sub, seed, steps=STEPS, least=USEFUL))
    return Verdict("field", "unknown", round((time.perf_counter() - began) * 1e3, 3), SEARCHED, guards=found)


def _asked(rules: Rules, sub: SubstitutionDef, guard: Guard, prover: Prover, work: _Work) -> Guard:
    """A guard with the prover's verdict, as long as there is time."""
    if work.is_over:
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


def _samples(
    rules: Rules, sub: SubstitutionDef, rng: np.random.Generator, work: _Work, least: float
) -> list[tuple[Mapping[str, Any], bool]]:
    """Instances that agree and that differ: at most so many of each, from more draws where few fit.

    No more are drawn where too few agree for any guard, or where no condition tells those that differ from others.
    """
    out: list[tuple[Mapping[str, Any], bool]] = []
    counts = {True: 0, False: 0}
    # drawing takes at most half of what there is
    part = _Work(work.steps / 2, time.process_time() + (work.ends - time.process_time()) / 2)
    before = part.steps
    for draws in (DRAWS, MORE_DRAWS):
        for instance, holds in _compared(rules, sub, rng, draws, part):
            if counts[holds] < _MOST[holds]:
                out.append((instance.drawn, holds))
            counts[holds] += 1
            hopeless = counts[False] >= TELLING and counts[True] < least / 2 * sum(counts.values())
            if all(counts[each] >= _MOST[each] for each in counts) or hopeless or part.is_over:
                break
        else:
            if min(counts.values()) >= FEW or (counts[False] and len(out) >= _MOST[True] // 2):
                break
            if counts[False] < _MOST[False] or _conceivable(rules, sub, out):
                continue
        break
    work.steps -= before - part.steps if before < inf else 0
    return out


def _conceivable(rules: Rules, sub: SubstitutionDef, samples: Sequence[tuple[Mapping[str, Any], bool]]) -> bool:
    """Whether some guard is met by none of the samples that differ."""
    wrong = [each for each in samples if not each[1]]
    table, bad = _table(rules, sub, wrong), range(len(wrong))
    return any(_candidates(table, bad, len(wrong), size) for size in (1, 2))


def _table(
    rules: Rules, sub: SubstitutionDef, samples: Sequence[tuple[Mapping[str, Any], bool]]
) -> dict[str, list[bool | None]]:
    """Which conditions of the vocabulary hold of which samples."""
    words = vocabulary(sub, [drawn for drawn, _ in samples])
    return {text: [_holds(rules, sub, text, drawn) for drawn, _ in samples] for text in words}


def _compared(
    rules: Rules, sub: SubstitutionDef, rng: np.random.Generator, attempts: int, work: _Work
) -> Iterator[tuple[Instance, bool]]:
    """Random instances that compute something, and whether the sides agree on them."""
    choices = list(term_choices(rules, sub, rng, OPERATORS))
    for attempt in range(attempts):
        if work.is_over:
            return
        work.steps -= 1
        try:
            instance = instantiate(rules, sub, rng, choices[attempt % len(choices)], draws=SIGNED)
            if not any(value.type.elements for value in (*instance.left.values(), *instance.right.values())):
                continue
            work.steps -= COMPARISON
            verdict = compare(rules, sub, instance, rng)
        except (Rejected, DslcError):
            # an operator in the place of a term may have no value at these attributes
            continue
        if verdict is not None:
            yield instance, not isinstance(verdict, Diagnostic)


def _stands(
    rules: Rules, sub: SubstitutionDef, conditions: Sequence[str], rng: np.random.Generator, work: _Work
) -> bool:
    """Whether some instances meet a guard, and all of them agree."""
    met = 0
    for _, holds in _compared(rules, guarded(sub, conditions), rng, ATTEMPTS, work):
        if not holds:
            return False
        met += 1
        if met == CHECKED:
            break
    return met >= ENOUGH


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
        # of two that are met equally often, the one about attributes says more; what no sample meets by chance is special
        length = sum(map(len, conditions))
        return (
            -met,
            any(text[:1].isupper() or text.startswith("all(") for text in conditions),
            length if met else -length,
        )

    return sorted(good, key=weight)[:MOST_TRIED]


def _lists(drawn: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for value in drawn.values():
        if isinstance(value, tuple):
            yield value
        elif isinstance(value, AttrSet):
            yield from _lists(value.values)


def _holds(rules: Rules, sub: SubstitutionDef, text: str, drawn: Mapping[str, Any]) -> bool | None:
    """Whether a condition holds of a sample, which one that does not fit it does not; None where it has no meaning there."""
    env = Env(sub.module, rules)
    for name, value in drawn.items():
        env.bind(name, value)
    try:
        value = truth(evaluate(_parsed(text), env))
    except (Mismatch, IndexError):
        return False
    except (Unbound, DslcError, ArithmeticError, TypeError):
        return None
    return value if isinstance(value, bool) else None


_CACHE: dict[str, t.Expr] = {}


def _parsed(text: str) -> t.Expr:
    """A condition as syntax."""
    if text not in _CACHE:
        source = SourceText(
            "guard", f"dslc 1\nsubstitution guard(X: T[]) -> Y {{\n  Y = X\n  where {text}\n  =>\n  Y = X\n}}\n"
        )
        (item,) = (item for item in parse(source).items if isinstance(item, t.Substitution))
        _CACHE[text] = next(c for s in item.left if isinstance(s, t.Where) for c in s.conditions)
    return _CACHE[text]
