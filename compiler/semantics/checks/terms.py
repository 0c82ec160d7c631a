"""Both sides of a substitution as terms: intermediate names written out, defaults of attributes filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias

from dslc.records import record
from dslc.semantics.definitions import FunctionDef, OperatorDef, SubstitutionDef
from dslc.semantics.walk import conditions_in, names_in, pack_name
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import CONSTANTS, DTYPE_NAMES


@record
class InputTerm:
    """An input of the rule."""

    name: str


@record
class Other:
    """An argument that is no tensor and no call: a number, a scope."""

    expr: t.Expr


@record
class AppliedTerm:
    """One output of an application. `attrs` are sorted by name and complete, unless `rest` stands for those that are missing."""

    operator: str
    args: tuple[Term, ...]
    attrs: tuple[tuple[str, t.Expr], ...]
    rest: str | None
    output: str

    @property
    def head(self) -> tuple[str, str, int]:
        """Operator, result and number of operands: equal where two applications differ in operands and attributes only."""
        return self.operator, self.output, len(self.args)


_FIXED = frozenset(CONSTANTS) | frozenset(DTYPE_NAMES)

Term: TypeAlias = "InputTerm | Other | AppliedTerm"


@record
class Direction:
    """A rule used in one direction. `free` are the names that matching binds: sizes, attributes, packs."""

    rule: SubstitutionDef
    left: tuple[Term, ...]
    right: tuple[Term, ...]
    conditions: tuple[t.Expr, ...]
    types: Mapping[str, t.TypeExpr | None]
    free: frozenset[str]
    reverse: bool = False


def directions(sub: SubstitutionDef) -> tuple[Direction, ...]:
    """The one or two directions of a rule; none where it has statements that terms cannot say (`let`, `const`, `correct`, ...)."""
    syntax = sub.syntax
    if syntax.partial:
        return ()
    try:
        left, right = (
            tuple([side[name] for name in syntax.outputs])
            for side in (_side(sub, syntax.left), _side(sub, syntax.right))
        )
    except (_Unsaid, KeyError):
        return ()
    conditions = conditions_in(syntax.statements)
    types = {param.name: param.type for param in syntax.params}
    free = frozenset(
        head
        for node in t.walk((*syntax.params, *syntax.left, *syntax.right))
        if (head := _head(node)) is not None
        and not sub.module.lookup(head)
        and head not in types
        and head not in _FIXED
    )
    one = Direction(sub, left, right, conditions, types, free)
    return (one, replace(one, left=right, right=left, reverse=True)) if syntax.arrow == "<=>" else (one,)


class _Unsaid(Exception):
    """A side that terms cannot say."""


def _head(node: t.Node) -> str | None:
    match node:
        case t.Name():
            return node.head
        case t.TypeExpr(name) | t.Call(rest=name):
            return name
    return None


def _side(sub: SubstitutionDef, statements: tuple[t.GraphStatement, ...]) -> dict[str, Term]:
    names: dict[str, Term] = {param.name: InputTerm(param.name) for param in sub.params}
    if any(param.star for param in sub.params):
        raise _Unsaid
    for statement in statements:
        if isinstance(statement, t.Where | t.Tags | t.Verify | t.Trusted):
            continue
        if not isinstance(statement, t.Bind):
            raise _Unsaid
        call = statement.value
        outputs: list[str | None] = [None]
        if len(statement.names) > 1:
            op = sub.module.called(call)
            if not isinstance(op, OperatorDef) or len(op.outputs) != len(statement.names):
                raise _Unsaid
            outputs = [param.name for param in op.outputs]
        for name, output in zip(statement.names, outputs, strict=True):
            names[name] = _term(sub, call, names, output)
    return names


def _term(sub: SubstitutionDef, expr: t.Expr, names: Mapping[str, Term], output: str | None) -> Term:
    if isinstance(expr, t.Name) and expr.id in names:
        return names[expr.id]
    if isinstance(expr, t.Field):
        return _term(sub, expr.call, names, expr.name)
    if not isinstance(expr, t.Call) and names.keys().isdisjoint(names_in(expr)):
        return Other(expr)
    op = sub.module.called(expr)
    if not isinstance(expr, t.Call) or not isinstance(op, OperatorDef):
        raise _Unsaid
    args = tuple([_term(sub, arg, names, None) for arg in expr.args])
    given = {keyword.name: keyword.value for keyword in expr.kwargs}
    for node in t.walk(tuple(given.values())):
        # an attribute that speaks of a tensor (`shape(X)`): terms cannot compare these
        if node.bare in names:
            raise _Unsaid
        # and functions of a file mean what they mean there
        if isinstance(sub.module.called(node), FunctionDef):
            raise _Unsaid
    if expr.rest is None:
        given |= {attr.name: attr.default for attr in op.attrs if attr.name not in given and attr.default}
    attrs = tuple(sorted(((k, canonical_value(op, k, v)) for k, v in given.items()), key=lambda pair: pair[0]))
    return AppliedTerm(op.name, args, attrs, expr.rest, output or op.outputs[0].name)


def canonical_value(op: OperatorDef, name: str, value: t.Expr) -> t.Expr:
    """`[1, 1]` for a list of numbers as `1`: one number stands for every entry."""
    declared = next((attr.type for attr in op.attrs if attr.name == name), None)
    if isinstance(value, t.ListExpr) and value.elements and declared is not None and declared.dims is not None:
        first = value.elements[0]
        if isinstance(first, t.Int) and all(each == first for each in value.elements):
            return first
    return value


def substituted(value: Any, names: Mapping[str, t.Expr]) -> Any:
    """A piece of syntax with other expressions in the place of some names; a list for a pack is spliced."""
    if isinstance(value, t.Name):
        return names.get(value.id, value)
    if isinstance(value, tuple):
        out: list[Any] = []
        for part in value:
            found = names.get(pack_name(part) or "") if isinstance(part, t.Pack) else None
            out += found.elements if isinstance(found, t.ListExpr) else [substituted(part, names)]
        return tuple(out)
    if is_dataclass(value) and isinstance(value, t.Node):
        changes = {f.name: substituted(getattr(value, f.name), names) for f in fields(value) if f.name != "span"}
        return replace(value, **changes)
    return value


def subterms(root: Term) -> list[Term]:
    """A term and everything in it, parents first."""
    out = [root]
    if isinstance(root, AppliedTerm):
        for arg in root.args:
            out += subterms(arg)
    return out


def size(root: Term) -> int:
    """The number of applications."""
    return sum(isinstance(term, AppliedTerm) for term in subterms(root))
