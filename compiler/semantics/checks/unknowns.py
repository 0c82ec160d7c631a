"""The unknowns of a derivation as they are declared, and the sets that positions are from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dslc.semantics.checks.names import CheckReport
from dslc.syntax import tree as t

#: the sets that positions may be from, one for each vector; none where that is not known
Kinds = tuple[frozenset[str], ...]
ANY: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Declared:
    """The unknowns of a rule: the set of each index, domains and codomains of maps, the parameters of terms."""

    indexes: Mapping[str, str | None]
    maps: Mapping[str, tuple[Kinds, Kinds]]
    terms: Mapping[str, t.Signature]
    sets: frozenset[str]
    tensors: frozenset[str]
    #: names of terms that are declared more than once
    again: frozenset[str]
    report: CheckReport

    @property
    def functions(self) -> frozenset[str]:
        """Names of what is applied to positions."""
        return frozenset({*self.terms, *self.maps})

    def sides(self, node: t.Expr) -> tuple[Kinds, Kinds] | None:
        """The sets that a map takes and gives where it is applied, itself or its inverse; None for all else."""
        name, _, way = node.function.partition(".") if isinstance(node, t.Call) else ("", "", "")
        found = self.maps.get(name)
        return found if found is None or way != "inverse" else found[::-1]

    def ranged(self, names: Iterable[str]) -> set[str]:
        """The sets of the indexes among some names."""
        return {self.indexes[name] or "" for name in names if name in self.indexes}

    def add(self, code: str, message: str, at: t.Node, hint: str) -> None:
        """Reports what is wrong with the rule."""
        self.report.add(code, message, at, hint)

    @staticmethod
    def of(rule: t.Derivation, report: CheckReport) -> Declared:
        indexes: dict[str, str | None] = {}
        maps: dict[str, tuple[Kinds, Kinds]] = {}
        terms: dict[str, t.Signature] = {}
        sets: set[str] = set()
        tensors: set[str] = set()
        again: set[str] = set()
        for one in rule.declarations:
            if isinstance(one, t.IndexDecl):
                for binder in one.binders:
                    indexes[binder.name] = binder.range.bare if binder.range else None
                sets |= {each for each in indexes.values() if each is not None}
            elif isinstance(one, t.MapDecl):
                maps[one.name] = factors(one.domain), factors(one.codomain)
                sets |= {each for part in maps[one.name] for kind in part for each in kind}
            elif isinstance(one, t.TermDecl):
                for signature in one.signatures:
                    again |= {signature.name} & terms.keys()
                    terms[signature.name] = signature
            elif isinstance(one, t.SetDecl):
                sets |= set(one.names)
            elif isinstance(one, t.TensorDecl):
                tensors |= set(one.names)
        return Declared(indexes, maps, terms, frozenset(sets), frozenset(tensors), frozenset(again), report)


def factors(node: t.Expr) -> Kinds:
    """`X * Y` → the sets of both vectors."""
    if isinstance(node, t.Binary) and node.op == "*":
        return *factors(node.left), *factors(node.right)
    return (frozenset({node.id}) if isinstance(node, t.Name) else ANY,)


def unlike(kinds: Kinds, wanted: Kinds) -> bool:
    """Return whether positions are from other sets than wanted, as far as both are known."""
    return len(kinds) != len(wanted) or any(a and b and not a & b for a, b in zip(kinds, wanted, strict=True))


def shown(kinds: Kinds) -> str:
    """Sets as a message names them: `X * Y`."""
    return " * ".join("/".join(sorted(each)) or "?" for each in kinds)
