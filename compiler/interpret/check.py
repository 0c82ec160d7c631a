"""`dslc check` as a whole: definitions, bounds of reads, and the types of both sides of substitutions at random small sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import cycle, islice

import numpy as np

from dslc.errors import Diagnostic, Label, Span
from dslc.inspection.bounds import check_operator
from dslc.inspection.lowerings import check_lowering
from dslc.inspection.samples import sample
from dslc.inspection.vacuity import Vacuous, vacuous_operator, vacuous_rule
from dslc.interpret.draws import type_in_turn
from dslc.interpret.instantiate import Instance, Rejected, instantiate, term_choices
from dslc.semantics.check import check
from dslc.semantics.definitions import Module, OperatorDef, Remember, SubstitutionDef, afresh
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules
from dslc.syntax import tree as t

INSTANCES = 3  #: instances of a rule
ATTEMPTS = 1500  #: draws of terms
FURTHER = 150  #: draws after the last instance that fits
OPERATORS = 3  #: operators in the place of a term


def check_all(rules: Rules, modules: Iterable[Module] | None = None, remember: Remember = afresh) -> list[Diagnostic]:
    """The findings about some modules (all by default). Instances are only looked for where a definition has no error of its own.

    `remember` may know what is found in a definition.
    """
    chosen = frozenset(rules.modules if modules is None else modules)
    found = check(rules, chosen, remember)
    errors = [d.span for d in found if d.severity == "error" and d.span]
    for op in rules.operators.values():
        if op.module in chosen and not _touched(op.span, errors):
            found += remember("bounds", op, partial(check_bounds, rules, op))
    for lowering in rules.lowerings.values():
        if lowering.module in chosen and not _touched(lowering.span, errors):
            found += check_lowering(rules, lowering)
    errors = [d.span for d in found if d.severity == "error" and d.span]
    for sub in rules.substitutions.values():
        if sub.module in chosen and not _touched(sub.span, errors):
            found += remember("sides", sub, partial(check_sides, rules, sub, np.random.default_rng(0)))
    return found


def _touched(span: Span, errors: list[Span]) -> bool:
    return any(e.source is span.source and span.start <= e.start < span.end for e in errors)


def check_bounds(rules: Rules, op: OperatorDef) -> list[Diagnostic]:
    """Reads that leave their bounds, and operators that no small shapes fit."""
    empty = vacuous_operator(op)
    if empty:
        return [_vacuous(op, empty, [s for s in op.statements if isinstance(s, t.Where)])]
    report = check_operator(rules, op)
    found = report.diagnostics()
    if not report.elaborated and not found:
        try:
            sample(rules, op)
        except (Mismatch, EvalError) as problem:
            if isinstance(problem, EvalError) and problem.diagnostics:
                return list(problem.diagnostics)
            reason = problem.reason if isinstance(problem, Mismatch) else str(problem)
            span = problem.span if isinstance(problem, Mismatch) and problem.span else op.span
            if reason.endswith("does not hold"):
                message = f"no sizes and attributes were found that satisfy the guards of `{op.short}`"
                return [Diagnostic("W0009", message, span, severity="warning", hint=f"most often: {reason}")]
            hint = problem.hint if isinstance(problem, Mismatch) else ""
            return [Diagnostic("E0306", f"no small shapes fit `{op.short}`: {reason}", span, hint=hint)]
    return found


def check_sides(rules: Rules, sub: SubstitutionDef, rng: np.random.Generator) -> list[Diagnostic]:
    """E0312 or E0314 with the sizes where the sides differ in type; a warning where no instance is found."""
    empty = vacuous_rule(sub)
    if empty:
        wheres = [s for s in sub.syntax.statements if isinstance(s, t.Where)]
        return [_vacuous(sub, empty, wheres)]
    reasons: Counter[str] = Counter()
    hints: dict[str, str] = {}
    meaningless: Counter[Diagnostic] = Counter()
    instances = last = 0
    for attempt, terms in enumerate(islice(cycle(term_choices(rules, sub, rng, OPERATORS)), ATTEMPTS)):
        try:
            instance = instantiate(rules, sub, rng, terms, type_in_turn(attempt))
        except Rejected as reason:
            reasons[str(reason)] += 1
            if isinstance(reason.__cause__, Mismatch):
                hints[str(reason)] = reason.__cause__.hint
            if isinstance(reason.__cause__, EvalError):
                meaningless.update(d for d in reason.__cause__.diagnostics if _inside(d, sub))
            if instances and attempt - last > FURTHER:
                return []
            continue
        differs = _differ(sub, instance)
        if differs:
            return [differs]
        instances, last = instances + 1, attempt
        if instances >= INSTANCES:
            return []
    if instances:
        return []
    if meaningless:
        return [meaningless.most_common(1)[0][0]]
    if not reasons:
        return []  # the file's imports bring no operator that its terms may stand for
    common = max(reasons, key=lambda reason: reasons[reason])
    right = [reason for reason in reasons if reason.startswith("right side")]
    if right:
        why = max(right, key=lambda each: reasons[each])
        message = f"the right side of `{sub.short}` fits no sizes at which the left side fits: {why[12:]}"
        return [Diagnostic("E0306", message, _bind(sub.right, None) or sub.span, hint=hints.get(why, ""))]
    wheres = [s for s in sub.left if isinstance(s, t.Where)]
    if wheres and "does not hold" in common:
        message = f"no sizes were found at which the guards of `{sub.short}` hold"
        return [Diagnostic("W0009", message, wheres[0].span, severity="warning", hint=f"most often: {common}")]
    message = f"no instance of `{sub.short}` was found, so its sides were not compared"
    return [Diagnostic("W0009", message, sub.span, severity="warning", hint=f"most often: {common}")]


def _inside(finding: Diagnostic, sub: SubstitutionDef) -> bool:
    """Return whether a finding is about the text of a rule itself."""
    span, whole = finding.span, sub.span
    end = max(statement.span.end for statement in sub.syntax.statements)
    return span is not None and span.source is whole.source and whole.start <= span.start < end


def _vacuous(definition: OperatorDef | SubstitutionDef, empty: Vacuous, wheres: list[t.Where]) -> Diagnostic:
    """W0001 at the first guard of a contradiction."""
    first = empty.conditions[0]
    span = next((where.span for where in wheres if any(c is first for c in where.conditions)), first.span)
    message = f"no sizes and attributes satisfy the guards of `{definition.short}`: {empty.text}"
    return Diagnostic("W0001", message, span, severity="warning")


def _differ(sub: SubstitutionDef, instance: Instance) -> Diagnostic | None:
    for name, left in instance.left.items():
        right = instance.right[name]
        if left.type == right.type:
            continue
        shape = left.type.shape != right.type.shape
        here = _bind(sub.right, name) or sub.span
        there = _bind(sub.left, name)
        return Diagnostic(
            "E0312" if shape else "E0314",
            f"the replacement changes the {'shape' if shape else 'element type'} of `{name}`",
            here,
            label=f"`{name}` is {right.type} here",
            secondary=(Label(there, f"`{name}` is {left.type} here"),) if there else (),
            counterexample=str(instance),
        )
    return None


def _bind(side: tuple[t.GraphStatement, ...], name: str | None) -> Span | None:
    """The place where a side binds an output; the last binding for None."""
    binds = [s for s in side if isinstance(s, t.Bind) and (name is None or name in s.names)]
    return binds[-1].value.span if binds else None
