"""The laws of a `property` as rules, one for each of its equations."""

from __future__ import annotations

from dataclasses import replace

from dslc.errors import error
from dslc.interpret.check_rule import as_substitution
from dslc.semantics.definitions import PropertyDef, SubstitutionDef


def law_substitutions(law: PropertyDef) -> tuple[SubstitutionDef, ...]:
    """`left == right` as the rule `left => right`, for every equation of a law; several are numbered from 1.

    Raises:
        DslcError: E0321 where a law is no equation.
    """
    out = []
    for k, equation in enumerate(law.syntax.laws):
        if not equation.equated:
            raise error("E0321", "a law is an equation of two tensors", equation.span)
        name = law.name if len(law.syntax.laws) == 1 else f"{law.name}.{k + 1}"
        out.append(replace(as_substitution(law, equation), name=name))
    return tuple(out)
