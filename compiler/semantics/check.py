"""`check`: everything that is wrong with loaded definitions, as far as it shows without running anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

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
    laws = [law for law in rules.laws.values() if law.trait is None]
    each: list[tuple[Iterable[Any], Callable[[Rules, Any, CheckReport], None]]] = [
        (rules.operators.values(), check_operator), (rules.substitutions.values(), check_substitution), (laws, check_property),
        (rules.derivations.values(), check_derivation), (rules.lowerings.values(), check_lowering), (rules.tests, check_test),
        (rules.rulesets.values(), check_ruleset),
    ]  # fmt: skip
    for definitions, checked in each:
        for definition in definitions:
            if definition.module in chosen:
                checked(rules, definition, report)
    for whole in (check_clauses, check_duplicates, check_covered, check_termination, check_numbers):
        whole(rules, chosen, report)
    return sorted(report.found, key=lambda d: (d.span.source.path, d.span.start) if d.span else (d.path, 0))
