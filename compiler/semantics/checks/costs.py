"""Costs that nothing can have: negative ones, infinite ones, and what is no number."""

from __future__ import annotations

from math import inf, isnan

from dslc.semantics.checks.names import NameScope
from dslc.syntax import tree as t

#: what a lowering may say that it takes
ENTRIES = ("flops", "bytes")
#: functions whose values are never negative
_COUNTS = frozenset("size bytes elements prod rank shape length abs".split())
_ANY = (-inf, inf)

#: the least and the largest value that an expression may have
Range = tuple[float, float]


class _Nonsense(Exception):
    """Reason why an expression is no cost."""

    def __init__(self, expr: t.Expr, problem: str) -> None:
        super().__init__(problem)
        self.expr, self.problem = expr, problem


def check_cost(cost: t.Cost, scope: NameScope) -> None:
    """E0708 for every entry that no cost can be."""
    seen: set[str] = set()
    for entry in cost.entries:
        if entry.name not in ENTRIES:
            scope.report.add("E0708", f"nothing costs `{entry.name}`", entry, "`flops` and `bytes` are costs")
        elif entry.name in seen:
            scope.report.add("E0708", f"`{entry.name}` is said twice", entry)
        seen.add(entry.name)
        try:
            low, high = _range(entry.value, scope)
        except _Nonsense as wrong:
            scope.report.add("E0708", f"`{wrong.expr.span.text}` {wrong.problem}", wrong.expr)
            continue
        if high < 0 or (high == 0 and low < 0):
            scope.report.add("E0708", f"`{entry.value.span.text}` is negative", entry.value)
        elif low == inf:
            scope.report.add("E0708", f"`{entry.value.span.text}` is infinite", entry.value)


def _range(expr: t.Expr, scope: NameScope) -> Range:
    if isinstance(expr, t.Int | t.Float):
        return (float(expr.value), float(expr.value))
    if isinstance(expr, t.Inf):
        return (inf, inf)
    if isinstance(expr, t.Name):
        kind = scope.kind(expr.id)
        if kind in {"tensor", "function", "term"} or expr.id in {"true", "false"}:
            raise _Nonsense(expr, f"is {'an' if kind is None else 'a'} {kind or 'answer'}, and no number")
        return (0.0, inf) if kind in {"size", "index"} else _ANY
    if isinstance(expr, t.Unary) and expr.op == "-":
        low, high = _range(expr.operand, scope)
        return (-high, -low)
    if isinstance(expr, t.Conditional):
        one, other = _range(expr.then, scope), _range(expr.otherwise, scope)
        return (min(one[0], other[0]), max(one[1], other[1]))
    if isinstance(expr, t.Call):
        return (0.0, inf) if expr.function in _COUNTS else _ANY
    if isinstance(expr, t.Binary) and expr.op not in {"and", "or"}:
        return _joined(expr, _range(expr.left, scope), _range(expr.right, scope))
    if isinstance(expr, t.Str | t.ListExpr | t.Compare | t.ForAll | t.Unary | t.Binary):
        raise _Nonsense(expr, "is no number")
    return _ANY


def _joined(expr: t.Binary, left: Range, right: Range) -> Range:
    if expr.op == "+":
        return (left[0] + right[0], left[1] + right[1])
    if expr.op == "-":
        return (left[0] - right[1], left[1] - right[0])
    if expr.op == "*":
        ends = [0.0 if isnan(a * b) else a * b for a in left for b in right]
        return (min(ends), max(ends))
    if expr.op in {"/", "//", "%"}:
        if right == (0.0, 0.0):
            raise _Nonsense(expr, "divides by 0")
        return (0.0, inf) if left[0] >= 0 and right[0] >= 0 else _ANY
    return (0.0, inf) if left[0] >= 0 and expr.op in {"^", "|", "&"} else _ANY
