"""The kinds of expressions: a number, a list with entries for axes, positions. docs/proofs.md, "Ranks", Lemma 3."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dslc.prove.ranks.kinds import (
    LOOSE,
    Count,
    Entries,
    Every,
    Linear,
    Loose,
    Named,
    Number,
    One,
    Place,
    Places,
    Segments,
    Tensor,
    Truth,
    Unnatural,
)
from dslc.prove.ranks.lists import NUMBER, ONE, Lists
from dslc.semantics.definitions import FunctionDef, Module, OperatorDef, UnknownFunction
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import CONVERT, DTYPE_NAMES, FUNCTIONS_1, PREDICATES

_HERE = "."


@dataclass(frozen=True, slots=True)
class Unknown:
    """An attribute of a rule, before an operator says what it is."""

    name: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """A list of one number for every axis, before the operands say which axes there are."""

    name: str
    rule: AxisEnv


@dataclass(frozen=True, slots=True)
class Closure:
    """A function that an operator defines for itself."""

    syntax: t.Function
    env: AxisEnv


@dataclass
class AxisEnv:
    module: Module
    values: dict[str, Any] = field(default_factory=dict)
    #: whether this is an equation, and whether these are the names of the rule itself
    inside: bool = False
    rule: bool = False
    #: what iterators without a range of their own range over
    ranges: Mapping[str, t.Expr] = field(default_factory=dict)

    def child(self) -> AxisEnv:
        return AxisEnv(self.module, dict(self.values), self.inside, self.rule, self.ranges)


class Values(Lists, ABC):
    """The kind of every sort of expression. What they raise is Unnatural."""

    #: the operators that the terms of the rule stand for, by name
    terms: Mapping[str, OperatorDef]

    @abstractmethod
    def operator(self, op: OperatorDef, expr: t.Call, env: AxisEnv) -> Any:
        """The results of an operator that is called."""

    def value(self, expr: Any, env: AxisEnv) -> Any:
        """The kind of an expression."""
        known = getattr(self, f"_{type(expr).__name__.lower()}", None)
        if known is None:
            raise Unnatural(f"{type(expr).__name__}")
        return known(expr, env)

    def _int(self, expr: t.Int, env: AxisEnv) -> Any:
        return NUMBER

    _float = _inf = _str = _int

    def _name(self, expr: t.Name, env: AxisEnv) -> Any:
        if expr.id in env.values:
            return env.values[expr.id]
        if expr.id in {"true", "false"}:
            return expr.id == "true"
        if expr.id in DTYPE_NAMES or expr.id in {"pi", "nan"}:
            return NUMBER
        return Unknown(expr.id)

    def _unary(self, expr: t.Unary, env: AxisEnv) -> Any:
        value = self.value(expr.operand, env)
        if isinstance(value, bool) and expr.op == "not":
            return not value
        if isinstance(value, Entries) and expr.op == "-":
            return Entries(value.segments)
        return self.number(value)

    def _binary(self, expr: t.Binary, env: AxisEnv) -> Any:
        values = [self.value(side, env) for side in (expr.left, expr.right)]
        if isinstance(values[0], Count) and expr.op == "+" and isinstance(expr.right, t.Int):
            # a list of so many entries is one in front of which there are others
            return Count((*ONE * expr.right.value, *values[0].segments))
        counted = [isinstance(value, Count | Linear | Place) for value in values]
        if expr.op in {"+", "-"} and any(counted):
            if all(one or isinstance(side, t.Int) for one, side in zip(counted, (expr.left, expr.right), strict=True)):
                return Linear()
            raise Unnatural("a number of axes and another number")
        if expr.op in {"and", "or"}:
            if expr.op == "and" and any(isinstance(value, Truth) for value in values):
                return Truth() if all(isinstance(value, Truth | Number) for value in values) else self.number(None)
            return self.together([NUMBER if isinstance(value, bool) else self.number(value) for value in values])
        return self.together(values)

    def _compare(self, expr: t.Compare, env: AxisEnv) -> Any:
        values = [self.value(operand, env) for operand in expr.operands]
        if any(isinstance(value, Place) for value in values):
            if len(values) == 2:
                return self.placed(expr.ops[0], values[0], values[1])
            raise Unnatural("positions in a chain")
        values = [NUMBER if isinstance(value, bool) else value for value in values]
        lists = [self.segments(value) for value in values if isinstance(value, Entries)]
        if set(expr.ops) & {"==", "!=", "in"} and len(lists) > 1:
            alike = len(set(lists)) == 1 and Loose() not in lists[0]
            if "in" in expr.ops or not (alike or all(isinstance(one, One) for one in itertools.chain(*lists))):
                raise Unnatural("lists that are equal at some ranks only")
            self.spaces.loosen()
            return NUMBER
        if "in" in expr.ops:
            raise Unnatural("a number among others")
        found = self.together(values)
        return Number() if isinstance(found, Number) and not found.folded else found

    def placed(self, op: str, one: Any, other: Any) -> Number:
        """Positions in one list are the same, in order, or among others."""
        if not isinstance(one, Place) or (op == "in") != isinstance(other, Places | Every):
            raise Unnatural("a position and a number")
        if isinstance(other, Every):
            raise Unnatural("how many axes there are")
        if not isinstance(other, Place | Places):
            raise Unnatural("a position and a number")
        self.apart = True
        if isinstance(one.target, str) and one.target not in self.spaces.targets:
            self.spaces.aim(one, self.spaces.target(other))
        self.spaces.aim(other, self.spaces.target(one))
        return NUMBER

    def _conditional(self, expr: t.Conditional, env: AxisEnv) -> Any:
        condition = self.value(expr.condition, env)
        if isinstance(condition, bool):
            return self.value(expr.then if condition else expr.otherwise, env)
        then, otherwise = self.value(expr.then, env), self.value(expr.otherwise, env)
        if isinstance(then, Tensor) and isinstance(otherwise, Tensor) and not self.number(condition).folded:
            return Tensor(self.spaces.unify(then.segments, otherwise.segments))
        return self.together([condition, then, otherwise])

    def _reduction(self, expr: t.Reduction, env: AxisEnv) -> Any:
        inner = env.child()
        if not env.inside:
            raise Unnatural("a list that is folded")
        for binder in expr.binders:
            over = binder.range if binder.range is not None else env.ranges.get(binder.name)
            if over is None:
                raise Unnatural("an iterator without a range")
            self.bind(binder, self.value(over, inner), inner)
        if expr.where is not None and not isinstance(where := self.value(expr.where, inner), Truth):
            self.number(where)
        return self.number(self.value(expr.body, inner))

    def bind(self, binder: t.Binder, over: Any, env: AxisEnv) -> Segments:
        """An iterator, or one for every size of a list; the segments that it makes up."""
        if not binder.star:
            self.number(over)
            env.values[binder.name] = NUMBER
            return ONE
        if not isinstance(over, Entries):
            raise Unnatural("an iterator over no list of sizes")
        env.values[binder.name] = Entries(over.segments)
        return over.segments

    def _listexpr(self, expr: t.ListExpr, env: AxisEnv) -> Any:
        values: list[Any] = []
        for element in expr.elements:
            value = self.value(element.value if isinstance(element, t.Pack) else element, env)
            if isinstance(element, t.Pack) == isinstance(value, Number | Place | Count | Linear):
                raise Unnatural("a list that is spliced")
            values.append(value)
        if values and all(isinstance(value, Place | Places) for value in values):
            return self.listed(values)
        if any(isinstance(value, Place | Places | Every | Count | Linear) for value in values):
            if not all(
                isinstance(value, Place | Places | Every | Count | Linear) or value is NUMBER for value in values
            ):
                raise Unnatural("a list of positions and others")
            self.shown = True
            return Places(self.spaces.loosen(), LOOSE)
        out: list[Any] = []
        sizes = flat = True
        for value, element in zip(values, expr.elements, strict=True):
            one = (
                value if isinstance(value, Entries) else Entries(ONE, isinstance(element, t.Int) and element.value == 1)
            )
            if not isinstance(value, Entries | Number):
                raise Unnatural("a list of what is no number")
            if isinstance(value, Number) and value.folded:
                self.spaces.loosen()
            out += one.segments
            sizes, flat = sizes and one.sizes, flat and self.flat(one)
        return Entries(tuple(out), sizes, flat)

    def listed(self, values: list[Place | Places]) -> Places:
        """A list of axes from single ones and from lists."""
        target: Any = values[0].target
        out: list[Any] = []
        for value in values:
            if len(values) > 1:
                target = self.spaces.target(values[0])
                self.spaces.aim(value, target)
            out += value.segments if isinstance(value, Places) else (Named(value.axis),)
        if any(isinstance(value, Place) and value.axis == _HERE for value in values):
            raise Unnatural("a list within a list")
        return Places(tuple(out), target)

    def _subscript(self, expr: t.Subscript, env: AxisEnv) -> Any:
        base = self.value(expr.base, env)
        if isinstance(base, Tensor):
            index: list[Any] = []
            for sub in expr.subs:
                if isinstance(sub, t.TupleExpr):
                    for slot in sub.slots:
                        part = self.value(slot.value if isinstance(slot, t.Pack) else slot, env)
                        if not (isinstance(slot, t.Pack) and isinstance(part, Entries) and self.spaces.loosen()):
                            self.number(part)
                    index += ONE
                    continue
                part = self.value(sub.value if isinstance(sub, t.Pack) else sub, env)
                if isinstance(sub, t.Pack) != isinstance(part, Entries):
                    raise Unnatural("an index that is not understood")
                index += part.segments if isinstance(part, Entries) else ONE
                if not isinstance(part, Entries):
                    self.number(part)
            self.spaces.unify(tuple(index), base.segments, equal_length=True)
            if expr.other is not None:
                self.number(self.value(expr.other, env))
            return NUMBER
        if len(expr.subs) != 1 or expr.other is not None:
            raise Unnatural("a list at several positions")
        at = self.value(expr.subs[0], env)
        if isinstance(at, Place) and isinstance(base, Entries | Places):
            self.spaces.aim(at, base.segments)
            self.apart = self.apart or isinstance(base, Places) or at.axis != _HERE
            return NUMBER if isinstance(base, Entries) else Place(at.axis, base.target)
        fixed = isinstance(base, Entries) and all(isinstance(each, One) for each in base.segments)
        if not fixed or not isinstance(expr.subs[0], t.Int):
            raise Unnatural("an entry by its number")
        return NUMBER

    def _nested(self, expr: t.Nested, env: AxisEnv) -> Any:
        scope = expr.scope
        if expr.subs is not None or expr.other is not None or not isinstance(scope, t.Traversal):
            raise Unnatural("a scope within an expression")
        if len(scope.places) != 1 or not isinstance(scope.places[0], t.Binder) or scope.where is not None:
            raise Unnatural("a scope within an expression")
        (binder,) = scope.places
        assert isinstance(binder, t.Binder)
        count = self.value(binder.range, env)
        if binder.star or not isinstance(count, Count):
            raise Unnatural("a list whose length is no number of axes")
        if any(isinstance(value, Place) and value.axis == _HERE for value in env.values.values()):
            raise Unnatural("a list within a list")
        self.shown = True
        inner = env.child()
        inner.values[binder.name] = Place(_HERE, count.segments)
        value = self.value(scope.body, inner)
        if isinstance(value, Place) and value.axis == _HERE:
            self.apart = True
            return Places(count.segments, self.spaces.target(value))
        if self.number(value).folded:
            self.spaces.loosen()
        ones = isinstance(scope.body, t.Int) and scope.body.value == 1
        return Entries(count.segments, ones, ones)

    def _meant(self, expr: t.Call, env: AxisEnv) -> Any:
        """The definition that a call is of, if any."""
        term = self.terms.get(expr.function) if env.rule else None
        return term if term is not None else env.module.lookup(expr.function)

    def _field(self, expr: t.Field, env: AxisEnv) -> Any:
        """One result of a call."""
        op = self._meant(expr.call, env) if isinstance(expr.call, t.Call) else None
        names = [output.name for output in op.syntax.outputs] if isinstance(op, OperatorDef) else []
        results = self.value(expr.call, env)
        if not isinstance(results, tuple) or len(results) != len(names) or expr.name not in names:
            raise Unnatural("a result without a name")
        return results[names.index(expr.name)]

    def _call(self, expr: t.Call, env: AxisEnv) -> Any:
        closure = env.values.get(expr.function)
        if isinstance(closure, Closure):
            inner = closure.env.child()
            inner.inside = env.inside
            inner.values.update(zip(closure.syntax.params, [self.value(arg, env) for arg in expr.args], strict=True))
            return self.value(closure.syntax.body, inner)
        found = self._meant(expr, env)
        if isinstance(found, FunctionDef):
            if expr.kwargs or expr.rest or len(expr.args) != len(found.syntax.params):
                raise Unnatural("a function with attributes")
            args = [self.value(arg, env) for arg in expr.args]
            return self.value(
                found.syntax.body, AxisEnv(found.module, dict(zip(found.syntax.params, args, strict=True)), env.inside)
            )
        if isinstance(found, UnknownFunction):
            return self.together([self.number(self.value(arg, env)) for arg in expr.args])
        if isinstance(found, OperatorDef):
            return self.operator(found, expr, env)
        if expr.function in PREDICATES:
            return NUMBER
        if expr.kwargs or expr.rest or any(isinstance(arg, t.Pack) for arg in expr.args):
            raise Unnatural("a function with attributes")
        values = [self.value(arg, env) for arg in expr.args]
        meaning = getattr(self, f"f_{expr.function}", None)
        if meaning is not None:
            try:
                return meaning(*values)
            except TypeError:
                raise Unnatural(f"`{expr.function}` of this") from None
        if expr.function == "max" and len(values) > 1 and all(isinstance(value, Count | Linear) for value in values):
            return Linear()
        if expr.function in FUNCTIONS_1 | {"ceildiv", CONVERT} or (expr.function in {"min", "max"} and len(values) > 1):
            return self.together(values)
        raise Unnatural(f"`{expr.function}`")
