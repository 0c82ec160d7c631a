"""Edited rules: substitutions that are wrong, or that are right for another reason, to test provers with.

Each is one edit of a rule's syntax: operands or results exchanged, an attribute shifted, an axis or a permutation changed, another
operator of the same signature, a constant changed, a guard dropped or loosened. What may be edited follows from the operators' own
declarations; whether an edited rule has a meaning is for the caller to find out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dslc.ir.dtype import DTYPES
from dslc.semantics.definitions import OperatorDef, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.syntax import tree as t
from dslc.syntax.printer import show

#: the kinds of edits
KINDS = (
    "operands exchanged", "another operand", "shifted", "entries exchanged", "another axis", "another permutation",
    "attribute left out", "another operator", "another constant", "results exchanged", "guard dropped", "guard loosened",
)  # fmt: skip
_LOOSER = {"<": "<=", ">": ">=", "==": "<="}
# attributes by their declared type: numbers and lists of them are shifted, axes moved, permutations reversed
_NUMBERS = frozenset({"int", "ints"})
_AXES = frozenset({"axis", "axes"})


@dataclass(frozen=True, slots=True)
class Edited:
    """A rule with one edit: `kind` is one of KINDS, `edit` says what stands where something else stood."""

    sub: SubstitutionDef
    kind: str
    edit: str


@dataclass(frozen=True, slots=True)
class _Edit:
    kind: str
    old: t.Node
    new: t.Node | None  # None: the condition is left out

    @property
    def text(self) -> str:
        return f"{_text(self.old)} -> {_text(self.new)}" if self.new is not None else _text(self.old)


def edited(rules: Rules, sub: SubstitutionDef) -> Iterator[Edited]:
    """All rules that differ from a rule by one edit, of its right side or of its guards; none that equals the rule or another one."""
    seen = {sub.syntax}
    for edit in _edits(rules, sub):
        syntax = _with(sub.syntax, edit)
        if syntax in seen:
            continue
        seen.add(syntax)
        yield Edited(replace(sub, name=f"{sub.name}'", syntax=syntax), edit.kind, edit.text)


def sampled(rules: Rules, subs: Sequence[SubstitutionDef], count: int, rng: np.random.Generator) -> list[Edited]:
    """At most `count` edited rules, from as many rules and of as many kinds as there are: kinds in turn, rules at random in each."""
    by_kind: dict[str, list[Edited]] = {kind: [] for kind in KINDS}
    for sub in subs:
        for one in edited(rules, sub):
            by_kind[one.kind].append(one)
    orders = [[found[int(k)] for k in rng.permutation(len(found))] for found in by_kind.values()]
    taken = (order[k] for k in range(max(map(len, orders), default=0)) for order in orders if k < len(order))
    return [one for one, _ in zip(taken, range(count), strict=False)]


# ---- the edits of a rule ------------------------------------------------------------------------------------------


def _edits(rules: Rules, sub: SubstitutionDef) -> Iterator[_Edit]:
    syntax = sub.syntax
    operands = [param.name for param in syntax.params if not param.star]
    inside = list(syntax.right)
    if len(syntax.right) == 1 and isinstance(syntax.right[0], t.Bind) and isinstance(syntax.right[0].value, t.Name):
        # a law: its right side has a name among the statements of the left
        name = syntax.right[0].value.id
        inside += [s for s in syntax.left if isinstance(s, t.Bind) and s.names == (name,) and " " in name]
    for statement in inside:
        if not isinstance(statement, t.Bind | t.Let | t.LetMany | t.Const | t.Function):
            continue
        if isinstance(statement, t.Bind) and len(statement.names) > 1:
            for k in range(len(statement.names) - 1):
                yield _Edit(
                    "results exchanged", statement, replace(statement, names=_exchanged(statement.names, k, k + 1))
                )
        value = statement.body if isinstance(statement, t.Function) else statement.value
        for node in t.walk(value):
            if isinstance(node, t.Call):
                op = sub.module.lookup(node.function)
                if isinstance(op, OperatorDef):
                    yield from _call_edits(rules, sub, node, op, operands)
            elif isinstance(node, t.Float):
                yield _Edit("another constant", node, replace(node, text=repr(node.value * 2 + 1)))
    yield from _result_edits(syntax)
    for statement in syntax.left:
        for condition in statement.conditions if isinstance(statement, t.Where) else ():
            yield _Edit("guard dropped", condition, None)
            for node in t.walk(condition):
                if isinstance(node, t.Compare):
                    for k, op_text in enumerate(node.ops):
                        if op_text in _LOOSER:
                            ops = (*node.ops[:k], _LOOSER[op_text], *node.ops[k + 1 :])
                            yield _Edit("guard loosened", node, replace(node, ops=ops))


def _result_edits(syntax: t.Substitution) -> Iterator[_Edit]:
    """Two results that are bound by statements of their own."""
    binds = [s for s in syntax.right if isinstance(s, t.Bind) and len(s.names) == 1 and s.names[0] in syntax.outputs]
    for one, other in pairwise(binds):
        yield _Edit("results exchanged", one, replace(one, value=other.value))


def _call_edits(
    rules: Rules, sub: SubstitutionDef, call: t.Call, op: OperatorDef, operands: Sequence[str]
) -> Iterator[_Edit]:
    if not rules.traits_of(op.name).commutative:
        for k in range(len(call.args) - 1):
            yield _Edit("operands exchanged", call, replace(call, args=_exchanged(call.args, k, k + 1)))
    for k, arg in enumerate(call.args):
        if isinstance(arg, t.Name) and arg.id in operands:
            other = operands[(operands.index(arg.id) + 1) % len(operands)]
            if other != arg.id:
                new = replace(call, args=(*call.args[:k], replace(arg, id=other), *call.args[k + 1 :]))
                yield _Edit("another operand", call, new)
        elif isinstance(arg, t.Int | t.Float):
            yield _Edit("another constant", arg, t.Int(int(arg.value) + 1, span=arg.span))
    for name, other_op in sub.module.names.items():
        if isinstance(other_op, OperatorDef) and other_op is not op and _signature(other_op) == _signature(op):
            yield _Edit("another operator", call, replace(call, function=name))
    if call.rest is not None:
        yield _Edit("attribute left out", call, replace(call, rest=None))
    kinds = {attr.name: attr.type for attr in op.attrs}
    for k, keyword in enumerate(call.kwargs):
        for kind, value in _values(keyword.value, kinds.get(keyword.name)):
            yield _Edit(kind, keyword, replace(keyword, value=value))
        optional = any(attr.name == keyword.name and attr.default is not None for attr in op.attrs)
        if optional:
            yield _Edit("attribute left out", call, replace(call, kwargs=(*call.kwargs[:k], *call.kwargs[k + 1 :])))


def _values(value: t.Expr, type: t.TypeExpr | None) -> Iterator[tuple[str, t.Expr]]:
    """Other values of an attribute of some type."""
    span = value.span
    name = type.name if type is not None else ""
    if isinstance(value, t.ListExpr):
        for k in range(len(value.elements) - 1):
            if value.elements[k] != value.elements[k + 1]:
                yield "entries exchanged", replace(value, elements=_exchanged(value.elements, k, k + 1))
        if name in _NUMBERS:
            for k, element in enumerate(value.elements):
                if not isinstance(element, t.Pack):
                    yield (
                        "shifted",
                        replace(value, elements=(*value.elements[:k], _plus(element), *value.elements[k + 1 :])),
                    )
    elif name in _NUMBERS:
        yield "shifted", _plus(value)
        if not isinstance(value, t.Int):
            yield "shifted", t.Int(0, span=span)
    elif name in _AXES:
        yield "another axis", _plus(value)
        yield "another axis", t.Int(0, span=span)
    elif name == "permutation":
        # the same entries from the last to the first
        count = t.Call("len", (value,), (), None, span=span)
        last = t.Binary("-", t.Binary("-", count, t.Int(1, span=span), span=span), t.Name("k", span=span), span=span)
        entry = t.Subscript(value, (last,), None, span=span)
        traversal = t.Traversal((t.Binder(False, "k", count, span=span),), None, entry, span=span)
        yield "another permutation", t.Nested(traversal, None, None, span=span)
    elif isinstance(value, t.Int | t.Float) and name == "float":
        yield "another constant", t.Float(repr(value.value * 2 + 1.0), span=span)


def _plus(value: t.Expr) -> t.Expr:
    if isinstance(value, t.Int):
        return replace(value, value=value.value + 1)
    return t.Binary("+", value, t.Int(1, span=value.span), span=value.span)


def _exchanged(items: tuple[Any, ...], j: int, k: int) -> tuple[Any, ...]:
    out = list(items)
    out[j], out[k] = out[k], out[j]
    return tuple(out)


def _signature(op: OperatorDef) -> tuple[Any, ...]:
    """The types of an operator's tensors and attributes, with names in the order in which they occur."""
    order: dict[str, int] = {}

    def of(node: Any) -> Any:
        if isinstance(node, tuple):
            return tuple(of(part) for part in node)
        if isinstance(node, t.Name):
            return order.setdefault(node.id, len(order))
        if isinstance(node, t.TypeExpr):
            head = node.name if node.name in DTYPES or node.dims is None else order.setdefault(node.name, len(order))
            return head, of(node.dims)
        if isinstance(node, t.Node):
            parts = (of(getattr(node, each.name)) for each in fields(node) if each.name != "span")
            return type(node).__name__, *parts
        return node

    tensors = tuple((param.star, of(param.type)) for param in (*op.syntax.params, *op.syntax.outputs))
    attrs = tuple((attr.name, attr.type.name) for attr in op.attrs)
    return len(op.syntax.params), tensors, attrs


