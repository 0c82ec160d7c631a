"""Names of a text for what expressions have without names: tensors, the dimensions that iterators run along, numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

from dslc.errors import DslcError
from dslc.ir.graph import Attrs, Call, ScopeNode, Value, Values, nodes_of
from dslc.ir.scalar import exactly
from dslc.ir.show import Axes
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.env import Env, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.semantics.operator_env import operator_env
from dslc.semantics.walk import dims_of, nodes
from dslc.syntax import tree as t

#: statements that say what is computed
COMPUTING = t.Let | t.LetMany | t.Function | t.Equation | t.EquationMany
#: a dimension in the text: `n`, `*o`, `b: B`, the last of `(g, c)`
_AXIS = re.compile(r"\(?(?:.*, )?\*?([A-Za-z_]\w*)(?::.*)?\)?")


class Names:
    """The names in an operator's text, for one application. None where one of several operands stands for calls of two."""

    def __init__(self, rules: Rules, op: OperatorDef, args: Values, attrs: Attrs) -> None:
        self._env = Env(op.module, rules)
        self._body = tuple(each for each in op.syntax.statements if isinstance(each, COMPUTING))
        self._rows = [(each.name, dims_of(each.type)) for each in (*op.syntax.params, *op.syntax.outputs)]
        self._defined = [(each.name, each.places or ()) for each in nodes(t.Defined, self._body)]
        with suppress(Mismatch, DslcError):
            self._env = operator_env(rules, op, args, dict(attrs))
        self.spare = [*self._row([*nodes(t.Binder, self._body)], 0)]

    def _value(self, expr: t.Expr | None, name: str = "") -> Any:
        with suppress(Unbound, Mismatch, DslcError):
            return evaluate(expr, self._env) if expr else self._env.get(name)

    def tensors(self) -> dict[Value, str]:
        """The tensors that its statements define."""
        found = {self._value(None, name): name for name, _ in self._defined}
        return {value: name for value, name in found.items() if isinstance(value, Value)}

    def sizes(self) -> dict[str, Any]:
        """The sizes that its types name."""
        found = {each.id: self._value(each) for _, dims in self._rows for each in nodes(t.Name, dims)}
        return {name: value for name, value in found.items() if value is not None}

    def numbers(self) -> dict[Any, str]:
        """The texts of numbers that are no integers."""
        found: dict[Any, str] = {}
        # what is written out is no attribute that happens to have its value
        for node in sorted(t.walk(self._body), key=lambda each: not isinstance(each, t.Float)):
            if isinstance(node, t.Float | t.Name | t.Call) or (isinstance(node, t.Binary) and node.op == "/"):
                value = self._value(node)
                if isinstance(value, Fraction | float):
                    found.setdefault(exactly(value), node.span.text)
        return found

    def axes(self, name: str, rank: int) -> Axes:
        """Names along each dimension of a tensor: iterators in equations, and declared sizes in lower case."""
        reads = [(each.base.bare, each.subs) for each in nodes(t.Subscript, self._body)]
        rows = [[*self._row(row, rank)] for own, row in (*self._defined, *reads, *self._rows) if own == name]
        return [[row[dim] for row in rows if len(row) == rank] for dim in range(rank)]

    def _row(self, row: Sequence[t.Node], rank: int) -> Iterator[str]:
        for part in row:
            text = part.span.text
            found = _AXIS.fullmatch(text)
            name = found[1] if found else ""
            sizes = self._value(self._env.ranges.get(name), name) if text[0] == "*" else None
            count = len(sizes) if isinstance(sizes, tuple) else rank - len(row) + 1 if text[0] == "*" else 1
            yield from (f"{name.lower()}{k}" if name and count > 1 else name.lower() for k in range(count))


def axes_of(rules: Rules, values: Values) -> dict[Value, Axes]:
    """Names along the dimensions of tensors that calls take and give, where these are no expressions."""
    found: dict[Value, Axes] = {}
    for call in (node for node in nodes_of(values) if isinstance(node, Call)):
        op = rules.operator(call.op)
        known = Names(rules, op, call.args, call.attrs)
        for param, value in zip((*op.syntax.params, *op.syntax.outputs), (*call.args, *call.values), strict=False):
            if not isinstance(value.node, ScopeNode):
                found.setdefault(value, known.axes(param.name, value.type.rank))
    return found
