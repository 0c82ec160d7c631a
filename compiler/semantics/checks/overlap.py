"""Rules that another one makes superfluous, and rules that match the same graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dslc.errors import Diagnostic, Label
from dslc.semantics.checks.matching import allowed, applied_match, matches, same
from dslc.semantics.checks.names import CheckReport
from dslc.semantics.checks.terms import AppliedTerm, Direction, InputTerm, Term, directions
from dslc.semantics.definitions import Module, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.syntax import tree as t

STEPS = 2000  #: steps of unification, which branches at every commutative operator: longer patterns are not compared


def check_covered(rules: Rules, modules: frozenset[Module], report: CheckReport) -> None:
    """W0004 where two rules are equal up to names, order of operands and direction; W0002 where one is a special case of another."""
    known = _directions(rules, report)
    heads = _by_head(each for some in known.values() for each in some)
    for position, sub in enumerate(known):
        if sub.module not in modules or not known[sub]:
            continue
        own = known[sub]
        for other in _candidates(heads, own[0]):
            if other is sub or not all(_covers(rules, known[other], each) for each in own):
                continue
            equal = all(_covers(rules, own, each) for each in known[other])
            if equal and list(known).index(other) > position:
                continue  # the later one of two is reported
            if any(d.code == "W0004" and d.span is sub.syntax.span for d in report.found):
                break
            if equal:
                message = f"`{sub.syntax.name}` is `{other.name}` up to names, order and direction"
                report.add("W0004", message, sub.syntax.span)
            else:
                message = f"wherever `{sub.syntax.name}` applies, `{other.name}` applies and does the same"
                hint = "leave it out, or let the more general rule exclude this case with a guard"
                report.add("W0002", message, sub.syntax.span, hint)
            break


def _directions(rules: Rules, report: CheckReport) -> dict[SubstitutionDef, tuple[Direction, ...]]:
    errors = [d.span for d in report.found if d.severity == "error" and d.span is not None]
    return {
        sub: () if any(e.starts_in(sub.syntax.span) for e in errors) else directions(sub)
        for sub in rules.substitutions.values()
    }


def _by_head(known: Iterator[Direction]) -> Mapping[str, list[Direction]]:
    heads: dict[str, list[Direction]] = {}
    for each in known:
        heads.setdefault(_head(each.left), []).append(each)
    return heads


def _head(left: Sequence[Term]) -> str:
    first = left[0]
    return f"{len(left)} {first.operator if isinstance(first, AppliedTerm) else type(first).__name__}"


def _candidates(heads: Mapping[str, list[Direction]], own: Direction) -> list[SubstitutionDef]:
    return list(
        dict.fromkeys(each.rule for each in heads.get(_head(own.left), ()) if isinstance(each.left[0], AppliedTerm))
    )


def _covers(rules: Rules, general: Sequence[Direction], special: Direction) -> bool:
    """Return whether one of a rule's directions does what this direction does, wherever it applies."""
    for each in general:
        for match in matches(rules, each, special.left):
            if not allowed(each, match, special):
                continue
            results = [applied_match(term, match) for term in each.right]
            if all(r is not None and same(rules, r, s) for r, s in zip(results, special.right, strict=True)):
                return True
    return False


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
            if one.module.library == other.module.library and _overlap(rules, known[one], known[other]):
                message = f"`{one.syntax.name}` and `{other.syntax.name}` match the same graphs"
                label = Label(other.syntax.span, "the other rule")
                found.append(Diagnostic("W0010", message, one.syntax.span, severity="note", secondary=(label,)))
    return found


def _overlap(rules: Rules, one: Sequence[Direction], other: Sequence[Direction]) -> bool:
    for a in one:
        for b in other:
            if len(a.left) != len(b.left) or not all(isinstance(x, AppliedTerm) for x in (*a.left, *b.left)):
                continue
            second = tuple(_apart(term) for term in b.left)
            free = a.free | frozenset(f"{name}'" for name in b.free)
            steps = [STEPS]
            if next(_unify_all(rules, free, a.left, second, {}, steps), None) is not None:
                return True
    return False


def _apart(term: Term) -> Term:
    """With names of its own."""
    if isinstance(term, InputTerm):
        return InputTerm(f"{term.name}'")
    if isinstance(term, AppliedTerm):
        attrs = tuple(
            (name, replace(value, id=f"{value.id}'") if isinstance(value, t.Name) else value)
            for name, value in term.attrs
        )
        rest = None if term.rest is None else f"{term.rest}'"
        return replace(term, args=tuple(_apart(arg) for arg in term.args), attrs=attrs, rest=rest)
    return term


_Bound = Mapping[str, Term]


def _unify_all(
    rules: Rules, free: frozenset[str], one: Sequence[Term], other: Sequence[Term], bound: _Bound, steps: list[int]
) -> Iterator[_Bound]:
    if not one:
        yield bound
        return
    for found in _unify(rules, free, one[0], other[0], bound, steps):
        yield from _unify_all(rules, free, one[1:], other[1:], found, steps)


def _unify(rules: Rules, free: frozenset[str], a: Term, b: Term, bound: _Bound, steps: list[int]) -> Iterator[_Bound]:
    steps[0] -= 1
    if steps[0] < 0:
        return
    a, b = _resolved(a, bound), _resolved(b, bound)
    if isinstance(b, InputTerm) and not isinstance(a, InputTerm):
        a, b = b, a
    if isinstance(a, InputTerm):
        if a == b:
            yield bound
        elif not _occurs(a.name, b, bound):
            yield {**bound, a.name: b}
        return
    if not isinstance(a, AppliedTerm) or not isinstance(b, AppliedTerm):
        if a == b:
            yield bound
        return
    if (a.operator, a.output, len(a.args)) != (b.operator, b.output, len(b.args)) or _differ(free, a, b):
        return
    orders = [b.args]
    if len(b.args) == 2 and rules.traits_of(a.operator).commutative:
        orders.append(b.args[::-1])
    for order in orders:
        yield from _unify_all(rules, free, a.args, order, bound, steps)


def _resolved(term: Term, bound: _Bound) -> Term:
    while isinstance(term, InputTerm) and term.name in bound:
        term = bound[term.name]
    return term


def _occurs(name: str, term: Term, bound: _Bound) -> bool:
    term = _resolved(term, bound)
    if isinstance(term, InputTerm):
        return term.name == name
    return isinstance(term, AppliedTerm) and any(_occurs(name, arg, bound) for arg in term.args)


def _differ(free: frozenset[str], a: AppliedTerm, b: AppliedTerm) -> bool:
    """Return whether an attribute has different constant values."""
    mine, theirs = dict(a.attrs), dict(b.attrs)
    for name in mine.keys() & theirs.keys():
        both = mine[name], theirs[name]
        if all(isinstance(one, t.Int | t.Float | t.Str | t.ListExpr) for one in both) and both[0] != both[1]:
            lists = [one for one in both if isinstance(one, t.ListExpr)]
            return all(isinstance(each, t.Int) for one in lists for each in one.elements)
    return False
