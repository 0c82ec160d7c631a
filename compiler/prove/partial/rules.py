"""Partial substitutions at sizes: instances at given shapes, what differs there, and whether a correction of one's own is right."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dslc.deadline import Deadline
from dslc.errors import Diagnostic
from dslc.interpret.draws import ORDINARY, InstanceDraws
from dslc.interpret.instantiate import Instance, Rejected, instantiate, most_often, shown, term_choices
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Value
from dslc.prove.counterexample import replayed, types_differ
from dslc.prove.partial.difference import Difference, difference, restricted
from dslc.prove.partial.draws import NotCompared
from dslc.prove.verdict import Counterexample, Verdict, milliseconds_since
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.env import Env, Mismatch, MismatchKind
from dslc.semantics.library import Rules
from dslc.semantics.types import solve

ATTEMPTS = 4000  #: draws of instances
SECONDS = 1.0  #: seconds that a warning may take
ENOUGH = 8  #: instances from which on a verdict is given
MOST = 24  #: instances that are looked at, at most
PROOF = 4.0  #: seconds that the exact prover may take for one instance of a verdict

#: sizes at which a rule that differs in part is mostly seen to do so
ROOMY = InstanceDraws(sizes=(2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16), ranks=(1, 2, 3))


def sizes_of(rules: Rules, sub: SubstitutionDef, shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The sizes that the names in declared types stand for where parameters have some shapes.

    Raises:
        KeyError: no parameter has that name.
        Mismatch: a shape that does not fit the declared type, or another one.
    """
    params = {param.name: param for param in sub.params}
    env = Env(sub.module, rules)
    for name, shape in shapes.items():
        declared = params[name].type
        if declared:
            # a size that stands in several types has one value; what a type alone leaves open is found later
            try:
                solve(((declared, TensorType(DType.F32, tuple(shape))),), (), env)
            except Mismatch as problem:
                if problem.kind is not MismatchKind.UNBOUND:
                    raise
    return {name: value for name, value in env.values.items() if not isinstance(value, DType | Value)}


def instances(
    rules: Rules, sub: SubstitutionDef, seed: int = 0, fixed: Mapping[str, Any] | None = None, draws: InstanceDraws = ORDINARY,
    attempts: int = ATTEMPTS,
) -> Iterator[Instance | Rejected]:  # fmt: skip
    """Random instances with some names given, and why other draws were none."""
    rng = np.random.default_rng(seed)
    chosen = replace(draws, fixed=dict(fixed or {}))
    choices = list(term_choices(rules, sub, rng, 4))
    for attempt in range(attempts if choices else 0):
        try:
            yield instantiate(rules, sub, rng, choices[attempt % len(choices)], (DType.F32,), draws=chosen)
        except Rejected as reason:
            yield reason


def wrongly_corrected(
    rules: Rules, sub: SubstitutionDef, instance: Instance, found: Sequence[Difference], seed: int = 0,
    seconds: float = PROOF,
) -> Counterexample | bool:  # fmt: skip
    """A position at which the sides differ and the author's own correction is not the left side; else whether it is proved right.

    `seconds`: of comparing each output; a counterexample is computed only where there is time for it.
    """
    until = time.monotonic() + seconds
    proved = True
    drawn = dict(shown(sub, instance))
    for (name, left), each in zip(instance.left.items(), found, strict=True):
        corrected = instance.corrected.get(name)
        if not corrected:
            continue
        if corrected.type != left.type:
            return Counterexample(drawn, name, (), str(left.type), str(corrected.type))
        pair = [restricted(value, each.boxes, inside=True) for value in (left, corrected)]
        (wrong,) = difference(rules, pair[:1], pair[1:], seed=seed, seconds=max(0.1, until - time.monotonic()))
        proved = proved and wrong.proved
        if wrong.boxes and time.monotonic() > until:
            return Counterexample(drawn, name, wrong.boxes[0].start, "another number", "the correction")
        if wrong.boxes:
            rng = np.random.default_rng(seed)
            shown_as = replayed(rules, pair[:1], pair[1:], (name,), instance.inputs, rng, drawn)
            return shown_as or Counterexample(drawn, name, wrong.boxes[0].start, "another number", "the correction")
    return proved


