"""Up to which ranks a rule has to be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.library import Rules
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t

_MOST_ALONE = 3
_MOST = 2
_MOST_GUARDED = 4


@dataclass(frozen=True, slots=True)
class Ranks:
    """`most`: the largest rank of each pack to look at; `bounded`: those packs for which that is a bound."""

    most: Mapping[str, int]
    bounded: tuple[str, ...]


def packs_of(sub: SubstitutionDef) -> tuple[str, ...]:
    """The names of the packs in the types of a rule's parameters."""
    found: dict[str, None] = {}
    for param in sub.syntax.params:
        for node in walk_expr((param.type.dims or ()) if param.type is not None else ()):
            if isinstance(node, t.Pack) and isinstance(node.value, t.Name):
                found[node.value.id] = None
    return tuple(found)


def ranks_of(rules: Rules, sub: SubstitutionDef) -> Ranks:
    """The ranks to look at."""
    packs = packs_of(sub)
    most = {name: _MOST_ALONE if len(packs) == 1 else _MOST for name in packs}
    most.update((name, _MOST_GUARDED) for name in _guarded(sub) if name in most)
    return Ranks(most, packs)


def _guarded(sub: SubstitutionDef) -> set[str]:
    """Packs that a guard lets broadcast to a shape which other names give: longer ones never fit."""
    found = set()
    for statement in sub.syntax.left:
        for condition in statement.conditions if isinstance(statement, t.Where) else ():
            if isinstance(condition, t.Compare) and condition.ops == ("==",):
                for node in walk_expr(condition):
                    if isinstance(node, t.Call) and node.function == "broadcast":
                        found |= {arg.id for arg in node.args if isinstance(arg, t.Name)}
    return found
