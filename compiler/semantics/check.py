"""`check`: everything that is wrong with loaded definitions, as far as it shows without running anything."""

from __future__ import annotations

from collections.abc import Iterable

from dslc.errors import Diagnostic
from dslc.semantics.checks.clauses import check_clauses
from dslc.semantics.checks.duplicates import check_duplicates
from dslc.semantics.checks.names import CheckReport
from dslc.semantics.checks.numbers import check_numbers
from dslc.semantics.checks.operators import check_operator
from dslc.semantics.checks.others import check_derivation, check_header, check_lowering, check_ruleset, check_test
from dslc.semantics.checks.overlap import check_covered
from dslc.semantics.checks.substitutions import check_property, check_substitution
from dslc.semantics.checks.termination import check_termination
from dslc.semantics.definitions import Module, Remember, afresh
from dslc.semantics.library import Rules


def check(rules: Rules, modules: Iterable[Module] | None = None, remember: Remember = afresh) -> list[Diagnostic]:
    """The findings about some modules of the rules (all by default), in the order of the text.

    The bounds of reads and the shapes of both sides of substitutions are checked by `dslc.analysis` and `dslc.interpret`, which
    stand on these checks.
    """
    chosen = frozenset(rules.modules if modules is None else modules)
    report = CheckReport(remember=remember)
    for module in rules.modules:
        if module in chosen:
            check_header(rules, module, report)
    for op in rules.operators.values():
        if op.module in chosen:
            check_operator(rules, op, report)
    for sub in rules.substitutions.values():
        if sub.module in chosen:
            check_substitution(rules, sub, report)
    for law in rules.laws.values():
        if law.module in chosen and law.trait is None:
            check_property(rules, law, report)
    for derivation in rules.derivations.values():
        if derivation.module in chosen:
            check_derivation(rules, derivation, report)
    for lowering in rules.lowerings.values():
        if lowering.module in chosen:
            check_lowering(rules, lowering, report)
    for test in rules.tests:
        if test.module in chosen:
            check_test(rules, test, report)
    for ruleset in rules.rulesets.values():
        if ruleset.module in chosen:
            check_ruleset(rules, ruleset, report)
    check_clauses(rules, chosen, report)
    check_duplicates(rules, chosen, report)
    check_covered(rules, chosen, report)
    check_termination(rules, chosen, report)
    check_numbers(rules, chosen, report)
    return sorted(report.found, key=_place)


def _place(found: Diagnostic) -> tuple[str, int]:
    return (found.span.source.path, found.span.start) if found.span else (found.path, 0)