# ---- applying an edit -----------------------------------------------------------------------------------------------


def _with(syntax: t.Substitution, edit: _Edit) -> t.Substitution:
    """The rule with one node, found by identity, in another form."""
    left, right = (_rewritten(side, edit) for side in (syntax.left, syntax.right))
    if (
        edit.kind == "results exchanged"
        and isinstance(edit.old, t.Bind)
        and edit.new is not None
        and len(edit.old.names) == 1
    ):
        right = _exchange_values(right, edit)
    return replace(syntax, left=left, right=right)


def _exchange_values(right: tuple[Any, ...], edit: _Edit) -> tuple[Any, ...]:
    """The second of two results takes the first one's value."""
    old, new = edit.old, edit.new
    assert isinstance(old, t.Bind) and isinstance(new, t.Bind)
    return tuple(
        replace(s, value=old.value) if isinstance(s, t.Bind) and s is not new and s.value is new.value else s
        for s in right
    )


def _rewritten(side: tuple[Any, ...], edit: _Edit) -> tuple[Any, ...]:
    out = []
    for statement in side:
        if edit.new is None and isinstance(statement, t.Where):
            kept = tuple(condition for condition in statement.conditions if condition is not edit.old)
            if kept:
                out.append(replace(statement, conditions=kept) if len(kept) < len(statement.conditions) else statement)
        else:
            out.append(_replaced(statement, edit.old, edit.new))
    return tuple(out)


def _replaced(node: Any, old: t.Node, new: t.Node | None) -> Any:
    if node is old:
        return new
    if isinstance(node, tuple):
        parts = tuple(_replaced(part, old, new) for part in node)
        return parts if any(a is not b for a, b in zip(parts, node, strict=True)) else node
    if not isinstance(node, t.Node):
        return node
    before = {each.name: getattr(node, each.name) for each in fields(node) if each.name not in {"span", "source"}}
    after = {name: _replaced(value, old, new) for name, value in before.items()}
    changed = {name: value for name, value in after.items() if value is not before[name]}
    return replace(node, **changed) if changed else node


def _text(node: t.Node) -> str:
    return " ".join(show(node).split())


__all__ = ["KINDS", "Edited", "edited", "sampled"]
