"""Guards that make a rule hold: found by examples, weakest first, and then proved.

Random instances of a rule are compared. Where some differ, conditions of a stated vocabulary are tried as further guards, alone and two
together. A guard stays a candidate while no instance that meets it differs; of the candidates the one that most instances meet is the
weakest. The provers then say whether it is enough; what they refute is no guard.

The vocabulary are conditions about the names of a rule, by what random instances say of them: sizes that are equal, 1, even or divide
one another; groups and strides that are 1; pads that are 0, those of SAME padding, or larger by what a kernel grows; flags; numbers in
order; relations between axes and ranks; what a reduction leaves; lists that are equal, that continue one another or that broadcast;
permutations that move nothing, or only axes of one element; terms that are pointwise or linear.
"""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, combinations, permutations, product
from math import inf
from typing import Any

import numpy as np

from dslc.errors import Diagnostic, DslcError, Fix, SourceText, Span
from dslc.interpret.check_rule import compare
from dslc.interpret.draws import SIGNED
from dslc.interpret.instantiate import Instance, Rejected, instantiate, term_choices
from dslc.prove.instances.batches import packs_of
from dslc.prove.verdict import Verdict, milliseconds_since
from dslc.records import record
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.env import AttrSet, Env, Mismatch, OperatorRef, Unbound
from dslc.semantics.evaluate import evaluate, truth
from dslc.semantics.library import Rules
from dslc.semantics.walk import conditions_in, names_in
from dslc.syntax import tree as t
from dslc.syntax.parser import parse

DRAWS = 400  #: draws of instances at first
MORE_DRAWS = 4000  #: draws where these were too few
ASKED = 10  #: guards that a prover is asked for
FEW = 8  #: instances of either kind, equal and different, that are enough
MOST_TRIED = 24  #: guards that are tried, the weakest first
MOST_FOUND = 3  #: guards that are proposed
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
#: an instance by what names stand for, and whether the sides agree there
_Samples = Sequence[tuple[Mapping[str, Any], bool]]
_Conditions = tuple[str, ...]
#: of each condition, whether it holds of each sample; None where it has no meaning there
_Table = dict[str, list[bool | None]]


@record
class Guard:
    """Conditions under which a rule holds, as text for its `where`.

    `kept`: the share of the random instances that meet them; `verdict`: what the prover says of the rule with the guard, None where
    none was asked.
    """

    conditions: _Conditions
    kept: float
    verdict: Verdict | None = None

    @property
    def text(self) -> str:
        return ", ".join(self.conditions)


def find_guards(
    rules: Rules, sub: SubstitutionDef, seed: int = 0, prover: Prover | None = None, seconds: float = inf,
    steps: float = inf, least: float = 0.0,
) -> tuple[Guard, ...]:  # fmt: skip
    """The weakest guards from the vocabulary under which no instance was found to differ; the first that is proved alone, where one is.

    Empty where no instance differs without a guard, or no guard of at most two conditions helps.

    Args:
        seconds: of processor time, after which nothing more is tried.
        steps: of drawing and comparing instances, after which nothing more is tried: what is found then depends on no clock.
        least: the share of the instances that a guard has to keep.
    """
    search = _Search(rules, sub, np.random.default_rng(seed), least, steps, time.process_time() + seconds)
    samples = search.samples()
    agree = sum(holds for _, holds in samples)
    if agree == len(samples) or agree < least * len(samples):
        return ()
    telling = [each for each in samples if all(map(len, _lists(each[0])))]
    samples = telling if not all(holds for _, holds in telling) else samples
    table = search.table(samples)
    found: list[Guard] = []
    asked = 0
    for size in (1, 2):
        covered: list[frozenset[int]] = []
        for conditions in _candidates(table, samples, size):
            if search.is_over or len(found) >= MOST_FOUND:
                break
            met = frozenset(k for k in range(len(samples)) if all(table[c][k] is True for c in conditions))
            guard = Guard(conditions, len(met) / len(samples))
            # what meets it meets a guard that was found before: no weaker one
            known = any(met <= before for before in covered if met or not before)
            if known or guard.kept < least or not search.stands(conditions):
                continue
            if prover is not None and asked < ASKED and not search.is_over:
                asked += 1
                guard = replace(guard, verdict=prover(rules, guarded(sub, conditions)))
            answer = guard.verdict.answer if guard.verdict else ""
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
    return Verdict("field", "unknown", milliseconds_since(began), SEARCHED, guards=found)


