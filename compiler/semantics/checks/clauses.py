"""Checks of `onnx` clauses: what they name, and that for each opset one group of them stands."""

from __future__ import annotations

import re
from itertools import pairwise

from dslc.errors import Fix, Span
from dslc.semantics.checks.names import CheckReport, NameScope
from dslc.semantics.checks.operators import check_condition, check_function
from dslc.semantics.checks.substitutions import declare_params
from dslc.semantics.definitions import Module, OnnxClause
from dslc.semantics.library import Rules
from dslc.semantics.walk import dims_of, nodes, walk_expr
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import ATTRIBUTE_TYPES, CONSTANTS, DTYPE_NAMES


def check_clauses(rules: Rules, modules: frozenset[Module], report: CheckReport) -> None:
    for op, clauses in rules.onnx.items():
        own = [clause for clause in clauses if clause.module in modules]
        for clause in own:
            if clause.until is not None and clause.until <= clause.since:
                text = f"a clause for `{op}` ends at opset {clause.until} and begins at {clause.since}"
                report.add("E0319", text, clause.syntax.span)
            _own_clause(clause, report) if clause.value is None else _import_clause(rules, clause, report)
        if own:
            _groups(op, clauses, report)


def _groups(op: str, clauses: tuple[OnnxClause, ...], report: CheckReport) -> None:
    """Groups by `since`: the next one takes over where a group has no `until`; an earlier `until` is a gap, a later one an overlap."""
    starts = sorted({clause.since for clause in clauses})
    for since, following in pairwise(starts):
        group = [clause for clause in clauses if clause.since == since]
        for clause in group:
            if clause.until is not None and clause.until > following:
                report.add(
                    "E0319", f"clauses for `{op}` overlap: one stands until opset {clause.until}, others begin at {following}",
                    clause.syntax.span, f"write `until {following}`", fix=_until(clause, following),
                )  # fmt: skip
        ends = [clause.until for clause in group if clause.until is not None]
        if len(ends) == len(group) and max(ends) < following:
            report.add(
                "E0319", f"no clause for `{op}` stands from opset {max(ends)} to {following - 1}",
                group[0].syntax.span, f"write `until {following}`, or add a clause",
            )  # fmt: skip


def _until(clause: OnnxClause, opset: int) -> Fix | None:
    """The edit that ends a clause that ends already at another opset."""
    span = clause.syntax.span
    found = re.search(r"\buntil\s+(\d+)", span.text)
    return (
        None
        if found is None
        else Fix(Span(span.source, span.start + found.start(1), span.start + found.end(1)), str(opset))
    )


def _own_clause(clause: OnnxClause, report: CheckReport) -> None:
    op = clause.operator
    assert op is not None
    params = {param.name for param in op.syntax.params}
    attrs = {attr.name for attr in op.attrs}
    lets = {s.target.name for s in op.syntax.statements if isinstance(s, t.Let)}
    for given in clause.inputs:
        if isinstance(given, t.Param) and given.name not in params | attrs | lets | {"_"}:
            report.add(
                "E0320", f"`{given.name}` is neither a tensor nor an attribute of `{op.short}`", given.span,
                "one of " + ", ".join([*sorted(params), *sorted(attrs)]),
            )  # fmt: skip
    outputs = {output.name for output in op.syntax.outputs}
    for output in clause.outputs or ():
        if output.name != "_" and output.name not in outputs:
            report.add("E0320", f"`{output.name}` is no output of `{op.short}`", output.span)
    sizes = {n.id for p in op.syntax.params for n in nodes(t.Name, dims_of(p.type))}
    sizes |= {n.id for s in op.syntax.statements if isinstance(s, t.Where) for n in nodes(t.Name, s)}
    bound = sizes | params | attrs | lets | outputs
    for entry in clause.attrs:
        for node in walk_expr(entry.value):
            if not isinstance(node, t.Name) or node.id.partition(".")[0] in bound | CONSTANTS:
                continue
            if clause.module.lookup(node.id) is None and node.id not in _binders(entry):
                report.add("E0320", f"`{node.id}` means nothing in `{op.short}`", node.span)


def _binders(entry: t.Entry) -> set[str]:
    return {node.name for node in nodes(t.Binder, entry.value)}


def _import_clause(rules: Rules, clause: OnnxClause, report: CheckReport) -> None:
    scope = NameScope(clause.module, rules, report)
    tensors = [i for i in clause.inputs if isinstance(i, t.Param) and i.name != "_"]
    for param in tensors:
        scope.kinds.pop(param.name, None)
    declare_params(tuple(p for p in tensors if p.type is None or not _is_attribute(p.type)), scope)
    for param in tensors:
        scope.bind(param.name, "value")
        scope.dims.pop(param.name, None)
    for given in clause.inputs:
        if isinstance(given, t.ListExpr):
            scope.check(given, pattern=True)
    for output in clause.outputs or ():
        scope.bind(output.name, "value")
    for entry in clause.attrs:
        value = entry.value
        bound = value.left if isinstance(value, t.Binary) and value.op == "or" else value
        if isinstance(bound, t.Name | t.ListExpr):
            scope.check(bound, pattern=True)
    for statement in clause.statements:
        if isinstance(statement, t.Let):
            scope.bind(statement.target.name, "value")
        elif isinstance(statement, t.LetMany):
            for name in statement.names:
                scope.bind(name, "value")
        elif isinstance(statement, t.Function):
            scope.bind(statement.name, "function")
            scope.functions[statement.name] = len(statement.params)
        elif isinstance(statement, t.Where):
            for condition in statement.conditions:
                for name in _solved_names(condition):
                    scope.kinds.setdefault(name, "value")
    for statement in clause.statements:
        if isinstance(statement, t.Let | t.LetMany):
            scope.check(statement.value)
        elif isinstance(statement, t.Function):
            check_function(statement, scope)
        elif isinstance(statement, t.Where):
            for condition in statement.conditions:
                check_condition(condition, scope)
    for entry in clause.attrs:
        value = entry.value
        scope.check(value.right if isinstance(value, t.Binary) and value.op == "or" else value)
    scope.check(clause.value)


def _is_attribute(type: t.TypeExpr) -> bool:
    """An attribute among the inputs: `ints`, `float`, `int[n]`; `bool[...]` is a tensor."""
    return type.name in ATTRIBUTE_TYPES and (type.dims is None or type.name not in DTYPE_NAMES)


def _solved_names(condition: t.Expr) -> list[str]:
    if isinstance(condition, t.Compare) and condition.ops == ("==",):
        return [
            side.id
            for side in condition.operands
            if isinstance(side, t.Name) and "." not in side.id and side.id[0].isupper()
        ]
    return []
