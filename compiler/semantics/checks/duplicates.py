"""Rules whose text is equal up to names."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from dslc.semantics.checks.names import CheckReport
from dslc.semantics.definitions import Module, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import CONSTANTS, DTYPE_NAMES


def check_duplicates(rules: Rules, modules: frozenset[Module], report: CheckReport) -> None:
    """W0004 for rules whose text is equal up to names."""
    seen: dict[Any, SubstitutionDef] = {}
    for sub in rules.substitutions.values():
        earlier = sub if report.failed(sub.syntax) else seen.setdefault(canonical(sub), sub)
        if earlier is not sub and sub.module in modules:
            report.add("W0004", f"`{sub.short}` is `{earlier.name}` up to names", sub.syntax)


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
            if found or name in CONSTANTS | DTYPE_NAMES:
                own: Any = found.name if found else name
            else:
                own = (order.setdefault(head, len(order)), dot, rest)
            if isinstance(value, t.Name):
                return (t.Name, own)
            return (type(value), value.star, own, go(value.range if isinstance(value, t.Binder) else value.type))
        if isinstance(value, t.Call):
            found = sub.module.lookup(value.function)
            function = found.name if found else value.function
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