def guard_diagnostics(sub: SubstitutionDef, guards: Sequence[Guard]) -> tuple[Diagnostic, ...]:
    """E0511 for the best guard, with the edit that puts it into the rule, and the others as alternatives."""
    if not guards:
        return ()
    best, *others = guards
    shown = best.verdict if best.verdict and best.verdict.answer == "equal" else None
    how = "it is proved" if shown else "no counterexample is known"
    scope = f" ({shown.scope})" if shown and shown.scope else ""
    also = f"; or `where {'`, `where '.join(each.text for each in others)}`" if others else ""
    span = sub.span
    # a guard is inserted before the arrow
    start = max((s.span.end for s in sub.left), default=span.start)
    at = span.source.text.find(sub.syntax.arrow, start, span.end)
    fix = Fix(Span(span.source, at, at), f"where {best.text}\n  ") if at >= 0 else None
    hint = f"with `where {best.text}` {how}{scope}{also}"
    return (Diagnostic("E0511", f"`{sub.name}` holds only under a condition", span, hint=hint, fix=fix),)


def guarded(sub: SubstitutionDef, conditions: Sequence[str]) -> SubstitutionDef:
    """The rule with more guards."""
    where = t.Where(tuple(map(_parsed, conditions)), span=sub.span)
    return replace(sub, syntax=replace(sub.syntax, left=(*sub.left, where)))


# ---- examples ---------------------------------------------------------------------------------------------------


