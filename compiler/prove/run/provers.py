"""The provers behind one interface: each answers for a substitution, or for all equations of a law."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from dslc.errors import DslcError
from dslc.interpret.draft import rule_text
from dslc.ir.dtype import DType, TypeClass
from dslc.ir.graph import Value, topological
from dslc.prove.element_types import admits, divides, scope_of_types, tells_types_apart, types_of
from dslc.prove.exact.element_types import standing
from dslc.prove.run.depth import deeply
from dslc.prove.sizes import at_sizes
from dslc.prove.verdict import STATUSES, Answer, Counterexample, ProverName, Types, Verdict
from dslc.semantics.definitions import PropertyDef, SubstitutionDef
from dslc.semantics.library import Rules

if TYPE_CHECKING:
    from dslc.prove.axioms.prover import AxiomProver
    from dslc.prove.exact import Effort
    from dslc.prove.instances.instances import InstanceSet

#: in the order in which they are asked: cheap refutation first, the independent second opinion last
PROVERS: tuple[ProverName, ...] = ("field", "exact", "axioms")

Definition = SubstitutionDef | PropertyDef


SECONDS = 10.0  #: seconds that a comparison may take
BRIEF = 0.1  #: share of that where another comparison is open already
OPEN = 3  #: open comparisons that end a rule
#: seconds of a comparison in which steps (strides, dilations) are unknown: mostly it is a matter of tenths of
#: seconds or of hours
UNKNOWN_STEPS = 4.0
#: times what one comparison may take, all of a rule together, of which there may be hundreds: steps mostly take
#: less than planned
TOGETHER = 8.0
FURTHER = 4.0  #: seconds that the classes of element types after the first may take
CLASSES = 13  #: where there are more classes, each gets a smaller share of time and of instances


def subjects(rules: Rules, definition: Definition) -> tuple[SubstitutionDef, ...]:
    """What has to be proved: a substitution itself, or one for each equation of a law."""
    if isinstance(definition, SubstitutionDef):
        return (definition,)
    from dslc.prove.laws import law_substitutions

    return law_substitutions(rules, definition)


def prover_verdict(
    rules: Rules, definition: Definition, prover: ProverName, *, seed: int = 0, axioms: AxiomProver | None = None,
    seconds: float = inf, without: Collection[Types] = (), small: bool = True,
) -> Verdict:  # fmt: skip
    """One prover's answer, for all equations of a law and all element types that they admit together.

    Args:
        axioms: what is asked where the prover is the one of axioms.
        seconds: see `exact_verdict`.
        without: element types for which the rule is known to be wrong.
        small: whether a small counterexample is looked for; where there is one for other element types, it is not.
    """
    began = time.perf_counter()
    parts: dict[Types, list[Verdict]] = {}
    refuted = set(without)
    for sub in subjects(rules, definition):
        for types, verdict in deeply(partial(_by_type, rules, sub, prover, seed, axioms, seconds, refuted, small)):
            parts.setdefault(types, []).append(verdict)
            if verdict.answer == "differs":
                refuted.add(types)
    joined = {types: _joined(prover, verdicts, 0.0) for types, verdicts in parts.items()}
    whole = _joined(prover, list(joined.values()), round((time.perf_counter() - began) * 1e3, 3))
    return replace(whole, parts=tuple(joined.items()))


def in_turn(
    provers: Sequence[ProverName],
    ask: Callable[[ProverName, Collection[Types]], Verdict],
    second: bool = False,
    thorough: bool = False,
) -> Iterator[Verdict]:
    """The verdicts of some provers, each as soon as it is known. One that fails has not decided, and says why.

    After a difference nobody is asked any more about the element types in question, unless this is to be `thorough`; and no second
    opinion where none is wanted.
    """
    shown = False
    refuted: set[Types] = set()
    for prover in provers:
        if prover == "axioms" and shown and not (second or thorough):
            continue
        try:
            verdict = ask(prover, () if thorough else refuted)
        except DslcError as problem:
            reason = problem.diagnostics[0].message if problem.diagnostics else str(problem)
            verdict = Verdict(prover, "unknown", reason=reason)
        except Exception as problem:
            if os.environ.get("DSLC_DEBUG"):
                raise
            verdict = Verdict(prover, "unknown", reason=f"the prover failed: {type(problem).__name__}: {problem}"[:500])
        yield verdict
        refuted.update(types for types, part in verdict.parts if part.answer == "differs")
        open_ = any(part.answer != "differs" for _, part in verdict.parts)
        if verdict.answer == "differs" and not open_ and not thorough:
            return
        shown = shown or (prover == "exact" and verdict.answer == "equal")


def _by_type(
    rules: Rules, sub: SubstitutionDef, prover: ProverName, seed: int, axioms: AxiomProver | None, seconds: float,
    without: Collection[Types], small: bool,
) -> list[tuple[Types, Verdict]]:  # fmt: skip
    """The answers for the element types that a rule admits, but for some."""
    asked = [types for types in types_of(rules, sub) if types not in without]
    if prover == "axioms":
        # laws are those of numbers; what they say of integers is not known
        about = [types for types in asked if all(kind is TypeClass.FLOATS for _, kind in types.kinds)]
        assert axioms is not None
        return [(types, axioms.verdict(rules, sub)) for types in about[:1]]
    share, scope = min(1.0, CLASSES / max(1, len(asked))), scope_of_types(rules, sub)
    out: list[tuple[Types, Verdict]] = []
    also: frozenset[TypeClass] = frozenset()
    for types in asked:
        kinds = [kind for _, kind in types.kinds]
        refuted = any(verdict.answer == "differs" for _, verdict in out)
        smaller = small and not refuted and not without
        if out and len(kinds) == 1 and kinds[0] in also:
            out.append((types, replace(out[0][1], milliseconds=0.0)))
            continue
        if prover == "field":
            found = _field(rules, sub, seed, types, smaller)
        else:
            reason = _uncovered(rules, sub, asked[0]) if out else ""
            # the first class has the most time: where others need more they are not decided
            limit = min(seconds, share * FURTHER) if out else seconds
            with standing(any(isinstance(kind, TypeClass) for kind in kinds)):
                found = (
                    Verdict("exact", "unknown", reason=reason) if reason else exact_verdict(rules, sub, limit, types)
                )
            if scope and found.answer == "equal":
                found = replace(found, scope="; ".join(filter(None, (found.scope, scope))))
            # one class that is refuted is enough: of another, of which nothing is claimed, no difference is looked for
            if found.answer == "equal" or not refuted:
                found = _opposed(rules, sub, seed, types, found, smaller, share)
        if not out and found.answer == "equal" and kinds == [TypeClass.FLOATS] and len(asked) > 1:
            also = carried_classes(rules, sub, types)
        out.append((types, found))
    return out


def _uncovered(rules: Rules, sub: SubstitutionDef, types: Types) -> str:
    """Why a rule that was looked at has no cover: its cases are the same for all types. Empty where it has one, or no instance."""
    from dslc.prove.instances.exploration import instance_set
    from dslc.prove.instances.instances import Uncovered

    if sub.syntax.partial or tells_types_apart(sub):
        return ""
    try:
        instance_set(rules, sub, types=types)
    except Uncovered as problem:
        return "" if problem.vacant else str(problem)
    return ""


def _opposed(
    rules: Rules, sub: SubstitutionDef, seed: int, types: Types, found: Verdict, small: bool, share: float = 1.0
) -> Verdict:
    """Try a rule that is not proved for everything at instances that look for mistakes, a share of the usual number."""
    from dslc.prove.adversary import refutation

    if found.answer == "differs" or (found.answer == "equal" and not found.scope):
        return found
    began = time.perf_counter()
    # proofs are those of narrow integers; what is left is tried at wide ones
    wide = replace(types, dtypes=tuple(map(_widest, (kind for _, kind in types.kinds), types.dtypes)))
    wrong = refutation(rules, sub, wide if admits(rules, sub, wide.at) else types, seed, share, small, found.drawn)
    milliseconds = found.milliseconds + round((time.perf_counter() - began) * 1e3, 3)
    if wrong is None:
        return replace(found, milliseconds=milliseconds)
    return Verdict("exact", "differs", milliseconds, "at an instance that was drawn", counterexample=wrong)


def _widest(kind: TypeClass | DType, dtype: DType) -> DType:
    return kind.members[-1] if kind in {TypeClass.SIGNED, TypeClass.UNSIGNED} and isinstance(kind, TypeClass) else dtype


def carried_classes(rules: Rules, sub: SubstitutionDef, types: Types) -> frozenset[TypeClass]:
    """The classes of element types in which a rule holds if it does for floats, which `types` are."""
    from dslc.prove.instances.exploration import instance_set, map_instance_set
    from dslc.prove.instances.instances import Uncovered
    from dslc.prove.instances.type_classes import carried

    if tells_types_apart(sub) or divides(sub):
        return frozenset()
    try:
        covered = map_instance_set(rules, sub, types) or instance_set(rules, sub, "symbolic", types)
    except Uncovered:
        return frozenset()
    places = rule_text(sub).places
    # a number that stands where a tensor is expected is one of the tensor's type
    numbers = [name for name, found in places.items() if all(each.attr is None and not each.starred for each in found)]
    return carried(covered.instances, numbers)


def _joined(prover: ProverName, parts: Sequence[Verdict], milliseconds: float) -> Verdict:
    parts = [part for part in parts if part.answer != "vacant"] or parts
    if not parts:
        return Verdict(prover, "unknown", milliseconds, "nothing to prove")
    order: tuple[Answer, ...] = ("differs", "unknown", "skipped", "vacant", "equal")
    worst = min(parts, key=lambda part: order.index(part.answer))
    if worst.answer != "equal":
        return Verdict(prover, worst.answer, milliseconds, worst.reason, worst.scope, worst.counterexample)
    reasons, scopes = (
        dict.fromkeys(getattr(p, name) for p in parts if getattr(p, name)) for name in ("reason", "scope")
    )
    bounds = [part.error_bound for part in parts]
    bound = None if None in bounds else max(b for b in bounds if b is not None)
    needs = tuple(dict.fromkeys(condition for part in parts for condition in part.needs))
    presumes = tuple(dict.fromkeys(each for part in parts for each in part.presumes))
    rests = tuple(dict.fromkeys(law for part in parts for law in part.rests))
    weakest = max((part.weakest for part in parts), key=STATUSES.index)
    return Verdict(
        prover, "equal", milliseconds, "; ".join(reasons), "; ".join(scopes), error_bound=bound, needs=needs,
        presumes=presumes, rests=rests, weakest=weakest,
    )  # fmt: skip


def _field(rules: Rules, sub: SubstitutionDef, seed: int, types: Types, small: bool) -> Verdict:
    from dslc.prove.field.prover import field_verdict

    return field_verdict(rules, sub, seed, types=types, small=small)


# ---- exact --------------------------------------------------------------------------------------------------------


def exact_verdict(rules: Rules, sub: SubstitutionDef, seconds: float = inf, types: Types | None = None) -> Verdict:
    """The exact prover on every symbolic instance of the rule's cover: with unknown steps, else with numbers for these.

    `seconds`: about so long it may take, counted in steps and in operations of isl, and half of that for one comparison; `types`: the
    first that the rule admits by default.
    It also shows that each side of the largest instance equals itself. Sizes for which it finds a difference are replayed in the
    interpreter: what does not differ there is no refutation, and a mistake in a prover.
    """
    from dslc.prove.exact import Effort
    from dslc.prove.instances.exploration import instance_set, map_instance_set
    from dslc.prove.instances.instances import Uncovered, with_numbers

    began = time.perf_counter()
    seconds = min(seconds / 2, SECONDS)
    together = Effort(TOGETHER * seconds)
    on_cover = partial(_on_cover, rules, both_ways=sub.syntax.arrow == "<=>")
    if sub.syntax.partial:
        found = Verdict("exact", "skipped", reason="partial: the sides may differ")
    else:
        try:
            brief = min(seconds, UNKNOWN_STEPS)
            maps = map_instance_set(rules, sub, types)
            if maps is not None:
                # what differs for some maps may be equal for windows
                found = on_cover(maps, brief, Effort(TOGETHER * brief), most_open=1, bounds=False)
                if found.answer == "equal" and _keeps_bounds(rules, sub, maps, types or Types()):
                    return replace(found, milliseconds=round((time.perf_counter() - began) * 1e3, 3))
            covered = instance_set(rules, sub, "symbolic", types)
            if covered.unknown_steps:
                within = Effort(TOGETHER * brief)
                found = on_cover(covered, brief, within, most_open=1)
                if found.places:
                    found = (
                        with_numbers(sub, covered, lambda fewer: on_cover(fewer, brief, within, most_open=1)) or found
                    )
            if not covered.unknown_steps or found.answer == "unknown":
                covered = instance_set(rules, sub, types=types)
                found = on_cover(covered, seconds, together)
            if found.places:
                found = with_numbers(sub, covered, lambda fewer: on_cover(fewer, seconds, together)) or found
            if found.answer == "unknown" and covered.unknown_integers:
                numbers = on_cover(
                    instance_set(rules, sub, "attributes", types), seconds, Effort(TOGETHER * brief), most_open=1
                )
                found = numbers if numbers.answer in {"equal", "differs"} else found
        except Uncovered as problem:
            found = Verdict("exact", "vacant" if problem.vacant else "unknown", reason=str(problem))
    return replace(found, milliseconds=round((time.perf_counter() - began) * 1e3, 3))


def _keeps_bounds(rules: Rules, sub: SubstitutionDef, maps: InstanceSet, types: Types) -> bool:
    """Whether data used as a position stays in bounds, where windows are maps, which are read as data are."""
    from dslc.prove.in_bounds import leaves_bounds
    from dslc.prove.instances.exploration import instance_set

    both_ways = sub.syntax.arrow == "<=>"
    if all(leaves_bounds(each.left, each.right, both_ways) is None for each in maps.instances):
        return True
    return all(
        leaves_bounds(each.left, each.right, both_ways) is None
        for each in instance_set(rules, sub, "symbolic", types).instances
    )


def _on_cover(
    rules: Rules, covered: InstanceSet, seconds: float, together: Effort,
    most_open: int = OPEN, both_ways: bool = False, bounds: bool = True,
) -> Verdict:  # fmt: skip
    """The verdict on all instances of a cover: `seconds` for a comparison, `together` for all of them, of which few may stay open."""
    from dslc.prove.exact import Differs, Equal, Habit, Undecided, compare
    from dslc.prove.in_bounds import leaves_bounds

    def verdict(answer: Answer, reason: str = "", scope: str = "", found: Counterexample | None = None) -> Verdict:
        return Verdict("exact", answer, reason=reason, scope=scope, counterexample=found)

    if not covered.instances:
        return verdict("unknown", "no symbolic instance")
    undecided: list[Verdict] = []
    presumes: dict[str, None] = {}
    # with unknown steps comparisons of places are not linear, but those of windows are
    habit = Habit(windows=covered.unknown_steps)
    largest = max(
        covered.instances, key=lambda each: len(topological(value.node for value in (*each.left, *each.right)))
    )
    for instance in covered.instances:
        # once something is open, the others may only still refute the rule
        if together.is_over:
            undecided.append(verdict("unknown", "the time is up"))
            break
        limit = BRIEF * seconds if undecided else seconds
        # equal programs are the same object, as scopes are kept once
        pairs = [pair for pair in zip(instance.left, instance.right, strict=True) if pair[0] != pair[1]]
        if not pairs:
            continue
        sides = [p[0] for p in pairs], [p[1] for p in pairs]
        result = compare(
            rules, *sides, instance.conditions, limit, together, reflexive=instance is largest, habit=habit
        )
        if isinstance(result, Differs) and covered.assumed:
            result = Undecided("the sides differ at numbers of which a guard speaks")
        if isinstance(result, Differs):
            found = replay(
                rules, instance.left, instance.right, instance.outputs, instance.inputs, result.sizes, result.monomial
            )
            if found is None:
                sizes = ", ".join(f"{name} = {size}" for name, size in sorted(result.sizes.items()))
                return verdict("unknown", f"claimed to differ at {sizes}, where the interpreter finds no difference")
            return verdict("differs", found=found)
        if isinstance(result, Equal):
            presumes.update((each.value, None) for each in result.presumed)
        if isinstance(result, Undecided):
            undecided.append(
                replace(
                    verdict("unknown", _at(result.reason, instance.text)), places=result.places, drawn=instance.drawn
                )
            )
        if len(undecided) >= most_open:
            break
    if undecided:
        return undecided[0]
    for instance in covered.instances if bounds else ():
        place = leaves_bounds(instance.left, instance.right, both_ways)
        if place is not None:
            return verdict("unknown", _at(f"data used as a position may be out of bounds: {place}", instance.text))
    count = len(covered.instances)
    needs = dict.fromkeys(str(each) for instance in covered.instances for each in instance.undischarged)
    shown = verdict("equal", f"{count} symbolic instance" + "s" * (count > 1), covered.scope)
    return replace(shown, needs=tuple(needs), presumes=tuple(presumes))


def _at(reason: str, text: str) -> str:
    return f"{reason} (at {text})" if text else reason


def replay(
    rules: Rules,
    left: Sequence[Value],
    right: Sequence[Value],
    names: Sequence[str],
    inputs: Sequence[Value],
    sizes: Mapping[str, int],
    monomial: str = "",
    seed: int = 0,
) -> Counterexample | None:
    """Both sides at numbers for their unknown sizes, in the interpreter; None where they agree."""
    from dslc.prove.counterexample import replayed

    bound = at_sizes((*left, *right, *inputs), sizes)
    split = len(left), len(left) + len(right)
    sides = bound[: split[0]], bound[split[0] : split[1]]
    drawn = {name: str(size) for name, size in sorted(sizes.items())}
    for name, one, other in zip(names, *sides, strict=True):
        if one.type != other.type:
            return Counterexample(drawn, name, (), str(one.type), str(other.type))
    return replayed(rules, *sides, names, bound[split[1] :], np.random.default_rng(seed), drawn, True, monomial)
