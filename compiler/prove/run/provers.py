"""The provers behind one interface: each answers for a substitution, or for all equations of a law."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from math import inf
from operator import attrgetter
from typing import TypeVar

import numpy as np

from dslc.errors import DslcError
from dslc.interpret.draft import rule_text
from dslc.ir.dtype import TypeClass
from dslc.ir.graph import Value, nodes_of
from dslc.prove.counterexample import refutation, replayed
from dslc.prove.element_types import admits, divides, scope_of_types, tells_types_apart, types_of
from dslc.prove.exact.answers import Differs, Equal, Undecided
from dslc.prove.exact.compare import Habit, compare
from dslc.prove.exact.element_types import standing
from dslc.prove.exact.terms import Effort
from dslc.prove.field.prover import field_verdict
from dslc.prove.in_bounds import leaves_bounds
from dslc.prove.instances.exploration import instance_set, map_instance_set
from dslc.prove.instances.instances import InstanceSet, Uncovered, with_numbers
from dslc.prove.instances.type_classes import carried
from dslc.prove.laws import law_substitutions
from dslc.prove.sizes import at_sizes
from dslc.prove.verdict import Answer, Counterexample, ProverName, Types, Verdict, milliseconds_since
from dslc.semantics.definitions import PropertyDef, SubstitutionDef
from dslc.semantics.library import Rules

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
    """The obligations: a substitution itself, or one for each equation of a law."""
    if isinstance(definition, SubstitutionDef):
        return (definition,)
    return law_substitutions(definition)


def prover_verdict(
    rules: Rules, definition: Definition, prover: ProverName, *, seed: int = 0, seconds: float = inf,
    without: Collection[Types] = (), small: bool = True,
) -> Verdict:  # fmt: skip
    """One prover's answer, for all equations of a law and all element types that they admit together.

    Args:
        seconds: see `exact_verdict`.
        without: element types for which the rule is known to be wrong.
        small: whether a small counterexample is looked for; where there is one for other element types, it is not.
    """
    began = time.perf_counter()
    parts: dict[Types, list[Verdict]] = {}
    refuted = set(without)
    for sub in subjects(rules, definition):
        asked = [types for types in deeply(partial(types_of, rules, sub)) if types not in refuted]
        small = small and not refuted
        for types, verdict in deeply(partial(_by_type, rules, sub, prover, asked, seed, seconds, small)):
            parts.setdefault(types, []).append(verdict)
            if verdict.answer == "differs":
                refuted.add(types)
    joined = {types: _joined(prover, verdicts, 0.0) for types, verdicts in parts.items()}
    whole = _joined(prover, list(joined.values()), milliseconds_since(began))
    return replace(whole, parts=tuple(joined.items()))


def in_turn(
    provers: Sequence[ProverName],
    ask: Callable[[ProverName, Collection[Types]], Verdict],
) -> Iterator[Verdict]:
    """The verdicts of some provers, each as soon as it is known. One that fails has not decided, and says why.

    After a difference no prover is asked about the element types in question.
    """
    refuted: set[Types] = set()
    for prover in provers:
        try:
            verdict = ask(prover, refuted)
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
        if verdict.answer == "differs" and not open_:
            return


def _by_type(
    rules: Rules, sub: SubstitutionDef, prover: ProverName, asked: Sequence[Types], seed: int,
    seconds: float, small: bool,
) -> list[tuple[Types, Verdict]]:  # fmt: skip
    """The answers for element types that a rule admits."""
    share, scope = min(1.0, CLASSES / max(1, len(asked))), scope_of_types(rules, sub)
    out: list[tuple[Types, Verdict]] = []
    also: frozenset[TypeClass] = frozenset()
    for types in asked:
        kinds = [kind for _, kind in types.kinds]
        refuted = any(verdict.answer == "differs" for _, verdict in out)
        smaller = small and not refuted
        if out and len(kinds) == 1 and kinds[0] in also:
            out.append((types, replace(out[0][1], milliseconds=0.0)))
            continue
        if prover == "field":
            found = field_verdict(rules, sub, seed, types=types, small=smaller)
        else:
            reason = _uncovered(rules, sub, asked[0]) if out else ""
            # the first class has the most time: where others need more they are not decided
            limit = min(seconds, share * FURTHER) if out else seconds
            found = Verdict("exact", "unknown", reason=reason)
            if not reason:
                with standing(any(isinstance(kind, TypeClass) for kind in kinds)):
                    found = exact_verdict(rules, sub, limit, types)
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
    """The reason for which a rule has no cover, the same for all types; empty where it has one, or no instance."""
    if not sub.syntax.partial and not tells_types_apart(sub):
        try:
            instance_set(rules, sub, "symbolic", types)
        except Uncovered as problem:
            return "" if problem.vacant else str(problem)
    return ""


def _opposed(
    rules: Rules, sub: SubstitutionDef, seed: int, types: Types, found: Verdict, small: bool, share: float
) -> Verdict:
    """Try a rule that is not proved for everything at instances that look for mistakes, a share of the usual number."""
    if found.answer == "differs" or (found.answer == "equal" and not found.scope):
        return found
    began = time.perf_counter()
    # proofs are those of narrow integers; what is left is tried at wide ones
    integers = (TypeClass.SIGNED, TypeClass.UNSIGNED)
    pairs = zip(types.kinds, types.dtypes, strict=True)
    widest = (kind.members[-1] if isinstance(kind, TypeClass) and kind in integers else own for (_, kind), own in pairs)
    wide = replace(types, dtypes=tuple(widest))
    wrong = refutation(rules, sub, wide if admits(rules, sub, wide.at) else types, seed, share, small, found.drawn)
    milliseconds = found.milliseconds + milliseconds_since(began)
    if not wrong:
        return replace(found, milliseconds=milliseconds)
    return Verdict("exact", "differs", milliseconds, "at an instance that was drawn", counterexample=wrong)


def carried_classes(rules: Rules, sub: SubstitutionDef, types: Types) -> frozenset[TypeClass]:
    """The classes of element types in which a rule holds if it does for floats, which `types` are."""
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

    def every(name: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(chain.from_iterable(getattr(part, name) for part in parts)))

    reasons, scopes = ("; ".join(dict.fromkeys(filter(None, map(attrgetter(k), parts)))) for k in ("reason", "scope"))
    bounds = [part.error_bound for part in parts if part.error_bound is not None]
    return Verdict(
        prover, "equal", milliseconds, reasons, scopes,
        error_bound=max(bounds) if len(bounds) == len(parts) else None,
        needs=every("needs"), presumes=every("presumes"),
    )  # fmt: skip


# ---- exact --------------------------------------------------------------------------------------------------------


def exact_verdict(rules: Rules, sub: SubstitutionDef, seconds: float = inf, types: Types | None = None) -> Verdict:
    """The exact prover on every symbolic instance of the rule's cover: with unknown steps, else with numbers for these.

    `seconds`: about so long it may take, counted in steps and in operations of isl, and half of that for one comparison; `types`: the
    first that the rule admits by default.
    It also shows that each side of the largest instance equals itself. Sizes for which it finds a difference are replayed in the
    interpreter: what does not differ there is no refutation, and a mistake in a prover.
    """
    began = time.perf_counter()
    seconds = min(seconds / 2, SECONDS)
    together = Effort(TOGETHER * seconds)
    both_ways = sub.syntax.arrow == "<=>"
    on_cover = partial(_on_cover, rules, both_ways=both_ways)
    numbered = partial(with_numbers, sub)
    if sub.syntax.partial:
        found = Verdict("exact", "skipped", reason="partial: the sides may differ")
    else:
        try:
            brief = min(seconds, UNKNOWN_STEPS)
            maps = map_instance_set(rules, sub, types)
            if maps:
                # what differs for some maps may be equal for windows
                found = on_cover(maps, brief, Effort(TOGETHER * brief), most_open=1, bounds=False)
            covered = instance_set(rules, sub, "symbolic", types)
            # maps are read as data are, which are to stay in bounds
            bounded = (_leaves_bounds(each, both_ways) is None for each in (maps, covered) if each)
            if maps and found.answer == "equal" and any(bounded):
                return replace(found, milliseconds=milliseconds_since(began))
            if covered.unknown_steps:
                within = Effort(TOGETHER * brief)
                found = numbered(covered, lambda some: on_cover(some, brief, within, most_open=1))
                if found.answer == "unknown":
                    covered = instance_set(rules, sub, types=types)
                    found = numbered(covered, lambda some: on_cover(some, seconds, together))
            else:
                found = numbered(covered, lambda some: on_cover(some, seconds, together))
            if found.answer == "unknown" and covered.unknown_integers:
                numbers = on_cover(
                    instance_set(rules, sub, "attributes", types), seconds, Effort(TOGETHER * brief), most_open=1
                )
                found = numbers if numbers.answer in {"equal", "differs"} else found
        except Uncovered as problem:
            found = Verdict("exact", "vacant" if problem.vacant else "unknown", reason=str(problem))
    return replace(found, milliseconds=milliseconds_since(began))


def _leaves_bounds(covered: InstanceSet, both_ways: bool) -> str | None:
    """A position that is data and may be out of bounds, where and at which instance."""
    for each in covered.instances:
        place = leaves_bounds(each.left, each.right, both_ways)
        if place is not None:
            return _at(f"data used as a position may be out of bounds: {place}", each.text)
    return None


def _on_cover(
    rules: Rules, covered: InstanceSet, seconds: float, together: Effort,
    most_open: int = OPEN, both_ways: bool = False, bounds: bool = True,
) -> Verdict:  # fmt: skip
    """The verdict on all instances of a cover: `seconds` for a comparison, `together` for all of them, of which few may stay open."""
    if not covered.instances:
        return Verdict("exact", "unknown", reason="no symbolic instance")
    undecided: list[Verdict] = []
    presumes: dict[str, None] = {}
    # with unknown steps comparisons of places are not linear, but those of windows are
    habit = Habit(windows=covered.unknown_steps)
    sizes = [len(nodes_of(each.values)) for each in covered.instances]
    largest = covered.instances[sizes.index(max(sizes))]
    for instance in covered.instances:
        # once something is open, the others may only still refute the rule
        if together.is_over:
            undecided.append(Verdict("exact", "unknown", reason="the time is up"))
            break
        # equal programs are the same object, as scopes are kept once
        pairs = [pair for pair in zip(instance.left, instance.right, strict=True) if pair[0] != pair[1]]
        if not pairs:
            continue
        left, right = zip(*pairs, strict=True)
        limit, reflexive = BRIEF * seconds if undecided else seconds, instance is largest
        result = compare(left, right, instance.conditions, limit, together, reflexive, habit)
        if isinstance(result, Differs) and covered.assumed:
            result = Undecided("the sides differ at numbers of which a guard speaks")
        match result:
            case Differs(sizes=at):
                sides = instance.left, instance.right
                found = replay(rules, *sides, instance.outputs, instance.inputs, at, result.monomial)
                text = ", ".join(f"{name} = {size}" for name, size in sorted(at.items()))
                reason = f"claimed to differ at {text}, where the interpreter finds no difference"
                if not found:
                    return Verdict("exact", "unknown", reason=reason)
                return Verdict("exact", "differs", counterexample=found)
            case Equal():
                presumes.update(dict.fromkeys(result.presumed))
            case Undecided(reason=reason, places=places):
                reason = _at(reason, instance.text)
                undecided.append(Verdict("exact", "unknown", reason=reason, places=places, drawn=instance.drawn))
                if len(undecided) >= most_open:
                    break
    if undecided:
        return undecided[0]
    outside = _leaves_bounds(covered, both_ways) if bounds else None
    if outside is not None:
        return Verdict("exact", "unknown", reason=outside)
    count = len(covered.instances)
    reason = f"{count} symbolic instance" + "s" * (count > 1)
    needs = tuple(dict.fromkeys(str(each) for instance in covered.instances for each in instance.undischarged))
    return Verdict("exact", "equal", reason=reason, scope=covered.scope, needs=needs, presumes=tuple(presumes))


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
    bound = at_sizes((*left, *right, *inputs), sizes)
    split = len(left), len(left) + len(right)
    sides = bound[: split[0]], bound[split[0] : split[1]]
    drawn = {name: str(size) for name, size in sorted(sizes.items())}
    for name, one, other in zip(names, *sides, strict=True):
        if one.type != other.type:
            return Counterexample(drawn, name, (), str(one.type), str(other.type))
    return replayed(rules, *sides, names, bound[split[1] :], np.random.default_rng(seed), drawn, True, monomial)


_Result = TypeVar("_Result")


DEPTH = 100_000  #: calls that may be open at once
#: bytes of stack for them: some call through C, which takes up to two kilobytes of it each; memory that is not
#: touched is not taken
STACK = 512 << 20

_here = threading.local()


def deeply(function: Callable[[], _Result]) -> _Result:
    """Call a function that may call itself far deeper than Python lets it: in a thread with a larger stack."""
    if getattr(_here, "deep", False):
        return function()
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        _here.deep = True
        sys.setrecursionlimit(max(depth, DEPTH))
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    depth, size = sys.getrecursionlimit(), threading.stack_size(STACK)
    # of a caller that is interrupted it keeps no process alive
    thread = threading.Thread(target=run, daemon=True)
    try:
        try:
            thread.start()
        except RuntimeError:  # there is no memory for such a stack
            return function()
        finally:
            threading.stack_size(size)
        thread.join()
    finally:
        sys.setrecursionlimit(depth)
    if errors:
        raise errors[0]
    return results[0]
