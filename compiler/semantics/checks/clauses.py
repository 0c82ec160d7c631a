"""Checks of `onnx` clauses: what they name, and that for each opset one group of them stands."""

from __future__ import annotations

import re
from itertools import pairwise

from dslc.errors import Fix, Span
from dslc.semantics.checks.names import CheckReport, NameScope
from dslc.semantics.checks.substitutions import declare_params
from dslc.semantics.definitions import Module, OnnxClause
from dslc.semantics.library import Rules
from dslc.semantics.walk import conditions_in, dims_of, names_in, nodes
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import ATTRIBUTE_TYPES, CONSTANTS, DTYPE_NAMES


def check_clauses(rules: Rules, modules: frozenset[Module], report: CheckReport) -> None:
    """E0319 and E0320 for `onnx` clauses."""
    for op, clauses in rules.onnx.items():
        own = [clause for clause in clauses if clause.module in modules]
        for clause in own:
            if clause.until is not None and clause.until <= clause.since:
                text = f"a clause for `{op}` ends at opset {clause.until} and begins at {clause.since}"
                report.add("E0319", text, clause.syntax)
            _import_clause(rules, clause, report) if clause.value else _own_clause(clause, report)
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
                    clause.syntax, f"write `until {following}`", fix=_until(clause, following),
                )  # fmt: skip
        ends = [clause.until for clause in group if clause.until is not None]
        if len(ends) == len(group) and max(ends) < following:
            report.add(
                "E0319", f"no clause for `{op}` stands from opset {max(ends)} to {following - 1}",
                group[0].syntax, f"write `until {following}`, or add a clause",
            )  # fmt: skip


def _until(clause: OnnxClause, opset: int) -> Fix | None:
    """The edit that ends a clause that ends already at another opset."""
    span = clause.syntax.span
    found = re.search(r"\buntil\s+(\d+)", span.text)
    return found and Fix(Span(span.source, span.start + found.start(1), span.start + found.end(1)), str(opset))


def _own_clause(clause: OnnxClause, report: CheckReport) -> None:
    op = clause.operator
    assert op
    params = {param.name for param in op.params}
    attrs = {attr.name for attr in op.attrs}
    lets = {s.target.name for s in op.statements if isinstance(s, t.Let)}
    for given in clause.inputs:
        if isinstance(given, t.Param) and given.name not in params | attrs | lets | {"_"}:
            report.add(
                "E0320", f"`{given.name}` is neither a tensor nor an attribute of `{op.short}`", given,
                "one of " + ", ".join([*sorted(params), *sorted(attrs)]),
            )  # fmt: skip
    outputs = {output.name for output in op.outputs}
    for output in clause.outputs or ():
        if output.name != "_" and output.name not in outputs:
            report.add("E0320", f"`{output.name}` is no output of `{op.short}`", output)
    types = tuple(dims_of(param.type) for param in op.params)
    sizes = names_in((*types, *conditions_in(op.statements)))
    bound = sizes | params | attrs | lets | outputs | CONSTANTS
    for entry in clause.attrs:
        own = {node.name for node in nodes(t.Binder, entry.value)}
        for node in nodes(t.Name, entry.value):
            unknown = node.head not in bound and node.id not in own
            if unknown and not clause.module.lookup(node.id):
                report.add("E0320", f"`{node.id}` means nothing in `{op.short}`", node)


def _import_clause(rules: Rules, clause: OnnxClause, report: CheckReport) -> None:
    scope = NameScope(clause.module, rules, report)
    tensors = [i for i in clause.inputs if isinstance(i, t.Param) and i.name != "_"]
    # an attribute among the inputs is `ints`, `float`, `int[n]`; `bool[...]` is a tensor
    declare_params(
        tuple(
            p for p in tensors
            if p.type is None or p.type.name not in ATTRIBUTE_TYPES or (p.type.dims is not None and p.type.name in DTYPE_NAMES)
        ),
        scope,
    )  # fmt: skip
    for param in tensors:
        scope.bind(param.name, "value")
        scope.dims.pop(param.name, None)
    for given in clause.inputs:
        if isinstance(given, t.ListExpr):
            scope.check(given, pattern=True)
    for output in clause.outputs or ():
        scope.bind(output.name, "value")
    for entry in clause.attrs:
        bound = _sides(entry)[0]
        if isinstance(bound, t.Name | t.ListExpr):
            scope.check(bound, pattern=True)
    for statement in clause.statements:
        scope.declare(statement)
    for condition in conditions_in(clause.statements):
        for side in condition.equated:
            if isinstance(side, t.Name) and "." not in side.id and side.id[0].isupper():
                scope.kinds.setdefault(side.id, "value")
    for statement in clause.statements:
        scope.statement(statement)
    for entry in clause.attrs:
        scope.check(_sides(entry)[-1])
    scope.check(clause.value)


def _sides(entry: t.Entry) -> tuple[t.Expr, ...]:
    """The name that an attribute binds, and its value where a model does not say: both sides of `a or b`."""
    value = entry.value
    return (value.left, value.right) if isinstance(value, t.Binary) and value.op == "or" else (value,)
