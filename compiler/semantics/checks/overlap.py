"""Rules that another one makes superfluous, and rules that match the same graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dslc.errors import Diagnostic, Label
from dslc.semantics.checks.matching import all_same, matches, orders
from dslc.semantics.checks.names import CheckReport
from dslc.semantics.checks.terms import AppliedTerm, Direction, InputTerm, Term, directions
from dslc.semantics.definitions import Module, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.syntax import tree as t

STEPS = 2000  #: steps of unification, which branches at every commutative operator: longer patterns are not compared


def check_covered(rules: Rules, modules: frozenset[Module], report: CheckReport) -> None:
    """W0004 where two rules are equal up to names, order of operands and direction; W0002 where one is a special case of another."""
    known = {sub: () if report.failed(sub.syntax) else directions(sub) for sub in rules.substitutions.values()}
    heads: dict[str, dict[SubstitutionDef, None]] = {}
    for sub, own in known.items():
        for each in own:
            heads.setdefault(_head(each), {})[sub] = None
    for position, (sub, own) in enumerate(known.items()):
        if sub.module not in modules or not own or not isinstance(own[0].left[0], AppliedTerm):
            continue
        for other in heads[_head(own[0])]:
            if other is sub or not all(_covers(rules, known[other], each) for each in own):
                continue
            equal = all(_covers(rules, own, each) for each in known[other])
            if equal and list(known).index(other) > position:
                continue  # the later one of two is reported
            if any(d.code == "W0004" and d.span is sub.span for d in report.found):
                break
            if equal:
                report.add("W0004", f"`{sub.short}` is `{other.name}` up to names, order and direction", sub.syntax)
            else:
                message = f"wherever `{sub.short}` applies, `{other.name}` applies and does the same"
                hint = "leave it out, or let the more general rule exclude this case with a guard"
                report.add("W0002", message, sub.syntax, hint)
            break


def _head(direction: Direction) -> str:
    first = direction.left[0]
    return f"{len(direction.left)} {first.operator if isinstance(first, AppliedTerm) else type(first).__name__}"


def _covers(rules: Rules, general: Sequence[Direction], special: Direction) -> bool:
    """Return whether one of a rule's directions does what this direction does, wherever it applies."""
    return any(
        match.allowed(special) and (results := match.results()) is not None and all_same(rules, results, special.right)
        for each in general
        for match in matches(rules, each, special.left)
    )


# ---- overlaps --------------------------------------------------------------------------------------------------


def overlaps(rules: Rules, modules: frozenset[Module]) -> list[Diagnostic]:
    """W0010 for each pair of rules of one library whose left sides may be the same graph, with different results.

    Rules add equivalents, so an overlap is no mistake: it says where a search has a choice. Sizes, guards and types are not looked at.
    """
    found: list[Diagnostic] = []
    known = {sub: directions(sub) for sub in rules.substitutions.values() if sub.module in modules}
    subs = list(known)
    for at, one in enumerate(subs):
        for other in subs[at + 1 :]:
            same = one.module.library == other.module.library
            if same and any(_overlap(rules, a, b) for a in known[one] for b in known[other]):
                message = f"`{one.short}` and `{other.short}` match the same graphs"
                label = Label(other.span, "the other rule")
                found.append(Diagnostic("W0010", message, one.span, severity="note", secondary=(label,)))
    return found


def _overlap(rules: Rules, a: Direction, b: Direction) -> bool:
    if len(a.left) != len(b.left) or not all(isinstance(x, AppliedTerm) for x in (*a.left, *b.left)):
        return False
    return next(_Unifier(rules).terms(a.left, tuple(map(_apart, b.left)), {}), None) is not None


def _apart(term: Term) -> Term:
    """With names of its own."""
    if isinstance(term, InputTerm):
        return InputTerm(f"{term.name}'")
    if isinstance(term, AppliedTerm):
        attrs = tuple(
            (name, replace(value, id=f"{value.id}'") if isinstance(value, t.Name) else value)
            for name, value in term.attrs
        )
        return replace(term, args=tuple(map(_apart, term.args)), attrs=attrs)
    return term


_Bound = Mapping[str, Term]


class _Unifier:
    """Finds what tensors of two patterns stand for where both are one graph."""

    def __init__(self, rules: Rules) -> None:
        self._rules, self._steps = rules, STEPS

    def terms(self, one: Sequence[Term], other: Sequence[Term], bound: _Bound) -> Iterator[_Bound]:
        if not one:
            yield bound
            return
        for found in self._term(_resolved(one[0], bound), _resolved(other[0], bound), bound):
            yield from self.terms(one[1:], other[1:], found)

    def _term(self, a: Term, b: Term, bound: _Bound) -> Iterator[_Bound]:
        self._steps -= 1
        if self._steps < 0:
            return
        if isinstance(b, InputTerm):
            a, b = b, a
        if a == b:
            yield bound
        elif isinstance(a, InputTerm):
            if not _occurs(a.name, b, bound):
                yield {**bound, a.name: b}
        elif isinstance(a, AppliedTerm) and isinstance(b, AppliedTerm) and a.head == b.head and not _differ(a, b):
            for order in orders(self._rules, b):
                yield from self.terms(a.args, order, bound)


def _resolved(term: Term, bound: _Bound) -> Term:
    while isinstance(term, InputTerm) and term.name in bound:
        term = bound[term.name]
    return term


def _occurs(name: str, term: Term, bound: _Bound) -> bool:
    term = _resolved(term, bound)
    if isinstance(term, InputTerm):
        return term.name == name
    return isinstance(term, AppliedTerm) and any(_occurs(name, arg, bound) for arg in term.args)


def _differ(a: AppliedTerm, b: AppliedTerm) -> bool:
    """Return whether an attribute has different constant values."""
    mine, theirs = dict(a.attrs), dict(b.attrs)
    for name in mine.keys() & theirs.keys():
        both = mine[name], theirs[name]
        if all(isinstance(one, t.Int | t.Float | t.Str | t.ListExpr) for one in both) and both[0] != both[1]:
            lists = [one for one in both if isinstance(one, t.ListExpr)]
            return all(isinstance(each, t.Int) for one in lists for each in one.elements)
    return False
