"""Reads of lowerings, as operators: so that they are proved in bounds like those of any equation."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

from dslc.errors import Diagnostic
from dslc.inspection.bounds import check_operator
from dslc.semantics.checks.names import VOCABULARY
from dslc.semantics.definitions import LoweringDef, OperatorDef
from dslc.semantics.library import Rules
from dslc.semantics.targets import TEMPLATED
from dslc.semantics.trust import NoTemplate, template_of, template_text
from dslc.semantics.walk import names_in, nodes
from dslc.syntax import tree as t

#: of layouts in memory: says nothing of sizes
_LAYOUT = frozenset("stride regular dense aligned bytes".split())
#: of sizes, in words that only a match gives a meaning
_SIZES = frozenset("size elements".split())


#: why the template of an expression has no kernel
UNKNOWNS = "the expression of a template may have no coefficients, unknown functions, `let`s, or conditions on memory"


def check_lowering(rules: Rules, lowering: LoweringDef) -> list[Diagnostic]:
    """Mistakes in a lowering once its names are known: reads, and an expression that no template can be for."""
    found = lowering_bounds(rules, lowering)
    syntax, template = lowering.syntax, template_of(lowering)
    if syntax.device in TEMPLATED and template and syntax.expr and not expression_of(lowering):
        try:
            template_text(lowering.module, template.template)
        except NoTemplate:
            # the check of names says so
            return found
        message = f"the template of `{syntax.name}` is left out: {UNKNOWNS}"
        found.append(Diagnostic("W0015", message, template.span, severity="warning"))
    return found


def lowering_bounds(rules: Rules, lowering: LoweringDef) -> list[Diagnostic]:
    """The reads of a lowering that leave their bounds, each with a size at which it does; none where sizes are those of a match."""
    out = []
    for op in _operators(lowering):
        report = check_operator(rules, op)
        coefficients = {attr.name for attr in op.attrs}
        # it is the match that finds coefficients, in an expression whose reads are in bounds
        sure = [
            one
            for one in report.findings
            if one.counterexample and coefficients.isdisjoint(re.findall(r"\w+", one.read))
        ]
        report.findings = sure
        out += report.diagnostics()
    return out


def expression_of(lowering: LoweringDef) -> OperatorDef | None:
    """The equation of a lowering as an operator; None where it has unknowns (coefficients, terms), or conditions on memory."""
    syntax = lowering.syntax
    if not syntax.expr or any(isinstance(s, t.Let | t.LetMany | t.Function) for s in syntax.statements):
        return None
    wheres = tuple(s for s in syntax.statements if isinstance(s, t.Where))
    if _calls(wheres) & (_LAYOUT | _SIZES):
        return None
    made = _operator(lowering, syntax.expr, wheres)
    whole = made.syntax.statements[-1]
    return made if not made.attrs and isinstance(whole, t.Equation) and whole.value == syntax.expr.value else None


def _operators(lowering: LoweringDef) -> list[OperatorDef]:
    """A lowering's equation, or each scope of its pattern, as an operator over its parameters."""
    syntax = lowering.syntax
    guards = [s for s in syntax.statements if isinstance(s, t.Where)]
    conditions = [c for guard in guards for c in guard.conditions]
    if any(_calls(condition) & _SIZES for condition in conditions):
        return []
    named = {s.target.name for s in syntax.statements if isinstance(s, t.Let)}
    kept = tuple(c for c in conditions if not _calls(c) & _LAYOUT and not names_in(c) & named)
    wheres = (t.Where(kept, span=guards[0].span),) if kept else ()
    if syntax.expr:
        return [_operator(lowering, syntax.expr, wheres)]
    out = []
    for node in t.walk(tuple(bind.value for bind in syntax.match)):
        if (
            isinstance(node, t.Nested)
            and node.subs is None
            and isinstance(node.scope, t.Traversal)
            and not node.scope.where
        ):
            target = t.Defined(f"scope at {node.span.start}", node.scope.places, span=node.span)
            out.append(_operator(lowering, t.Equation(target, node.scope.body, span=node.span), wheres))
    return out


def _operator(lowering: LoweringDef, equation: t.Equation, wheres: tuple[t.Where, ...]) -> OperatorDef:
    syntax, module = lowering.syntax, lowering.module
    unknown = {
        node.function for node in nodes(t.Call, equation.value)
        if node.function not in VOCABULARY and not module.lookup(node.function)
    }  # fmt: skip
    equation = replace(equation, value=_without(equation.value, frozenset(unknown)))
    known = {param.name for param in syntax.params} | {name for param in syntax.params for name in names_in(param.type)}
    known |= {node.name for node in nodes(t.Binder, (equation.target.places, equation.value))}
    coefficients = {
        node.id: node.span for node in nodes(t.Name, equation.value)
        if node.id not in known and node.id[0].islower() and not module.lookup(node.id)
        and node.id not in VOCABULARY
    }  # fmt: skip
    attrs = tuple(
        t.Attr(name, t.TypeExpr("int", None, span=span), None, span=span) for name, span in coefficients.items()
    )
    output = t.Param(False, equation.target.name, None, None, span=equation.target.span)
    whole = t.Operator(syntax.name, syntax.params, (output,), None, (*attrs, *wheres, equation), span=syntax.span)
    return OperatorDef(f"{lowering.name} {equation.span.start}", whole, module)


def _without(node: Any, unknown: frozenset[str]) -> Any:
    """An expression with the sum of its arguments in the place of each unknown function: it reads the same."""
    if isinstance(node, tuple):
        return tuple(_without(part, unknown) for part in node)
    if not isinstance(node, t.Node):
        return node
    parts = {f.name: _without(getattr(node, f.name), unknown) for f in fields(node) if f.name != "span"}
    if isinstance(node, t.Call) and node.function in unknown:
        total: t.Expr = t.Int(0, span=node.span)
        for arg in parts["args"]:
            total = t.Binary("+", total, arg, span=node.span)
        return total
    return replace(node, **parts)


def _calls(root: Any) -> set[str]:
    return {node.function for node in nodes(t.Call, root)}
