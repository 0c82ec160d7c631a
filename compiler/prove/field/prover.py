"""The field prover: both sides of a rule on random inputs modulo 2^31 - 1, at random small sizes.

PET (section 5) compares m + 1 positions of each box of an m-dimensional result, since a multilinear program is fixed by them
(in a dimension of width 1 there is one position only). The instances here are so small that every position is compared, which
includes those. What is left is the chance of the random inputs: two different quotients of polynomials agree at one random
point with probability (degree / p) at most (Schwartz, Zippel), so `t` draws err with probability (degree / p)^t.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

from dslc.analysis.reads import computed
from dslc.interpret.check_rule import WrongCorrection, difference, draw, own_corrections, roomy, wrong_correction
from dslc.interpret.domain import Domain, Redraw
from dslc.interpret.draws import ORDINARY, InstanceDraws
from dslc.interpret.field import Field, P
from dslc.interpret.floats import Floats
from dslc.interpret.instantiate import Instance, Rejected, instantiate, most_often, shown, term_choices
from dslc.interpret.run import InterpretError, InterpretKind, run_scopes
from dslc.ir.dtype import DType
from dslc.ir.graph import Value, Values
from dslc.prove.counterexample import outside, replayed, smaller_counterexample, types_differ
from dslc.prove.element_types import admits, types_of
from dslc.prove.field.degree import difference_degree
from dslc.prove.partial.rules import ROOMY, partial_verdict
from dslc.prove.verdict import Counterexample, Types, Verdict, milliseconds_since
from dslc.records import record
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.elaborate import expand
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules

INSTANCES = 4  #: random sizes, for each operator where a term stands for one
OPERATORS = 6  #: operators that a term stands for
DRAWS = 2  #: independent random inputs for each instance
ATTEMPTS = 4000  #: a rule whose guards are this hard to meet is not decided
ATTEMPTS_WITH_TERMS = 600  #: the same for a rule with terms
FURTHER = 100  #: after the first instance: where few draws fit, few instances are enough for a cheap refutation
LARGE = 1 << 20  #: one instance is enough where the guards ask for so many elements
REDRAWS = 8  #: draws of an instance whose values are not defined
FEW = 24  #: elements of a result; a smaller one may agree by chance, and is drawn twice as often
#: instances at which corrections of an author's own are computed, also at sizes above the numbers that they have
CORRECTED = 24


@record
class ComparedInstance:
    """One instance: `how` it was compared, and by how much the draws may err where that is known."""

    how: str  # "field", "floats", "types" (they differ), "none": no inputs were found for which the sides are defined
    error_bound: float | None = None
    counterexample: Counterexample | None = None


def field_verdict(
    rules: Rules, sub: SubstitutionDef, seed: int = 0, types: Types | None = None, small: bool = True
) -> Verdict:  # fmt: skip
    """Compares the sides at random sizes (for each of some operators, where a term stands for one).

    `types`: the element types; the first ones that the rule admits by default. `small`: whether a smaller counterexample is looked for.

    `differs` carries a counterexample that was replayed. `equal` is no proof: `error_bound` is the probability that the
    instances tried hide a difference, None where that is not known because a function is no polynomial, or because an integer,
    a boolean or a constant is no random element of the field.
    """
    began = time.perf_counter()
    rng = np.random.default_rng(seed)
    kinds: list[ComparedInstance] = []
    reasons: list[str] = []
    types = types or next(iter(types_of(rules, sub)), Types())
    if sub.syntax.partial:
        parts = (INSTANCES - INSTANCES // 2, ORDINARY), (INSTANCES // 2, ROOMY)
        found = (one for count, draws in parts for one in _drawn(rules, sub, rng, count, types, draws))
        verdict = partial_verdict(rules, sub, found)
        wrong = _wrongly_corrected(rules, sub, seed, types) if verdict.answer == "unknown" else None
        return Verdict("field", "differs", milliseconds_since(began), counterexample=wrong) if wrong else verdict
    for instance, reason in _drawn(rules, sub, rng, INSTANCES, types):
        if not instance:
            reasons.append(reason)
            continue
        try:
            outcome = compare_instance(rules, sub, instance, rng)
        except Rejected as problem:
            # an operator inside another one's definition does not take these types
            reasons.append(str(problem))
            continue
        if outcome.counterexample:
            shown = (smaller_counterexample(rules, sub, instance) if small else None) or outcome.counterexample
            return Verdict("field", "differs", milliseconds_since(began), counterexample=shown)
        kinds.append(outcome)
        if sum(value.type.elements for value in instance.inputs) > LARGE:
            break
    compared = [one for one in kinds if one.how != "none"]
    if not compared:
        return Verdict("field", "unknown", milliseconds_since(began), f"no instance was found; {most_often(reasons)}")
    floats = sum(one.how == "floats" for one in compared)
    bounds = [one.error_bound for one in compared]
    bound = None if floats or None in bounds else max(b for b in bounds if b is not None)
    scope = f"{len(compared)} random instances"
    reason = ""
    if floats:
        reason = f"{floats} of {len(compared)} only in float64: functions that are random modulo p have laws there"
    elif bound is None:
        reason = "what is no polynomial, or no random element, occurs"
    return Verdict("field", "equal", milliseconds_since(began), reason, scope, error_bound=bound)


def _wrongly_corrected(rules: Rules, sub: SubstitutionDef, seed: int, types: Types) -> Counterexample | None:
    """A position at which a correction of the author's own is wrong at one of many sizes, as computed; None where nothing was found."""
    if not own_corrections(sub):
        return None
    rng = np.random.default_rng(seed)
    for instance, _ in _drawn(rules, sub, rng, CORRECTED, types, roomy(sub)):
        # types were compared before
        wrong = instance is not None and wrong_correction(rules, instance, rng)
        if instance and isinstance(wrong, WrongCorrection):
            return Counterexample(
                dict(shown(sub, instance)), wrong.name, wrong.place, "another number", "the correction"
            )
    return None


