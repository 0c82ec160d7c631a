"""Rules that never end: a result that holds its own pattern, and one-way rules that lead back to where they started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from dslc.semantics.checks.matching import all_same, matches
from dslc.semantics.checks.names import CheckReport
from dslc.semantics.checks.terms import AppliedTerm, Direction, InputTerm, Term, directions, size, subterms
from dslc.semantics.definitions import Module, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.semantics.walk import named_by

LONGEST = 4  #: rules of a way back: a longer one is not looked for
STATES = 64  #: terms that are looked at


_TIMES = {2: "twice", 3: "three times", 4: "four times"}


def check_termination(rules: Rules, modules: frozenset[Module], report: CheckReport) -> None:
    """W0003 where a one-way rule's result holds its pattern again, W0011 where one-way rules undo each other.

    Two-way rules are meant to be undone, so they are exempt.
    """
    steps: dict[SubstitutionDef, Direction] = {}
    heads: dict[tuple[str, ...], list[Direction]] = {}
    for sub in rules.substitutions.values():
        if sub.syntax.arrow == "=>" and not report.failed(sub.syntax):
            for step in directions(sub):
                if all(isinstance(term, AppliedTerm) for term in step.left):
                    steps[sub] = step
                    heads.setdefault(_heads(step.left), []).append(step)
    reported: set[frozenset[str]] = set()
    for sub, step in steps.items():
        if sub.module not in modules:
            continue
        constants = named_by("constant", step.conditions)
        step = replace(step, right=tuple(_folded(term, constants) for term in step.right))
        if _holds_itself(rules, step):
            hint = "a rule that may be used both ways is written with `<=>`"
            report.add("W0003", f"the right side of `{sub.short}` holds its left side again", sub.syntax, hint)
            continue
        circle = _circle(rules, step, heads)
        if circle is None or frozenset(circle) in reported:
            continue
        reported.add(frozenset(circle))
        if len(circle) == 1:
            message = f"both sides of `{sub.short}` are the same up to the order of operands"
        elif len(set(circle)) == 1:
            message = f"`{sub.short}` leads back to where it started when it is applied {_TIMES[len(circle)]}"
        else:
            message = f"`{sub.short}` is undone by {' and then '.join(f'`{name}`' for name in circle[1:])}"
        report.add("W0011", message, sub.syntax, "rules that hold both ways are one rule, with `<=>`")


def _folded(term: Term, constants: frozenset[str]) -> Term:
    """Treat a node of constants only as folded: no pattern sees its structure."""
    if not isinstance(term, AppliedTerm) or not constants:
        return term
    leaves = [each.name for each in subterms(term) if isinstance(each, InputTerm)]
    if leaves and constants.issuperset(leaves):
        return InputTerm(" ".join(leaves))
    return replace(term, args=tuple(_folded(arg, constants) for arg in term.args))


def _heads(terms: tuple[Term, ...]) -> tuple[str, ...]:
    return tuple(term.operator if isinstance(term, AppliedTerm) else "" for term in terms)


def _holds_itself(rules: Rules, step: Direction) -> bool:
    """Return whether the pattern of one output occurs in the result, where nothing can exclude it from applying there."""
    if len(step.left) != 1:
        return False
    left = size(step.left[0])
    return any(
        match.allowed(step)
        for term in subterms(step.right[0])
        # a result of the same size is a circle, not growth
        if term is not step.right[0] or size(term) > left
        for match in islice(matches(rules, step, (term,)), STATES)
    )


def _circle(rules: Rules, start: Direction, heads: Mapping[tuple[str, ...], list[Direction]]) -> list[str] | None:
    """The rules that lead from a rule's left side back to it; None where there is no such way up to a length."""
    states: list[tuple[tuple[Term, ...], list[str]]] = [(start.right, [start.rule.short])]
    seen: list[tuple[Term, ...]] = []
    while states:
        terms, path = states.pop(0)
        if all_same(rules, terms, start.left) and not any(isinstance(term, InputTerm) for term in terms):
            return path
        if len(path) >= LONGEST or len(seen) >= STATES:
            continue
        for step in heads.get(_heads(terms), ()):
            for match in islice(matches(rules, step, terms), STATES):
                found = match.results() if match.allowed(start) else None
                if found is not None and not any(all_same(rules, found, old) for old in seen):
                    seen.append(found)
                    states.append((found, [*path, step.rule.short]))
    return None