def partial_verdict(rules: Rules, sub: SubstitutionDef, drawn: Iterable[tuple[Instance | None, str]]) -> Verdict:
    """The share of each instance that differs, proved outside of it; `differs` where types do, or where its own correction is wrong."""
    began = time.perf_counter()
    lines: dict[str, float] = {}
    reasons: list[str] = []
    count = 0

    def verdict(answer: Any, reason: str = "", counterexample: Counterexample | None = None) -> Verdict:
        return Verdict("field", answer, milliseconds_since(began), reason, counterexample=counterexample)

    for instance, reason in drawn:
        if not instance:
            reasons.append(reason)
            continue
        names = dict(shown(sub, instance))
        mistyped = types_differ(instance, names)
        if mistyped:
            return verdict("differs", counterexample=mistyped)
        count += 1
        at = ", ".join(f"{name} = {value}" for name, value in names.items())
        try:
            found = difference(rules, *instance.sides, seconds=PROOF)
            corrected = wrongly_corrected(rules, sub, instance, found)
        except NotCompared as problem:
            lines[f"not compared at {at} ({problem})"] = 0.0
            continue
        if isinstance(corrected, Counterexample):
            return verdict("differs", counterexample=corrected)
        correction = f", its correction is {'proved' if corrected else 'not proved'}" if instance.corrected else ""
        lines[f"{shares(tuple(instance.left), found)}{correction} at {at}"] = max(each.share for each in found)
    if not count:
        return verdict("unknown", f"no instance was found; {most_often(reasons)}")
    largest = sorted(lines, key=lines.__getitem__, reverse=True)
    return verdict("unknown", f"partial: the types agree at {count} sizes; " + "; ".join(largest))


def shares(names: Sequence[str], found: Sequence[Difference]) -> str:
    """`30.8 % differs, the rest is proved`."""
    said = [
        percent(each.share) + (f" of {name}" if len(names) > 1 else "") for name, each in zip(names, found, strict=True)
    ]
    rest = "the rest is proved" if all(each.proved for each in found) else "the rest is not proved"
    return f"{' and '.join(said)} differs, {rest}"


def percent(share: float) -> str:
    """`30.8 %`; what is not nothing and not all is shown as neither."""
    text = f"{100 * share:.1f}"
    if 0 < share < 1 and text in {"0.0", "100.0"}:
        return "less than 0.1 %" if share < 0.5 else "more than 99.9 %"
    return f"{text} %"


def one_sided(rules: Rules, sub: SubstitutionDef, seed: int = 0) -> list[Diagnostic]:
    """W0012 for a partial substitution whose sides are equal wherever they were compared, W0013 for nowhere."""
    until = Deadline.after(SECONDS)
    seen: list[float] = []
    for draws in (ORDINARY, ROOMY):
        compared = 0
        for instance in instances(rules, sub, seed, draws=draws):
            if until.over or compared >= MOST // 2:
                break
            if isinstance(instance, Rejected):
                continue
            for name, own in instance.corrected.items():
                if own.type != instance.left[name].type:
                    said = f"the correction of `{name}` is {own.type}, and `{name}` is {instance.left[name].type}"
                    return [Diagnostic("E0605", said, sub.span, counterexample=str(instance))]
            try:
                found = difference(rules, *instance.sides, prove=False)
            except NotCompared:
                continue
            compared += 1
            seen += [each.share for each in found if each.shape == () or 0 not in each.shape]
            if any(0 < share < 1 for share in seen) or (0.0 in seen and 1.0 in seen):
                return []
    if len(seen) < ENOUGH:
        return []
    name, sizes = sub.short, f"at {len(seen)} random sizes"
    code, where, hint = (
        ("W0012", "everywhere", "an ordinary substitution is proved, and needs no correction")
        if seen[0] == 0
        else ("W0013", "nowhere", "a correction would compute all of the output again")
    )
    return [
        Diagnostic(code, f"the sides of `{name}` are equal {where} {sizes}", sub.span, severity="warning", hint=hint)
    ]
