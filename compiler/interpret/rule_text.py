"""What the text of a substitution says for all its instances: where its names stand, and what its guards say of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from dslc.semantics.definitions import OperatorDef, SubstitutionDef
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t


@dataclass(frozen=True, slots=True)
class NamePlace:
    """Where a name stands in a call: as an attribute, as an entry of one (`starred`: several), as `**name`, as an operand.

    `results`: how many names the results of the call get; None where it stands inside an expression.
    """

    call: t.Call
    attr: str | None
    entry: bool = False
    starred: bool = False
    siblings: int = 0
    results: int | None = None


def _find_places(statements: tuple[t.GraphStatement, ...]) -> dict[str, list[NamePlace]]:
    out: dict[str, list[NamePlace]] = {}
    for statement in statements:
        if not isinstance(statement, t.Bind | t.Let | t.LetMany):
            continue
        for node in walk_expr(statement.value):
            if isinstance(node, t.Call):
                named = (
                    len(statement.names)
                    if node is statement.value and isinstance(statement, t.Bind | t.LetMany)
                    else None
                )
                for name, place in _places_of(node):
                    out.setdefault(name, []).append(replace(place, results=named))
    return out


def _places_of(call: t.Call) -> Iterator[tuple[str, NamePlace]]:
    if call.rest is not None:
        yield call.rest, NamePlace(call, None, starred=True)
    for keyword in call.kwargs:
        if isinstance(keyword.value, t.Name):
            yield keyword.value.id, NamePlace(call, keyword.name)
        elif isinstance(keyword.value, t.ListExpr):
            single = sum(not isinstance(element, t.Pack) for element in keyword.value.elements)
            for element in keyword.value.elements:
                if isinstance(element, t.Name):
                    yield element.id, NamePlace(call, keyword.name, entry=True)
                elif isinstance(element, t.Pack) and isinstance(element.value, t.Name):
                    yield element.value.id, NamePlace(call, keyword.name, entry=True, starred=True, siblings=single)
    for arg in call.args:
        if isinstance(arg, t.Name):
            yield arg.id, NamePlace(call, None)


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}


Hints = Mapping[str, list[tuple[str, int]]]


def _find_hints(conditions: tuple[t.Expr, ...]) -> Hints:
    """`N >= 512`, `all(R == 1)`, `all(a.stride == 1)`: ranges of names, of every entry for a list."""
    out: dict[str, list[tuple[str, int]]] = {}
    for condition in conditions:
        if isinstance(condition, t.Call) and condition.function == "all" and len(condition.args) == 1:
            condition = condition.args[0]
        if not isinstance(condition, t.Compare) or len(condition.ops) != 1 or condition.ops[0] not in _MIRRORED:
            continue
        left, right = condition.operands
        if isinstance(right, t.Int) and (name := _hinted(left)):
            out.setdefault(name, []).append((condition.ops[0], right.value))
        elif isinstance(left, t.Int) and (name := _hinted(right)):
            out.setdefault(name, []).append((_MIRRORED[condition.ops[0]], left.value))
    return out


def _hinted(expr: t.Expr) -> str:
    """The name of which a guard speaks, that of an attribute among all attributes with a dot; none for anything else."""
    if isinstance(expr, t.Field) and isinstance(expr.call, t.Name):
        return f"{expr.call.id}.{expr.name}"
    return expr.id if isinstance(expr, t.Name) else ""


def _constants(conditions: tuple[t.Expr, ...]) -> set[str]:
    return {
        arg.id
        for condition in conditions
        for node in walk_expr(condition)
        if isinstance(node, t.Call) and node.function == "constant"
        for arg in node.args
        if isinstance(arg, t.Name)
    }


@dataclass(frozen=True, slots=True)
class RuleText:
    """`places` of every name, `hints` that compare a name with a number, and the parameters that must be `constants`."""

    conditions: tuple[t.Expr, ...]
    decls: Mapping[str, tuple[t.Expr, ...]]
    places: Mapping[str, list[NamePlace]]
    hints: Hints
    constants: set[str]


@lru_cache(maxsize=256)
def operator_hints(op: OperatorDef) -> Hints:
    """What the guards of an operator say of its sizes and attributes."""
    return _find_hints(tuple(c for s in op.syntax.statements if isinstance(s, t.Where) for c in s.conditions))


@lru_cache(maxsize=64)
def rule_text(sub: SubstitutionDef) -> RuleText:
    syntax = sub.syntax
    conditions = tuple(c for s in syntax.left if isinstance(s, t.Where) for c in s.conditions)
    decls = {p.name: p.type.dims for p in syntax.params if p.type is not None and p.type.dims is not None}
    return RuleText(conditions, decls, _find_places(syntax.left), _find_hints(conditions), _constants(conditions))
