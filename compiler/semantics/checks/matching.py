"""Subsumption of rules: one rule's pattern covers another's, modulo the order of operands of commutative operators.

The other rule's tensors, sizes and attributes are constants here. What is not decided by looking at the text counts as no match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from operator import itemgetter

from dslc.semantics.checks.terms import AppliedTerm, Direction, InputTerm, Other, Term, substituted
from dslc.semantics.library import Rules
from dslc.semantics.walk import dims_of, nodes, pack_name
from dslc.syntax import tree as t


@dataclass(frozen=True, slots=True)
class TermMatch:
    """Bindings of the pattern's tensors, its names, and its `**rest`."""

    tensors: Mapping[str, Term]
    names: Mapping[str, t.Expr]
    rests: Mapping[str, tuple[tuple[tuple[str, t.Expr], ...], str | None]]


EMPTY = TermMatch({}, {}, {})


def matches(rules: Rules, pattern: Direction, others: tuple[Term, ...]) -> Iterator[TermMatch]:
    """All ways in which the left side of a rule is the given terms."""
    if len(pattern.left) == len(others):
        yield from _all(rules, pattern, pattern.left, others, EMPTY)


def _all(
    rules: Rules, pattern: Direction, terms: tuple[Term, ...], others: tuple[Term, ...], found: TermMatch
) -> Iterator[TermMatch]:
    if not terms:
        yield found
        return
    for next_found in _one(rules, pattern, terms[0], others[0], found):
        yield from _all(rules, pattern, terms[1:], others[1:], next_found)


def _one(rules: Rules, pattern: Direction, term: Term, other: Term, found: TermMatch) -> Iterator[TermMatch]:
    if isinstance(term, InputTerm):
        known = found.tensors.get(term.name)
        if known is None:
            yield replace(found, tensors={**found.tensors, term.name: other})
        elif same(rules, known, other):
            yield found
        return
    if isinstance(term, Other):
        bound = _expr(pattern, term.expr, other.expr, found) if isinstance(other, Other) else None
        if bound is not None:
            yield bound
        return
    if not isinstance(other, AppliedTerm) or (term.operator, term.output) != (other.operator, other.output):
        return
    if len(term.args) != len(other.args):
        return
    bound = _attributes(pattern, term, other, found)
    if bound is None:
        return
    orders = [other.args]
    if len(other.args) == 2 and rules.traits_of(term.operator).commutative:
        orders.append(other.args[::-1])
    for order in orders:
        yield from _all(rules, pattern, term.args, order, bound)


def _attributes(pattern: Direction, term: AppliedTerm, other: AppliedTerm, found: TermMatch) -> TermMatch | None:
    mine, theirs = dict(term.attrs), dict(other.attrs)
    for name, value in mine.items():
        if name not in theirs:
            return None
        bound = _expr(pattern, value, theirs[name], found)
        if bound is None:
            return None
        found = bound
    left = tuple(pair for pair in other.attrs if pair[0] not in mine)
    if term.rest is None:
        return found if not left and other.rest is None else None
    known = found.rests.get(term.rest)
    if known is None:
        return replace(found, rests={**found.rests, term.rest: (left, other.rest)})
    return found if known == (left, other.rest) else None


def _expr(pattern: Direction, value: t.Expr, other: t.Expr, found: TermMatch) -> TermMatch | None:
    """The pattern's free names stand for any expression, each for one."""
    if isinstance(value, t.Name) and value.id in pattern.free:
        return _bound(found, value.id, other)
    if type(value) is not type(other):
        return None
    for entry in fields(value):
        mine, theirs = getattr(value, entry.name), getattr(other, entry.name)
        if entry.name == "span":
            continue
        bound: TermMatch | None = found if mine == theirs else None
        if isinstance(mine, t.Node) and isinstance(theirs, t.Node):
            bound = _expr(pattern, mine, theirs, found)  # type: ignore[arg-type]
        elif (
            isinstance(mine, tuple)
            and isinstance(theirs, tuple)
            and all(isinstance(x, t.Node) for x in (*mine, *theirs))
        ):
            bound = _list(pattern, mine, theirs, found)
        if bound is None:
            return None
        found = bound
    return found


def _list(
    pattern: Direction, values: tuple[t.Expr, ...], others: tuple[t.Expr, ...], found: TermMatch
) -> TermMatch | None:
    """Entry by entry; one pack of the pattern stands for what the others leave."""
    packs = [k for k, value in enumerate(values) if pack_name(value) in pattern.free]
    if len(packs) > 1:
        return _renamed(pattern, values, others, found)
    if not packs:
        if len(values) != len(others):
            return None
        for value, other in zip(values, others, strict=True):
            bound = _expr(pattern, value, other, found)
            if bound is None:
                return None
            found = bound
        return found
    at, behind = packs[0], len(values) - packs[0] - 1
    if len(others) < len(values) - 1:
        return None
    middle = others[at : len(others) - behind]
    if any(isinstance(each, t.Pack) for each in (*others[:at], *others[len(others) - behind :])):
        return None
    rest = _list(pattern, (*values[:at], *values[at + 1 :]), (*others[:at], *others[len(others) - behind :]), found)
    if rest is None:
        return None
    pack = values[at]
    return _bound(rest, pack_name(pack) or "", t.ListExpr(tuple(middle), span=pack.span))