def _drawn(
    rules: Rules, sub: SubstitutionDef, rng: np.random.Generator, wanted: int, types: Types,
    draws: InstanceDraws = ORDINARY,
) -> Iterator[tuple[Instance | None, str]]:  # fmt: skip
    """Instances, and why other draws were none."""
    for terms in term_choices(rules, sub, rng, OPERATORS):
        if terms and not admits(rules, sub, types.at, terms):
            continue
        found = first = 0
        for attempt in range(ATTEMPTS_WITH_TERMS if terms else ATTEMPTS):
            if found == wanted or (found and attempt > first + FURTHER):
                break
            try:
                instance = instantiate(rules, sub, rng, terms, types.dtypes[:1] or (DType.F32,), types.at, draws)
            except Rejected as problem:
                yield None, str(problem)
                continue
            found, first = found + 1, first or attempt
            yield instance, ""


def compare_instance(
    rules: Rules, sub: SubstitutionDef, instance: Instance, rng: np.random.Generator
) -> ComparedInstance:
    """Both sides of one instance: their types, then every element, over the field and where that cannot tell over float64."""
    drawn = dict(shown(sub, instance))
    mistyped = types_differ(instance, drawn)
    if mistyped:
        return ComparedInstance("types", counterexample=mistyped)
    return compare_values(rules, *instance.sides, tuple(instance.left), instance.inputs, rng, drawn)


def compare_values(
    rules: Rules,
    left: Sequence[Value],
    right: Sequence[Value],
    names: Sequence[str],
    inputs: Sequence[Value],
    rng: np.random.Generator,
    drawn: dict[str, str],
) -> ComparedInstance:
    """As `compare_instance`, for two lists of values of static shape and equal types over common inputs."""
    try:
        scopes = expand(rules, (*left, *right))
    except Mismatch as problem:
        raise Rejected(problem.reason) from None
    sides = scopes[: len(left)], scopes[len(left) :]
    if sides[0] == sides[1]:
        return ComparedInstance("field", 0.0)
    out = outside(rules, *sides, names, inputs, rng, drawn)
    if out:
        return ComparedInstance("field", counterexample=out)
    degree = difference_degree(*sides)
    # a few elements may agree by chance where a function has few values, so small results are compared more often
    draws = 2 * DRAWS if sum(value.type.elements for value in left) < FEW else DRAWS
    seen, differs = 0, False
    for _ in range(draws):
        found = _differs(sides, inputs, Field(int(rng.integers(1 << 20))), rng)
        seen += found is not None
        if found:
            differs = True
            break
    if seen and not differs:
        return ComparedInstance("field", None if degree is None else (degree / P) ** seen)
    certain = degree is not None and seen > 0
    if not certain:
        verdicts = [_differs(sides, inputs, Floats(rounded=False), rng, positive) for positive in (False, True) * draws]
        if all(found is None for found in verdicts):
            return ComparedInstance("none")
        if not any(verdicts):
            # what a conversion rounds may be less than the comparison of floats tolerates
            converts = any(each.op.startswith("convert:") for each in computed(scopes))
            shown = replayed(rules, left, right, names, inputs, rng, drawn, exactly=True) if converts else None
            return ComparedInstance("field", counterexample=shown) if shown else ComparedInstance("floats")
    counterexample = replayed(rules, left, right, names, inputs, rng, drawn, certain)
    return ComparedInstance("field", counterexample=counterexample) if counterexample else ComparedInstance("none")


def _differs(
    sides: tuple[Values, Values],
    inputs: Sequence[Value],
    domain: Domain,
    rng: np.random.Generator,
    positive: bool = False,
) -> bool | None:
    """Return whether the sides differ on one draw; None where no inputs were found for which both are defined."""
    left, right = sides
    for attempt in range(REDRAWS):
        feeds = {value: draw(value.type, domain, rng, attempt, positive) for value in inputs}
        try:
            results = run_scopes((*left, *right), feeds, domain)
        except Redraw:
            continue
        except InterpretError as problem:
            if problem.kind is not InterpretKind.OTHER:
                continue
            return None
        pairs = zip(left, results[: len(left)], results[len(left) :], strict=True)
        return any(difference(value.type, a, b, domain, undefined=True) is not None for value, a, b in pairs)
    return None
