"""Subsumption of rules: one rule's pattern covers another's, modulo the order of operands of commutative operators.

The other rule's tensors, sizes and attributes are constants here. What is not decided by looking at the text counts as no match.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import itemgetter
from typing import Any

from dslc.semantics.checks.terms import AppliedTerm, Direction, InputTerm, Other, Term, substituted
from dslc.semantics.library import Rules
from dslc.semantics.walk import dims_of, nodes, pack_name
from dslc.syntax import tree as t


@dataclass
class TermMatch:
    """Bindings of the tensors of a rule's direction, its names, and its `**rest`; its methods add to them as far as they fit."""

    rules: Rules
    pattern: Direction
    tensors: dict[str, Term] = field(default_factory=dict)
    names: dict[str, t.Expr] = field(default_factory=dict)
    rests: dict[str, tuple[tuple[tuple[str, t.Expr], ...], str | None]] = field(default_factory=dict)

    def copy(self) -> TermMatch:
        return TermMatch(self.rules, self.pattern, {**self.tensors}, {**self.names}, {**self.rests})

    def terms(self, terms: Sequence[Term], others: Sequence[Term]) -> Iterator[TermMatch]:
        """All ways in which terms are the given ones."""
        if not terms:
            yield self
            return
        for found in self._term(terms[0], others[0]):
            yield from found.terms(terms[1:], others[1:])

    def _term(self, term: Term, other: Term) -> Iterator[TermMatch]:
        if isinstance(term, AppliedTerm) and not (isinstance(other, AppliedTerm) and term.head == other.head):
            return
        found = self.copy()
        if isinstance(term, InputTerm):
            if same(self.rules, found.tensors.setdefault(term.name, other), other):
                yield found
        elif isinstance(term, Other):
            if isinstance(other, Other) and found._expr(term.expr, other.expr):
                yield found
        elif isinstance(other, AppliedTerm) and found._attributes(term, other):
            for order in orders(self.rules, other):
                yield from found.terms(term.args, order)

    def _attributes(self, term: AppliedTerm, other: AppliedTerm) -> bool:
        mine, theirs = dict(term.attrs), dict(other.attrs)
        if not all(name in theirs and self._expr(value, theirs[name]) for name, value in mine.items()):
            return False
        left = tuple(pair for pair in other.attrs if pair[0] not in mine), other.rest
        return left == ((), None) if term.rest is None else self.rests.setdefault(term.rest, left) == left

    def _name(self, name: str, value: t.Expr) -> bool:
        return self.names.setdefault(name, value) == value

    def _expr(self, value: Any, other: Any) -> bool:
        """The pattern's free names stand for any expression, each for one."""
        if isinstance(value, t.Name) and value.id in self.pattern.free:
            return self._name(value.id, other)
        return type(value) is type(other) and all(
            self._part(getattr(value, entry.name), getattr(other, entry.name))
            for entry in fields(value)
            if entry.name != "span"
        )

    def _part(self, mine: Any, theirs: Any) -> bool:
        if isinstance(mine, t.Node) and isinstance(theirs, t.Node):
            return self._expr(mine, theirs)
        listed = isinstance(mine, tuple) and isinstance(theirs, tuple)
        if listed and all(isinstance(each, t.Node) for each in (*mine, *theirs)):
            return self._list(mine, theirs)
        return bool(mine == theirs)

    def _list(self, values: tuple[t.Expr, ...], others: tuple[t.Expr, ...]) -> bool:
        """Entry by entry; one pack of the pattern stands for what the others leave."""
        packs = [k for k, value in enumerate(values) if pack_name(value) in self.pattern.free]
        if len(packs) > 1:
            return self._renamed(values, others)
        if not packs:
            return len(values) == len(others) and all(map(self._expr, values, others))
        (at,) = packs
        end = len(others) - (len(values) - at - 1)
        around = (*others[:at], *others[end:])
        if end < at or any(isinstance(each, t.Pack) for each in around):
            return False
        middle = t.ListExpr(others[at:end], span=values[at].span)
        return self._list((*values[:at], *values[at + 1 :]), around) and self._name(pack_name(values[at]) or "", middle)

    def _renamed(self, mine: tuple[t.Expr, ...], theirs: tuple[t.Expr, ...]) -> bool:
        """Lists with two packs: only where they are the same up to names."""
        return len(mine) == len(theirs) and all(map(self._slot, mine, theirs))

    def _slot(self, mine: t.Expr, theirs: t.Expr) -> bool:
        if not isinstance(mine, t.Pack):
            return not isinstance(theirs, t.Pack) and self._expr(mine, theirs)
        name = pack_name(mine)
        whole = t.ListExpr((theirs,), span=theirs.span)
        return name is not None and pack_name(theirs) is not None and self._name(name, whole)

    def results(self) -> tuple[Term, ...] | None:
        """The right side with what its names stand for; None where something on it is not bound."""
        try:
            return tuple([self._applied(term) for term in self.pattern.right])
        except KeyError:
            return None

    def _applied(self, term: Term) -> Term:
        if isinstance(term, InputTerm):
            return self.tensors[term.name]
        if isinstance(term, Other):
            return Other(substituted(term.expr, self.names))
        more, rest = ((), None) if term.rest is None else self.rests[term.rest]
        attrs = {**dict(more), **{name: substituted(value, self.names) for name, value in term.attrs}}
        args = tuple([self._applied(arg) for arg in term.args])
        return replace(term, args=args, attrs=tuple(sorted(attrs.items(), key=itemgetter(0))), rest=rest)

    def allowed(self, other: Direction) -> bool:
        """Return whether the pattern's types and guards hold wherever the other rule's do, as far as the texts show."""
        found, span = self.copy(), self.pattern.rule.span
        if not found._typed(other):
            return False
        inputs = {name: term for name, term in self.tensors.items() if isinstance(term, InputTerm)}
        names = {**found.names, **{name: t.Name(term.name, span=span) for name, term in inputs.items()}}
        hidden = self.pattern.free - names.keys() | self.tensors.keys() - inputs.keys()
        return all(
            hidden.isdisjoint(_heads(condition)) and substituted(condition, names) in other.conditions
            for condition in self.pattern.conditions
        )

    def _typed(self, other: Direction) -> bool:
        """Bind the sizes of types; False where a type may exclude the other rule's tensors."""
        pattern = self.pattern
        uses = Counter(pack_name(dim) for declared in pattern.types.values() for dim in dims_of(declared))
        for name, declared in pattern.types.items():
            term = self.tensors.get(name)
            if not declared or not term:
                continue
            if isinstance(term, InputTerm):
                theirs = other.types.get(term.name)
                if not theirs or not self._type(declared, theirs):
                    return False
                continue
            dims = dims_of(declared)
            pack = pack_name(dims[0]) if len(dims) == 1 else None
            # the element type is a name which no other condition speaks of, though other tensors may share it
            free = declared.name in pattern.free and declared.name not in _heads(pattern.conditions)
            if pack is None or not free or uses[pack] > 1 or pack in self.names:
                return False
        return True

    def _type(self, mine: t.TypeExpr, theirs: t.TypeExpr) -> bool:
        if mine.name in self.pattern.free:
            if not self._name(mine.name, t.Name(theirs.name, span=theirs.span)):
                return False
        elif mine.name != theirs.name:
            return False
        if mine.dims is None or theirs.dims is None:
            return mine.dims == theirs.dims
        several = sum(isinstance(dim, t.Pack) for dim in mine.dims) > 1
        return (self._renamed if several else self._list)(mine.dims, theirs.dims)