def _bound(match: TermMatch, name: str, value: t.Expr) -> TermMatch | None:
    """A match with what a name stands for; None where it stands for something else."""
    if name not in match.names:
        return replace(match, names={**match.names, name: value})
    return match if match.names[name] == value else None


def applied_match(term: Term, match: TermMatch) -> Term | None:
    """A term of the pattern's rule with what its names stand for; None where something on its right is not bound."""
    if isinstance(term, InputTerm):
        return match.tensors.get(term.name)
    if isinstance(term, Other):
        return Other(substituted(term.expr, match.names))
    args = tuple(applied_match(arg, match) for arg in term.args)
    if any(arg is None for arg in args):
        return None
    attrs = {name: substituted(value, match.names) for name, value in term.attrs}
    rest = None
    if term.rest is not None:
        if term.rest not in match.rests:
            return None
        more, rest = match.rests[term.rest]
        attrs = {**dict(more), **attrs}
    known = tuple(a for a in args if a is not None)
    return AppliedTerm(term.operator, known, tuple(sorted(attrs.items(), key=itemgetter(0))), rest, term.output)


def same(rules: Rules, a: Term, b: Term) -> bool:
    """Equal up to the order of operands of commutative operators."""
    if not isinstance(a, AppliedTerm) or not isinstance(b, AppliedTerm):
        return a == b
    if (a.operator, a.output, a.attrs, a.rest, len(a.args)) != (b.operator, b.output, b.attrs, b.rest, len(b.args)):
        return False
    if all(same(rules, x, y) for x, y in zip(a.args, b.args, strict=True)):
        return True
    turned = len(a.args) == 2 and rules.traits_of(a.operator).commutative
    return turned and same(rules, a.args[0], b.args[1]) and same(rules, a.args[1], b.args[0])


def allowed(pattern: Direction, match: TermMatch, other: Direction) -> bool:
    """Return whether the pattern's types and guards hold wherever the other rule's do, as far as the texts show."""
    found = _types(pattern, match, other)
    if found is None:
        return False
    span = pattern.rule.syntax.span
    names = dict(found.names)
    names |= {name: t.Name(term.name, span=span) for name, term in match.tensors.items() if isinstance(term, InputTerm)}
    for condition in pattern.conditions:
        if any(_speaks_of(condition, name) for name, term in match.tensors.items() if not isinstance(term, InputTerm)):
            return False
        unbound = pattern.free - names.keys()
        if (
            any(_speaks_of(condition, name) for name in unbound)
            or substituted(condition, names) not in other.conditions
        ):
            return False
    return True


def _speaks_of(condition: t.Expr, name: str) -> bool:
    return any(node.id.partition(".")[0] == name for node in nodes(t.Name, condition))


def _types(pattern: Direction, match: TermMatch, other: Direction) -> TermMatch | None:
    """The match extended by the sizes of types; None where a type may exclude the other rule's tensors."""
    uses: dict[str, int] = {}
    for declared in pattern.types.values():
        for pack in map(pack_name, dims_of(declared)):
            if pack is not None:
                uses[pack] = uses.get(pack, 0) + 1
    for name, declared in pattern.types.items():
        term = match.tensors.get(name)
        if declared is None or term is None:
            continue
        if isinstance(term, InputTerm):
            theirs = other.types.get(term.name)
            if theirs is None:
                return None
            bound = _type(pattern, declared, theirs, match)
            if bound is None:
                return None
            match = bound
            continue
        pack = pack_name(dims_of(declared)[0]) if len(dims_of(declared)) == 1 else None
        # the element type is a name which no other condition speaks of, though other tensors may share it
        free = declared.name in pattern.free and not any(_speaks_of(c, declared.name) for c in pattern.conditions)
        if pack is None or not free or uses[pack] > 1 or pack in match.names:
            return None
    return match


def _type(pattern: Direction, mine: t.TypeExpr, theirs: t.TypeExpr, match: TermMatch) -> TermMatch | None:
    found: TermMatch | None = match
    if mine.name in pattern.free:
        found = _bound(match, mine.name, t.Name(theirs.name, span=theirs.span))
    elif mine.name != theirs.name:
        return None
    if found is None:
        return None
    match = found
    if mine.dims is None or theirs.dims is None:
        return match if mine.dims == theirs.dims else None
    several = sum(isinstance(dim, t.Pack) for dim in mine.dims) > 1
    return (_renamed if several else _list)(pattern, mine.dims, theirs.dims, match)


def _renamed(
    pattern: Direction, mine: tuple[t.Expr, ...], theirs: tuple[t.Expr, ...], match: TermMatch
) -> TermMatch | None:
    """Lists with two packs: only where they are the same up to names."""
    if len(mine) != len(theirs):
        return None
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(a, t.Pack) != isinstance(b, t.Pack):
            return None
        bound: TermMatch | None
        if isinstance(a, t.Pack):
            name = pack_name(a)
            if name is None or pack_name(b) is None:
                return None
            bound = _bound(match, name, t.ListExpr((b,), span=b.span))
        else:
            bound = _expr(pattern, a, b, match)
        if bound is None:
            return None
        match = bound
    return match
