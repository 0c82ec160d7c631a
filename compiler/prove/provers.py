"""The provers behind one interface: each answers for a substitution, or for all equations of a law."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from dslc.ir.graph import Value, topological
from dslc.prove.depth import deeply
from dslc.prove.sizes import at_sizes
from dslc.prove.verdict import STATUSES, Answer, Counterexample, ProverName, Verdict
from dslc.semantics.definitions import PropertyDef, SubstitutionDef
from dslc.semantics.library import Rules

if TYPE_CHECKING:
    from dslc.prove.axioms import AxiomProver
    from dslc.prove.exact import Deadline
    from dslc.prove.instances import Cover

#: in the order in which they are asked: cheap refutation first, the independent second opinion last
PROVERS: tuple[ProverName, ...] = ("field", "exact", "axioms")

Definition = SubstitutionDef | PropertyDef

# what a comparison may take, and what part of that where another one is open already; so many open ones end a rule
_SECONDS, _BRIEF, _OPEN = 10.0, 0.1, 3
# what a comparison may take in which steps (strides, dilations) are unknown: mostly it is a matter of tenths of seconds or of hours
_UNKNOWN_STEPS = 4.0
# times what one comparison may take, all of a rule together, of which there may be hundreds: steps mostly take less than planned
_TOGETHER = 8.0


def subjects(rules: Rules, definition: Definition) -> tuple[SubstitutionDef, ...]:
    """What has to be proved: a substitution itself, or one for each equation of a law."""
    if isinstance(definition, SubstitutionDef):
        return (definition,)
    from dslc.prove.laws import law_substitutions

    return law_substitutions(rules, definition)


def prover_verdict(
    rules: Rules, definition: Definition, prover: ProverName, *, seed: int = 0, milliseconds: int = 3000,
    axioms: AxiomProver | None = None, seconds: float = inf,
) -> Verdict:  # fmt: skip
    """One prover's answer, for all equations of a law together. `milliseconds`: for the axioms; `seconds`: see `exact_verdict`."""
    began = time.perf_counter()
    answers: dict[ProverName, Callable[[SubstitutionDef], Verdict]] = {
        "field": lambda sub: _field(rules, sub, seed),
        "exact": lambda sub: exact_verdict(rules, sub, seconds),
        "axioms": lambda sub: _axioms(rules, sub, milliseconds, axioms),
    }
    parts = []
    for sub in subjects(rules, definition):
        parts.append(deeply(partial(answers[prover], sub)))
        if parts[-1].answer == "differs":
            break
    return _joined(prover, parts, round((time.perf_counter() - began) * 1e3, 3))


def _joined(prover: ProverName, parts: Sequence[Verdict], milliseconds: float) -> Verdict:
    if not parts:
        return Verdict(prover, "unknown", milliseconds, "nothing to prove")
    order: tuple[Answer, ...] = ("differs", "unknown", "skipped", "equal")
    worst = min(parts, key=lambda part: order.index(part.answer))
    if worst.answer != "equal":
        return Verdict(prover, worst.answer, milliseconds, worst.reason, worst.scope, worst.counterexample)
    reasons, scopes = (dict.fromkeys(getattr(p, name) for p in parts if getattr(p, name)) for name in ("reason", "scope"))
    bounds = [part.error_bound for part in parts]
    bound = None if None in bounds else max(b for b in bounds if b is not None)
    needs = tuple(dict.fromkeys(condition for part in parts for condition in part.needs))
    rests = tuple(dict.fromkeys(law for part in parts for law in part.rests))
    weakest = max((part.weakest for part in parts), key=STATUSES.index)
    return Verdict(
        prover, "equal", milliseconds, "; ".join(reasons), "; ".join(scopes), error_bound=bound, needs=needs,
        rests=rests, weakest=weakest,
    )  # fmt: skip


def _field(rules: Rules, sub: SubstitutionDef, seed: int) -> Verdict:
    from dslc.prove.field import field_verdict

    return field_verdict(rules, sub, seed)


def _axioms(rules: Rules, sub: SubstitutionDef, milliseconds: int, prover: AxiomProver | None) -> Verdict:
    from dslc.prove.axioms import axioms_verdict

    verdict: Verdict = axioms_verdict(rules, sub, milliseconds=milliseconds) if prover is None else prover.verdict(rules, sub)
    return verdict


# ---- exact --------------------------------------------------------------------------------------------------------


