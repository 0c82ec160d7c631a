"""Guards that no sizes and attributes satisfy, decided by Z3 over integers and reals.

What a guard says that is not arithmetic (functions of lists, data) is left open, so that `True` is a proof.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import import_module
from typing import Any

from dslc.records import record
from dslc.semantics.definitions import OperatorDef, SubstitutionDef
from dslc.syntax import tree as t
from dslc.syntax.printer import show
from dslc.syntax.vocabulary import CONSTANTS, DTYPE_NAMES

MILLISECONDS = 1000  #: milliseconds of one question

_WHOLE = frozenset({"int", "axis"})
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.truediv, "%": operator.mod,
}  # fmt: skip


@record
class Vacuous:
    """Guards that contradict each other (with the types that `text` names): none of them can be left out."""

    conditions: tuple[t.Expr, ...]
    text: str


def vacuous_rule(sub: SubstitutionDef) -> Vacuous | None:
    """The contradiction among the guards of a substitution; None where none is proved."""
    syntax = sub.syntax
    conditions = [c for s in (*syntax.left, *syntax.right) if isinstance(s, t.Where) for c in s.conditions]
    return _vacuous(conditions, _sizes(syntax.params), _attribute_kinds(sub))


def vacuous_operator(op: OperatorDef) -> Vacuous | None:
    """The contradiction among the `where`s of an operator; None where none is proved."""
    conditions = [c for s in op.syntax.statements if isinstance(s, t.Where) for c in s.conditions]
    kinds = {a.name: a.type.name for a in op.attrs if a.type.dims is None}
    lets = {s.target.name for s in op.syntax.statements if isinstance(s, t.Let) if s.target.places is None}
    return _vacuous(conditions, _sizes(op.syntax.params) - lets, kinds)


def _sizes(params: Sequence[t.Param]) -> set[str]:
    """The names that stand for a single size in a type: whole numbers from 0."""
    out: set[str] = set()
    packs: set[str] = set()
    for param in params:
        for node in t.walk(param.type.dims or ()) if param.type else ():
            if isinstance(node, t.Pack) and isinstance(node.value, t.Name):
                packs.add(node.value.id)
            elif isinstance(node, t.Name):
                out.add(node.id)
    return out - packs - {param.name for param in params}


def _attribute_kinds(sub: SubstitutionDef) -> dict[str, str]:
    """The declared types of the names that stand for attributes (or for entries of attributes that are lists of numbers)."""
    out: dict[str, str] = {}
    for node in t.walk((*sub.syntax.left, *sub.syntax.right)):
        op = sub.module.lookup(node.function) if isinstance(node, t.Call) else None
        if not isinstance(node, t.Call) or not isinstance(op, OperatorDef):
            continue
        declared = {attr.name: attr.type for attr in op.attrs}
        for keyword in node.kwargs:
            type = declared.get(keyword.name)
            if not type:
                continue
            if isinstance(keyword.value, t.Name) and type.dims is None:
                out.setdefault(keyword.value.id, type.name)
            elif isinstance(keyword.value, t.ListExpr):
                for element in keyword.value.elements:
                    if isinstance(element, t.Name):
                        out.setdefault(element.id, type.name)
    return out


def _vacuous(conditions: Sequence[t.Expr], sizes: set[str], kinds: Mapping[str, str]) -> Vacuous | None:
    if not conditions:
        return None
    z3: Any = import_module("z3")
    solver = z3.Solver()
    solver.set("timeout", MILLISECONDS)
    encoder = _Encoder(z3, sizes, kinds)
    marks = []
    for number, condition in enumerate(conditions):
        if (formula := encoder.truth(condition)) is not None:
            marks.append((z3.Bool(f"guard {number}"), condition))
            solver.add(z3.Implies(marks[-1][0], formula))
    solver.add(*encoder.facts)
    if not marks or solver.check([mark for mark, _ in marks]) != z3.unsat:
        return None
    core = {str(mark) for mark in solver.unsat_core()}
    kept = tuple(condition for mark, condition in marks if str(mark) in core) or tuple(c for _, c in marks)
    return Vacuous(kept, " and ".join(f"`{show(condition)}`" for condition in kept))


@dataclass
class _Encoder:
    """Guards as formulas. `truth` and `value` give None for what is left open."""

    #: Z3, which is loaded when first used, and whose interface has no types
    z3: Any
    sizes: set[str]
    kinds: Mapping[str, str]
    facts: list[Any] = field(default_factory=list)
    _known: dict[str, Any] = field(default_factory=dict)
    _words: dict[str, int] = field(default_factory=dict)

    def truth(self, expr: t.Expr) -> Any:
        match expr:
            case t.Binary(op="and", left=left, right=right):
                return self._all([self.truth(left), self.truth(right)])
            case t.Binary(op="or", left=left, right=right):
                return self._any([self.truth(left), self.truth(right)])
            case t.Unary(op="not", operand=operand) if _decided(operand):
                inner = self.truth(operand)
                return None if inner is None else self.z3.Not(inner)
            case t.Compare(operands=operands, ops=ops):
                return self._all([self._link(a, op, b) for a, op, b in zip(operands, ops, operands[1:], strict=False)])
        return None

    def _all(self, parts: Sequence[Any]) -> Any:
        known = [part for part in parts if part is not None]
        return self.z3.And(known) if known else None

    def _any(self, parts: Sequence[Any]) -> Any:
        return None if any(part is None for part in parts) else self.z3.Or(parts)

    def _link(self, left: t.Expr, op: str, right: t.Expr) -> Any:
        if op == "in" and isinstance(right, t.ListExpr) and not any(isinstance(e, t.Pack) for e in right.elements):
            return self._any([self._link(left, "==", element) for element in right.elements])
        return self._applied(op, left, right) if op in _FUNCTIONS else None

    def _applied(self, op: str, *operands: t.Expr) -> Any:
        values = [self.value(operand) for operand in operands]
        return None if any(one is None for one in values) else _FUNCTIONS[op](*values)

    def value(self, expr: t.Expr) -> Any:
        match expr:
            case t.Int(value=number):
                return self.z3.IntVal(number)
            case t.Float():
                found = Fraction(expr.text)
                return self.z3.RealVal(f"{found.numerator}/{found.denominator}")
            case t.Str(value=text):
                return self._word(f'"{text}"')
            case t.Name(id=name) if name in DTYPE_NAMES:
                return self._word(name)
            case t.Name(id=name) if name not in CONSTANTS:
                size = name in self.sizes
                return self._unknown(name, size, whole=size or self.kinds.get(name) in _WHOLE)
            case t.Subscript(base=t.Name(id=base), subs=(t.Int(value=at),), other=None):
                return self._unknown(f"{base}[{at}]", False)
            case t.Call(function="rank", args=(t.Name(id=pack),)):
                return self._unknown(f"rank {pack}", True, whole=True)
            case t.Unary(op="-", operand=operand):
                return self._applied("-", t.Int(0, span=expr.span), operand)
            case t.Binary(op="+" | "-" | "*" as op, left=left, right=right):
                return self._applied(op, left, right)
            case t.Binary(op="//" | "%" as op, left=left, right=t.Int(value=divisor)) if divisor > 0:
                a = self.value(left)
                # rounds down where the divisor is positive
                return _FUNCTIONS[op](a, divisor) if a is not None and a.is_int() else None
        return None

    def _unknown(self, name: str, natural: bool, whole: bool = False) -> Any:
        if name not in self._known:
            self._known[name] = self.z3.Int(name) if whole else self.z3.Real(name)
            if natural:
                self.facts.append(self._known[name] >= 0)
        return self._known[name]

    def _word(self, text: str) -> Any:
        """Words and element types are numbers that are told apart, far from those of sizes."""
        return self.z3.IntVal(self._words.setdefault(text, (1 << 70) + len(self._words)))


def _decided(expr: t.Expr) -> bool:
    """Return whether nothing below is left open: only then may it be denied."""
    match expr:
        case t.Binary(op="and" | "or", left=left, right=right):
            return _decided(left) and _decided(right)
        case t.Unary(op="not", operand=operand):
            return _decided(operand)
        case t.Compare(ops=ops):
            return len(ops) == 1
    return False
