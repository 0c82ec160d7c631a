"""Operators on the left side of a rule that are applied before all tensors are known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dslc.prove.cover.draw import Draft
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t


@dataclass(frozen=True, slots=True)
class Early:
    """A call of the left side on parameters alone, with the names of these, and the name of its result where it has one."""

    call: t.Call
    operands: frozenset[str]
    name: str | None


def apply_early(draft: Draft, calls: tuple[Early, ...]) -> None:
    """Applies operators whose operands are known, so that ranks that do not fit end a path before more is chosen."""
    for place, each in enumerate(calls):
        if place not in draft.applied and all(draft.env.has(name) for name in each.operands):
            draft.applied.add(place)
            value = draft.needing(draft.env, each.call)
            if each.name is not None:
                draft.env.bind(each.name, value)
                draft.solve_conditions()


@lru_cache(maxsize=64)
def early_calls(sub: SubstitutionDef) -> tuple[Early, ...]:
    """The calls of the left side on parameters alone."""
    params = {param.name for param in sub.syntax.params}
    binds = [s for s in sub.syntax.left if isinstance(s, t.Bind)]
    whole = {id(bind.value): bind.names[0] for bind in binds if len(bind.names) == 1}
    calls = (node for bind in binds for node in walk_expr(bind.value) if isinstance(node, t.Call) and node.args)
    return tuple(
        Early(call, frozenset(arg.id for arg in call.args if isinstance(arg, t.Name)), whole.get(id(call)))
        for call in calls
        if all(isinstance(arg, t.Name) and arg.id in params for arg in call.args)
    )