def exact_verdict(rules: Rules, sub: SubstitutionDef, seconds: float = inf) -> Verdict:
    """The exact prover on every symbolic instance of the rule's cover: with unknown steps, else with numbers for these.

    `seconds`: about so long it may take, counted in steps and in operations of isl, and half of that for one comparison.
    It also shows that each side of the largest instance equals itself. Sizes for which it finds a difference are replayed in the
    interpreter: what does not differ there is no refutation, and a mistake in a prover.
    """
    from dslc.prove.exact import Deadline
    from dslc.prove.instances import Uncovered, cover, cover_of_maps
    from dslc.prove.numbered import with_numbers, worth_numbers

    began = time.perf_counter()
    seconds = min(seconds / 2, _SECONDS)
    together = Deadline(_TOGETHER * seconds)
    on_cover = partial(_on_cover, rules, both_ways=sub.syntax.arrow == "<=>")
    if sub.syntax.partial:
        found = Verdict("exact", "skipped", reason="partial: the sides may differ")
    else:
        try:
            brief = min(seconds, _UNKNOWN_STEPS)
            maps = cover_of_maps(rules, sub)
            if maps is not None:
                # what differs for some maps may be equal for windows
                found = on_cover(maps, brief, Deadline(_TOGETHER * brief), most_open=1, bounds=False)
                if found.answer == "equal" and _keeps_bounds(rules, sub, maps):
                    return replace(found, milliseconds=round((time.perf_counter() - began) * 1e3, 3))
            covered = cover(rules, sub, "symbolic")
            if covered.unknown_steps:
                within = Deadline(_TOGETHER * brief)
                found = on_cover(covered, brief, within, most_open=1)
                if found.answer == "unknown" and worth_numbers(found.reason):
                    found = with_numbers(sub, covered, lambda fewer: on_cover(fewer, brief, within, most_open=1)) or found
            if not covered.unknown_steps or found.answer == "unknown":
                covered = cover(rules, sub)
                found = on_cover(covered, seconds, together)
            if found.answer == "unknown" and worth_numbers(found.reason):
                found = with_numbers(sub, covered, lambda fewer: on_cover(fewer, seconds, together)) or found
        except Uncovered as problem:
            found = Verdict("exact", "unknown", reason=str(problem))
    return replace(found, milliseconds=round((time.perf_counter() - began) * 1e3, 3))


def _keeps_bounds(rules: Rules, sub: SubstitutionDef, maps: Cover) -> bool:
    """Whether data used as a position stays in bounds, where windows are maps, which are read as data are."""
    from dslc.prove.in_bounds import leaves_bounds
    from dslc.prove.instances import cover

    both_ways = sub.syntax.arrow == "<=>"
    if all(leaves_bounds(each.left, each.right, both_ways) is None for each in maps.instances):
        return True
    return all(leaves_bounds(each.left, each.right, both_ways) is None for each in cover(rules, sub, "symbolic").instances)


def _on_cover(
    rules: Rules, covered: Cover, seconds: float, together: Deadline, most_open: int = _OPEN, both_ways: bool = False,
    bounds: bool = True,
) -> Verdict:  # fmt: skip
    """The verdict on all instances of a cover: `seconds` for a comparison, `together` for all of them, of which few may stay open."""
    from dslc.prove.exact import Differs, Habit, Undecided, compare
    from dslc.prove.in_bounds import leaves_bounds

    def verdict(answer: Answer, reason: str = "", scope: str = "", found: Counterexample | None = None) -> Verdict:
        return Verdict("exact", answer, reason=reason, scope=scope, counterexample=found)

    if not covered.instances:
        return verdict("unknown", "no symbolic instance")
    undecided: list[str] = []
    # with unknown steps comparisons of places are not linear, but those of windows are
    habit = Habit(windows=covered.unknown_steps)
    largest = max(covered.instances, key=lambda each: len(topological(value.node for value in (*each.left, *each.right))))
    for instance in covered.instances:
        # once something is open, the others may only still refute the rule
        if together.is_over:
            undecided.append("the time is up")
            break
        limit = _BRIEF * seconds if undecided else seconds
        # equal programs are the same object, as scopes are kept once
        pairs = [pair for pair in zip(instance.left, instance.right, strict=True) if pair[0] != pair[1]]
        if not pairs:
            continue
        sides = [p[0] for p in pairs], [p[1] for p in pairs]
        result = compare(rules, *sides, instance.conditions, limit, together, reflexive=instance is largest, habit=habit)
        if isinstance(result, Differs):
            found = replay(rules, instance.left, instance.right, instance.outputs, instance.inputs, result.sizes, result.monomial)
            if found is None:
                sizes = ", ".join(f"{name} = {size}" for name, size in sorted(result.sizes.items()))
                return verdict("unknown", f"claimed to differ at {sizes}, where the interpreter finds no difference")
            return verdict("differs", found=found)
        if isinstance(result, Undecided):
            undecided.append(_at(result.reason, instance.text))
        if len(undecided) >= most_open:
            break
    if undecided:
        return verdict("unknown", undecided[0])
    for instance in covered.instances if bounds else ():
        place = leaves_bounds(instance.left, instance.right, both_ways)
        if place is not None:
            return verdict("unknown", _at(f"data used as a position may be out of bounds: {place}", instance.text))
    count = len(covered.instances)
    needs = dict.fromkeys(str(each) for instance in covered.instances for each in instance.undischarged)
    shown = verdict("equal", f"{count} symbolic instance" + "s" * (count > 1), covered.scope)
    return replace(shown, needs=tuple(needs))


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
