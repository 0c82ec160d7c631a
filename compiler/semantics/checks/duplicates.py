"""Rules that are equal up to names, and rules whose result holds their pattern again."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from dslc.semantics.checks.names import Report
from dslc.semantics.definitions import Module, OperatorDef, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t


def check_duplicates(rules: Rules, modules: frozenset[Module], report: Report) -> None:
    seen: dict[Any, SubstitutionDef] = {}
    errors = [d.span for d in report.found if d.severity == "error" and d.span is not None]
    for sub in rules.substitutions.values():
        span = sub.syntax.span
        if any(e.source is span.source and span.start <= e.start < span.end for e in errors):
            continue
        key = canonical(sub)
        earlier = seen.setdefault(key, sub)
        if earlier is not sub and sub.module in modules:
            report.add("W0004", f"`{sub.syntax.name}` is `{earlier.name}` up to names", sub.syntax.span)
        if sub.module in modules and sub.syntax.arrow == "=>" and _holds_itself(sub):
            report.add(
                "W0003", f"the right side of `{sub.syntax.name}` holds its left side again", sub.syntax.span,
                hint="a rule that may be used both ways is written with `<=>`",
            )  # fmt: skip


def canonical(sub: SubstitutionDef) -> Any:
    """The rule with its own names replaced by their order of appearance; names of operators resolved."""
    order: dict[str, int] = {}

    def go(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(go(part) for part in value)
        if isinstance(value, t.Name | t.Param | t.Binder):
            name = value.id if isinstance(value, t.Name) else value.name
            head, dot, rest = name.partition(".")
            found = sub.module.lookup(name)
            own = found.name if found is not None else (order.setdefault(head, len(order)), dot, rest)
            if isinstance(value, t.Name):
                return (t.Name, own)
            return (type(value), value.star, own, go(value.range if isinstance(value, t.Binder) else value.type))
        if isinstance(value, t.Call):
            found = sub.module.lookup(value.function)
            function = found.name if found is not None else value.function
            kwargs = tuple(sorted(((k.name, go(k.value)) for k in value.kwargs), key=lambda pair: pair[0]))
            bound = None if value.rest is None else order.setdefault(value.rest, len(order))
            return (t.Call, function, go(value.args), kwargs, bound)
        if isinstance(value, t.Bind):
            return (t.Bind, go(value.value), tuple(order.setdefault(name, len(order)) for name in value.names))
        if isinstance(value, t.TypeExpr):
            return (t.TypeExpr, value.name, go(value.dims) if value.dims is not None else None)
        if isinstance(value, t.Tags | t.Verify):
            return ()
        if is_dataclass(value) and isinstance(value, t.Node):
            return (type(value), *(go(getattr(value, f.name)) for f in fields(value) if f.name != "span"))
        return value

    syntax = sub.syntax
    return (syntax.partial, syntax.arrow, go(syntax.params), go(syntax.left), go(syntax.right), len(syntax.outputs))


def _holds_itself(sub: SubstitutionDef) -> bool:
    """Whether the one call on the left occurs on the right with anything in place of the rule's tensors (no guard excludes it)."""
    syntax = sub.syntax
    binds = [s for s in syntax.left if isinstance(s, t.Bind)]
    if len(binds) != 1 or any(isinstance(s, t.Where | t.TermDecl) for s in syntax.left):
        return False
    pattern = binds[0].value
    types = {param.name: param.type for param in syntax.params}
    if not isinstance(pattern, t.Call) or any(_constrains(type) for type in types.values()):
        return False
    return any(
        isinstance(node, t.Call) and _matches(pattern, node, sub, set(types), {}) for node in walk_expr(syntax.right)
    )


def _constrains(type: t.TypeExpr | None) -> bool:
    """A type that fixes a rank, a size or an element type may exclude the result."""
    return type is not None and any(not isinstance(d, t.Pack) for d in type.dims or ())


def _matches(pattern: t.Expr, other: t.Expr, sub: SubstitutionDef, tensors: set[str], bound: dict[str, t.Expr]) -> bool:
    if isinstance(pattern, t.Name) and pattern.id in tensors:
        return bound.setdefault(pattern.id, other) == other
    if isinstance(pattern, t.Call) and isinstance(other, t.Call):
        same = isinstance(sub.module.lookup(pattern.function), OperatorDef) and pattern.function == other.function
        if not same or len(pattern.args) != len(other.args):
            return False
        mine, theirs = ({k.name: k.value for k in call.kwargs} for call in (pattern, other))
        if pattern.rest is None and other.rest is None and set(mine) != set(theirs):
            return False
        for name, value in mine.items():
            free = isinstance(value, t.Name) and sub.module.lookup(value.id) is None
            if not free and theirs.get(name) != value:
                return False
        return all(_matches(a, b, sub, tensors, bound) for a, b in zip(pattern.args, other.args, strict=True))
    return pattern == other
