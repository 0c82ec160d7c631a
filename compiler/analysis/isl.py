"""The only door to isl. Dimensions have names; a set is a conjunction of affine constraints over integers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

# what a proof may take (about a second); beyond it, it counts as not proved
_MOST_OPERATIONS = 1_000_000


@dataclass(frozen=True, slots=True)
class Constraint:
    """`sum(coefficient * variable) + constant >= 0`, or `== 0`."""

    terms: tuple[tuple[str, int], ...]
    constant: int
    kind: Literal[">=", "=="] = ">="

    def __str__(self) -> str:
        parts = [f"{coefficient}*{name}" for name, coefficient in self.terms]
        kind = ">=" if self.kind == ">=" else "="
        return f"{' + '.join([*parts, str(self.constant)])} {kind} 0"


@cache
def is_empty(variables: tuple[str, ...], constraints: tuple[Constraint, ...]) -> bool:
    """Whether no integer point satisfies all constraints. False where isl gives up (its operation limit)."""
    import islpy

    _context().reset_operations()
    try:
        return bool(_set(variables, constraints).is_empty())
    except islpy.Error:
        return False


def _set(variables: tuple[str, ...], constraints: tuple[Constraint, ...]) -> Any:
    import islpy

    # positions stand in for the names, which may not be identifiers of isl
    short = {name: f"x{k}" for k, name in enumerate(variables)}
    renamed = [
        str(Constraint(tuple((short[name], c) for name, c in each.terms), each.constant, each.kind))
        for each in constraints
    ]
    text = f"{{ [{', '.join(short.values())}] : {' and '.join(renamed) or '1 = 1'} }}"
    return islpy.Set(text, context=_context())


@cache
def _context() -> Any:
    import islpy

    context = islpy.Context()
    context.set_max_operations(_MOST_OPERATIONS)
    return context