def _heads(conditions: Any) -> set[str]:
    return {node.head for node in nodes(t.Name, conditions)}


def matches(rules: Rules, pattern: Direction, others: Sequence[Term]) -> Iterator[TermMatch]:
    """All ways in which the left side of a rule is the given terms."""
    if len(pattern.left) == len(others):
        yield from TermMatch(rules, pattern).terms(pattern.left, others)


def orders(rules: Rules, term: AppliedTerm) -> list[tuple[Term, ...]]:
    """The operands of a term as they stand, and exchanged where the operator is commutative."""
    turned = len(term.args) == 2 and rules.traits_of(term.operator).commutative
    return [term.args, term.args[::-1]] if turned else [term.args]


def same(rules: Rules, a: Term, b: Term) -> bool:
    """Equal up to the order of operands of commutative operators."""
    if not isinstance(a, AppliedTerm) or not isinstance(b, AppliedTerm):
        return a == b
    if (a.head, a.attrs, a.rest) != (b.head, b.attrs, b.rest):
        return False
    return any(all_same(rules, a.args, order) for order in orders(rules, b))


def all_same(rules: Rules, one: Sequence[Term], other: Sequence[Term]) -> bool:
    """As `same`, of several terms."""
    return len(one) == len(other) and all(same(rules, a, b) for a, b in zip(one, other, strict=True))