@dataclass
class _Search:
    """A search that may still take some steps of draws, which every machine counts alike, and processor time until a moment."""

    rules: Rules
    sub: SubstitutionDef
    rng: np.random.Generator
    least: float
    steps: float
    ends: float

    @property
    def is_over(self) -> bool:
        return self.steps <= 0 or time.process_time() > self.ends

    def samples(self) -> _Samples:
        """Instances that agree and that differ: at most so many of each, from more draws where few fit.

        No more are drawn where too few agree for any guard, or where no condition tells those that differ from others.
        """
        out: list[tuple[Mapping[str, Any], bool]] = []
        counts = {True: 0, False: 0}
        # drawing takes at most half of what there is
        half = (self.ends - time.process_time()) / 2
        part = replace(self, steps=self.steps / 2, ends=time.process_time() + half)
        before = part.steps
        for draws in (DRAWS, MORE_DRAWS):
            for instance, holds in part.compared(self.sub, draws):
                if counts[holds] < _MOST[holds]:
                    out.append((instance.drawn, holds))
                counts[holds] += 1
                hopeless = counts[False] >= TELLING and counts[True] < self.least / 2 * sum(counts.values())
                if all(counts[each] >= _MOST[each] for each in counts) or hopeless or part.is_over:
                    break
            else:
                if min(counts.values()) >= FEW or (counts[False] and len(out) >= _MOST[True] // 2):
                    break
                wrong = [each for each in out if not each[1]]
                if counts[False] < _MOST[False] or any(_candidates(self.table(wrong), wrong, size) for size in (1, 2)):
                    continue
            break
        self.steps -= before - part.steps if before < inf else 0
        return out

    def table(self, samples: _Samples) -> _Table:
        """The conditions of the vocabulary, and whether they hold of the samples."""
        every = [drawn for drawn, _ in samples]
        return {text: [self._holds(text, drawn) for drawn in every] for text in vocabulary(self.sub, every)}

    def compared(self, sub: SubstitutionDef, attempts: int) -> Iterator[tuple[Instance, bool]]:
        """Random instances that compute something, and whether the sides agree on them."""
        choices = list(term_choices(self.rules, sub, self.rng, OPERATORS))
        for attempt in range(attempts):
            if self.is_over:
                return
            self.steps -= 1
            try:
                instance = instantiate(self.rules, sub, self.rng, choices[attempt % len(choices)], draws=SIGNED)
                if not any(value.type.elements for value in (*instance.left.values(), *instance.right.values())):
                    continue
                self.steps -= COMPARISON
                verdict = compare(self.rules, sub, instance, self.rng)
            except (Rejected, DslcError):
                # an operator in the place of a term may have no value at these attributes
                continue
            if verdict is not None:
                yield instance, not isinstance(verdict, Diagnostic)

    def stands(self, conditions: _Conditions) -> bool:
        """Return whether some instances meet a guard, and all of them agree."""
        met = 0
        for _, holds in self.compared(guarded(self.sub, conditions), ATTEMPTS):
            if not holds:
                return False
            met += 1
            if met == CHECKED:
                break
        return met >= ENOUGH

    def _holds(self, text: str, drawn: Mapping[str, Any]) -> bool | None:
        """Return whether a condition holds of a sample, which one that does not fit it does not; None where it has no meaning there."""
        env = Env(self.sub.module, self.rules)
        for name, value in drawn.items():
            env.bind(name, value)
        try:
            value = truth(evaluate(_parsed(text), env))
        except (Mismatch, IndexError):
            return False
        except (Unbound, DslcError, ArithmeticError, TypeError):
            return None
        return value if isinstance(value, bool) else None


def _candidates(table: _Table, samples: _Samples, size: int) -> list[_Conditions]:
    """Conjunctions that no differing sample meets, those first that most samples meet; each part is needed."""
    usable = {text: values for text, values in table.items() if None not in values and not all(values)}
    everything = frozenset(k for k, (_, holds) in enumerate(samples) if not holds)
    useful = {text: frozenset(k for k in everything if not values[k]) for text, values in usable.items()}
    some = [text for text in usable if size == 1 or (useful[text] and useful[text] != everything)]
    good = [group for group in combinations(some, size) if everything == {k for text in group for k in useful[text]}]

    def weight(conditions: _Conditions) -> tuple[int, bool, int]:
        met = sum(all(values) for values in zip(*(usable[text] for text in conditions), strict=True))
        # of two that are met equally often, the one about attributes says more; what no sample meets by chance is special
        length = sum(map(len, conditions))
        special = any(text[:1].isupper() or text.startswith("all(") for text in conditions)
        return -met, special, length if met else -length

    return sorted(good, key=weight)[:MOST_TRIED]


def _lists(drawn: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    return (value for name, each in drawn.items() for _, _, value in _parts(name, each) if isinstance(value, tuple))


@functools.cache
def _parsed(text: str) -> t.Expr:
    """A condition as syntax."""
    rule = f"dslc 1\nsubstitution guard(X: T[]) -> Y {{\n  Y = X\n  where {text}\n  =>\n  Y = X\n}}\n"
    (item,) = (item for item in parse(SourceText("guard", rule)).items if isinstance(item, t.Substitution))
    return conditions_in(item.left)[0]


# ---- the vocabulary ---------------------------------------------------------------------------------------------

_ALONE = {
    "bool": ("{}", "not {}"),
    "term": ("pointwise({})", "linear({})"),
    "size": ("{} == 1", "{} > 1", "{} == 2", "{} % 2 == 0"),
    "int": ("{} == 1", "{} > 1", "{} == 2", "{} == 0", "{} >= 0", "{} >= 1", "{} != 0"),
    "number": ("{} == 0", "{} == 1", "{} >= 0", "{} <= 0", "{} > 0", "{} >= 1", "{} <= 1"),
    "pack": ("all({} == 1)", "all({} % 2 == 1)", "all({} % 2 == 0)"),
    "list": ("all({} == 1)", "all({} == 0)", "all({} >= 0)", "all({} >= 1)", "all({} % 2 == 1)"),
}
_RANK = ("== 0", "== 1", "> 0", "<= 1", "<= 2")

#: the names of a rule by what they stand for; `pack` are the lists of sizes among its types, `order` permutations
_Names = Mapping[str, list[str]]


def vocabulary(sub: SubstitutionDef, samples: Sequence[Mapping[str, Any]]) -> _Conditions:
    """The conditions that are tried for a rule, as text for its `where`, without duplicates."""
    names = _names(sub, samples)
    alone = (test.format(name) for kind, tests in _ALONE.items() for name in names[kind] for test in tests)
    return tuple(dict.fromkeys(chain(alone, _of_numbers(names), _of_lists(names))))


def _of_numbers(names: _Names) -> Iterator[str]:
    own, packs = names["int"], names["pack"]
    ints = [*names["size"], *own]
    yield from (f"{name} == rank({pack}){after}" for name in own for pack in packs for after in ("", " - 1"))
    yield from (f"{a} == {b}" for a, b in combinations(ints, 2))
    yield from (f"{a} % {b} == 0" for a, b in permutations(ints, 2) if "." not in a)
    yield from (f"{a} <= {b}" for group in (own, names["number"]) for a, b in permutations(group, 2))
    yield from (f"{a} == {b} + {c}" for a, b, c in permutations(ints, 3) if a in own and b < c)


def _of_lists(names: _Names) -> Iterator[str]:
    packs, lists = names["pack"], names["list"]
    every = [*packs, *lists]
    yield from (f"{a} == {b}" for a, b in combinations(every, 2))
    yield from (f"rank({pack}) {test}" for pack in packs for test in _RANK)
    yield from (f"rank({a}) == rank({b})" for a, b in combinations(packs, 2))
    yield from (f"{a} == {b} + {c}" for a, b, c in permutations(every, 3) if a in lists and b < c)
    yield from (f"broadcast({a}, {pack}) == {pack}" for pack in packs for a in every if a != pack)
    pairs = product(combinations(packs, 2), every)
    yield from (f"broadcast({a}, {b}) == broadcast({a}, {b}, {c})" for (a, b), c in pairs if c not in {a, b})
    for axes, pack in product(lists, packs):
        yield f"all(only({pack}, {axes}) == 1)"
        others = [a for a in every if a not in {axes, pack}]
        yield from (f"{a} == kept({pack}, {axes}, {flag})" for flag in ("true", "false") for a in others)
    for order, pack in product(names["order"], packs):
        yield f"{order} == range(rank({pack}))"
        yield f"{{[k: rank({pack}) where {pack}[k] != 1] k}} == {{[k: rank({pack}) where {pack}[{order}[k]] != 1] {order}[k]}}"
    # SAME padding, and pads that grow as a kernel does
    yield from (f"{p} == [*(({k} - 1) // 2), *({k} // 2)]" for p in lists for k in every if k != p)
    for large, small in permutations(packs, 2):
        yield f"all(({large} - {small}) % 2 == 0)"
        grown = f"[*(({large} - {small}) // 2), *(({large} - {small}) // 2)]"
        yield from (f"{q} == {p} + {grown}" for q, p in permutations(lists, 2))


def _names(sub: SubstitutionDef, samples: Sequence[Mapping[str, Any]]) -> _Names:
    kinds: dict[str, str] = {}
    unordered: set[str] = set()
    for full, kind, part in (each for drawn in samples for name in drawn for each in _parts(name, drawn[name])):
        known = kinds.setdefault(full, kind)
        if known != kind:
            # a number may be whole, and one number stands for every entry of a list
            kinds[full] = "number" if {known, kind} == {"int", "number"} else "list"
        if kind == "list" and sorted(part) != list(range(len(part))):
            unordered.add(full)
    packs = packs_of(sub)
    sizes = names_in(sub.params)
    found: dict[str, list[str]] = defaultdict(list)
    for name, kind in kinds.items():
        special = {"int": "size" if name in sizes else "int", "list": "pack" if name in packs else "list"}
        found[special.get(kind, kind)].append(name)
    found["order"] = [name for name in found["list"] if name not in unordered]
    return found


def _parts(name: str, value: Any) -> Iterator[tuple[str, str, Any]]:
    """The value of a name, or of each of its attributes, and its kind."""
    match value:
        case AttrSet():
            for key, part in value.values.items():
                yield from _parts(f"{name}.{key}", part)
        case OperatorRef():
            yield name, "term", value
        case bool() | int():
            yield name, type(value).__name__, value
        case Fraction() | float():
            yield name, "number", value
        case tuple() if all(type(part) is int for part in value):
            yield name, "list", value
