"""The kinds of expressions: a number, a list with entries for axes, positions. docs/proofs.md, "Ranks", Lemma 3."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dslc.prove.instances.axis_sets import (
    LOOSE,
    AllAxes,
    AxisList,
    AxisSets,
    Complement,
    Count,
    Entries,
    Linear,
    Loose,
    Named,
    NotRankPolymorphic,
    Number,
    One,
    Place,
    Reversed,
    Spaces,
    Tensor,
    Truth,
    of_kind,
)
from dslc.records import record
from dslc.semantics.definitions import FunctionDef, Module, OperatorDef, UnknownFunction
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import CONVERT, DTYPE_NAMES, FUNCTIONS_1, PREDICATES

NUMBER = Number()
ONE: AxisSets = (One(),)


class Lists:
    """Functions of lists; `f_name` is that of the language's `name`. What they raise is NotRankPolymorphic."""

    def __init__(self) -> None:
        self.spaces = Spaces()
        #: a product of sizes occurs
        self.folds = False
        #: axes are picked, or lists for axes permuted, cut or ravelled, which shows at rank 2
        self.shown = False
        #: the position of an axis matters: then two of them tell more than rank 2 does
        self.apart = False
        #: a guard is looked at, whose meaning for fewer axes need not be known
        self.guarding = False

    def sets(self, value: Any) -> AxisSets:
        if isinstance(value, Number):
            return ()
        if not isinstance(value, Entries | AxisList | AllAxes | Tensor):
            raise NotRankPolymorphic  # no list
        return self.spaces.normal(value.sets)

    def number(self, value: Any) -> Number:
        if isinstance(value, Tensor) and not self.sets(value):
            return NUMBER
        if isinstance(value, Truth):
            self.spaces.loosen()
            return NUMBER
        # no list, position or number of axes
        return of_kind(Number, value)

    def together(self, values: list[Any]) -> Number | Entries:
        """Numbers and lists, elementwise."""
        lists = [value for value in values if isinstance(value, Entries)]
        folded = any(self.number(value).folded for value in values if not isinstance(value, Entries))
        if not lists:
            return Number(folded)
        if folded:
            self.spaces.loosen()
        sets = self.sets(lists[0])
        for other in lists[1:]:
            sets = self.spaces.unify(sets, self.sets(other), equal_length=True)
        return Entries(sets)

    def f_rank(self, value: Any) -> Count:
        return Count(self.sets(value))

    f_len = f_rank

    def f_take(self, values: Any, count: Any) -> Entries:
        """The entries in front, for as many axes as there are of some."""
        return Entries(self.halves(values, count)[0])

    def f_drop(self, values: Any, count: Any) -> Entries:
        return Entries(self.halves(values, count)[1])

    def halves(self, values: Any, count: Any) -> tuple[AxisSets, AxisSets]:
        if not isinstance(count, Count) or not isinstance(values, Entries):
            raise NotRankPolymorphic  # a list that is cut at a number
        self.shown = True
        sets, front = self.sets(values), self.spaces.normal(count.sets)
        same = front and Loose() not in front and sets[: len(front)] == front
        if not same and values.given and front and One() not in front:
            return self.spaces.loosen(), LOOSE
        if not same:
            raise NotRankPolymorphic  # a list that is cut elsewhere
        return front, sets[len(front) :]

    def f_shape(self, value: Any) -> Entries:
        tensor = of_kind(Tensor, value)
        return Entries(tensor.sets, True, tensor.flat)

    def f_range(self, *ends: Any) -> AllAxes | AxisList:
        self.shown = True
        if len(ends) == 1 and isinstance(ends[0], Count):
            return AllAxes(ends[0].sets)
        counted = [isinstance(end, Count | Linear) for end in ends]
        if not any(counted) or not all(one or isinstance(end, Number) for one, end in zip(counted, ends, strict=True)):
            raise NotRankPolymorphic  # positions by their numbers
        return AxisList(self.spaces.loosen(), LOOSE)

    def f_reversed(self, value: Any) -> Entries | AxisList:
        self.shown = True
        turned: AxisSets = (Reversed(self.sets(value)),)
        if isinstance(value, AllAxes):
            return AxisList(turned, value.sets)
        if isinstance(value, AxisList):
            return AxisList(turned, value.target)
        if isinstance(value, Entries):
            return Entries(turned, value.sizes)
        raise NotRankPolymorphic  # no list

    def f_all(self, value: Any) -> Truth:
        if not isinstance(value, Entries | Number | Truth):
            raise NotRankPolymorphic  # no list of conditions
        return Truth()

    def f_any(self, value: Any) -> Truth:
        self.spaces.loosen()
        return self.f_all(value)

    def f_prod(self, value: Any) -> Number:
        if isinstance(value, Entries) and self.flat(value):
            return NUMBER
        if not isinstance(value, Entries) or not (value.sizes or (self.guarding and value.given)):
            raise NotRankPolymorphic  # a product of what is no size
        self.folds = True
        return Number(folded=True)

    def f_broadcast(self, *values: Any) -> Entries:
        lists = [
            Entries(self.sets(value), value.sizes, self.flat(value))
            for value in (of_kind(Entries, value) for value in values)
        ]
        longest = max(lists, key=lambda value: len(value.sets))
        sets = longest.sets
        for value in lists:
            # shorter lists are aligned on the right
            if value.sets and self.spaces.unify(longest.sets[-len(value.sets) :], value.sets) == LOOSE:
                sets = LOOSE
        return Entries(
            self.spaces.normal(sets), all(value.sizes for value in lists), all(value.flat for value in lists)
        )

    def flat(self, value: Entries) -> bool:
        """Return whether the entries for axes are ones."""
        return value.flat or self.fixed(value)

    def f_ravel(self, index: Any, shape: Any) -> Number:
        """A position among all elements, on which axes of size 1 have no influence."""
        positions = of_kind(Entries, index)
        self.spaces.unify(positions.sets, self.ravelled(shape).sets, equal_length=True)
        return NUMBER

    def ravelled(self, shape: Any) -> Entries:
        """The sizes of all elements' positions."""
        self.shown = True
        sizes = of_kind(Entries, shape)
        if not self.flat(sizes):
            self.spaces.loosen()
        return sizes

    def f_unravel(self, position: Any, shape: Any) -> Entries:
        self.number(position)
        return Entries(self.ravelled(shape).sets)

    def f_fit(self, index: Any, shape: Any) -> Entries:
        sets, own = (self.sets(of_kind(Entries, value)) for value in (shape, index))
        return Entries(self.spaces.unify(own[-len(sets) :], sets) if sets else ())

    def f_permute(self, values: Any, by: Any, *, back: bool = False) -> Entries | AxisList:
        self.shown = True
        if isinstance(by, Entries) and isinstance(values, Entries) and self.fixed(by):
            # of places that are no axes
            return Entries(self.spaces.unify(by.sets, values.sets), values.sizes)
        if isinstance(by, AllAxes):
            return self.entries(values, by.sets)
        by = of_kind(AxisList, by)
        values = self.entries(values, by.sets if back else None)
        if back:
            self.spaces.unify(self.sets(values), by.sets, equal_length=True)
            return self.like(values, self.spaces.target(by))
        self.spaces.aim(by, self.sets(values), equal_length=True)
        return self.like(values, by.sets)

    def f_unpermute(self, values: Any, by: Any) -> Entries | AxisList:
        return self.f_permute(values, by, back=True)

    def entries(self, values: Any, sets: AxisSets | None) -> Entries | AxisList:
        """A list; that of all positions as a list of positions in itself, whichever of as many entries that is."""
        if isinstance(values, AllAxes):
            own = values.sets
            if sets is not None and self.spaces.as_many(own, sets):
                own = sets
            return AxisList(own, own)
        if not isinstance(values, Entries | AxisList):
            raise NotRankPolymorphic  # no list
        return values

    def like(self, values: Entries | AxisList, sets: AxisSets) -> Entries | AxisList:
        if isinstance(values, AxisList):
            return AxisList(sets, values.target)
        return Entries(sets, values.sizes)

    def f_only(self, values: Any, by: Any) -> Entries | AxisList:
        values, by = self.picked(values, by)
        return self.like(values, by.sets)

    def f_without(self, values: Any, by: Any) -> Entries | AxisList:
        values, by = self.picked(values, by)
        return self.like(values, (Complement(self.sets(values), by.sets),))

    def picked(self, values: Any, by: Any) -> tuple[Entries | AxisList, AxisList]:
        """A list, and positions in it."""
        self.shown = True
        values = self.entries(values, None)
        by = self.positions(by, self.sets(values))
        self.spaces.aim(by, self.sets(values))
        return values, by

    def positions(self, by: Any, sets: AxisSets | None) -> AxisList:
        """A list of axes; of numbers that are written out it is not followed which axes these are."""
        if isinstance(by, Entries) and self.fixed(by):
            return AxisList(self.spaces.loosen(), LOOSE)
        return of_kind(AxisList, self.entries(by, sets))

    def fixed(self, value: Entries) -> bool:
        """Return whether no entry is one for axes."""
        return all(isinstance(each, One) for each in self.sets(value))

    def f_merge(self, rest: Any, chosen: Any, by: Any) -> Entries:
        self.shown = True
        by, rest = self.positions(by, None), of_kind(Entries, rest)
        target = self.spaces.target(by)
        self.spaces.unify(rest.sets, (Complement(target, by.sets),))
        if isinstance(chosen, Entries):
            self.spaces.unify(chosen.sets, by.sets)
            return Entries(target, rest.sizes and chosen.sizes)
        if self.number(chosen).folded:
            self.spaces.loosen()
        return Entries(target)


_HERE = "."


@record
class Unknown:
    """An attribute of a rule, before an operator says what it is."""

    name: str


@record
class Drawn:
    """A list of one number for every axis, before the operands say which axes there are."""

    name: str
    rule: AxisEnv


@record
class Closure:
    """A function that an operator defines for itself."""

    syntax: t.Function
    env: AxisEnv


@dataclass
class AxisEnv:
    """Kinds of the names in a rule, an operator or a function."""

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
    """The kind of every sort of expression. What they raise is NotRankPolymorphic."""

    #: the operators that the terms of the rule stand for, by name
    terms: Mapping[str, OperatorDef]

    @abstractmethod
    def operator(self, op: OperatorDef, expr: t.Call, env: AxisEnv) -> Any:
        """The results of an operator that is called."""

    def value(self, expr: Any, env: AxisEnv) -> Any:
        """The kind of an expression."""
        known = getattr(self, f"_{type(expr).__name__.lower()}", None)
        if known is None:
            raise NotRankPolymorphic  # {type(expr).__name__}
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
            return Entries(value.sets)
        return self.number(value)

    def _binary(self, expr: t.Binary, env: AxisEnv) -> Any:
        values = [self.value(side, env) for side in (expr.left, expr.right)]
        if isinstance(values[0], Count) and expr.op == "+" and isinstance(expr.right, t.Int):
            # a list of so many entries is one in front of which there are others
            return Count((*ONE * expr.right.value, *values[0].sets))
        counted = [isinstance(value, Count | Linear | Place) for value in values]
        if expr.op in {"+", "-"} and any(counted):
            if all(one or isinstance(side, t.Int) for one, side in zip(counted, (expr.left, expr.right), strict=True)):
                return Linear()
            raise NotRankPolymorphic  # a number of axes and another number
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
            raise NotRankPolymorphic  # positions in a chain
        values = [NUMBER if isinstance(value, bool) else value for value in values]
        lists = [self.sets(value) for value in values if isinstance(value, Entries)]
        if set(expr.ops) & {"==", "!=", "in"} and len(lists) > 1:
            alike = len(set(lists)) == 1 and Loose() not in lists[0]
            if "in" in expr.ops or not (alike or all(isinstance(one, One) for one in itertools.chain(*lists))):
                raise NotRankPolymorphic  # lists that are equal at some ranks only
            self.spaces.loosen()
            return NUMBER
        if "in" in expr.ops:
            raise NotRankPolymorphic  # a number among others
        found = self.together(values)
        return Number() if isinstance(found, Number) and not found.folded else found

    def placed(self, op: str, one: Any, other: Any) -> Number:
        """Positions in one list are the same, in order, or among others."""
        if not isinstance(one, Place) or (op == "in") != isinstance(other, AxisList | AllAxes):
            raise NotRankPolymorphic  # a position and a number
        if isinstance(other, AllAxes):
            raise NotRankPolymorphic  # how many axes there are
        if not isinstance(other, Place | AxisList):
            raise NotRankPolymorphic  # a position and a number
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
            return Tensor(self.spaces.unify(then.sets, otherwise.sets))
        return self.together([condition, then, otherwise])

    def _reduction(self, expr: t.Reduction, env: AxisEnv) -> Any:
        inner = env.child()
        if not env.inside:
            raise NotRankPolymorphic  # a list that is folded
        for binder in expr.binders:
            over = binder.range or env.ranges.get(binder.name)
            if not over:
                raise NotRankPolymorphic  # an iterator without a range
            self.bind(binder, self.value(over, inner), inner)
        if expr.where and not isinstance(where := self.value(expr.where, inner), Truth):
            self.number(where)
        return self.number(self.value(expr.body, inner))

    def bind(self, binder: t.Binder, over: Any, env: AxisEnv) -> AxisSets:
        """An iterator, or one for every size of a list; the sets that it makes up."""
        if not binder.star:
            self.number(over)
            env.values[binder.name] = NUMBER
            return ONE
        sets = of_kind(Entries, over).sets
        env.values[binder.name] = Entries(sets)
        return sets

    def _listexpr(self, expr: t.ListExpr, env: AxisEnv) -> Any:
        values: list[Any] = []
        for element in expr.elements:
            value = self.value(element.value if isinstance(element, t.Pack) else element, env)
            if isinstance(element, t.Pack) == isinstance(value, Number | Place | Count | Linear):
                raise NotRankPolymorphic  # a list that is spliced
            values.append(value)
        if values and all(isinstance(value, Place | AxisList) for value in values):
            return self.listed(values)
        if any(isinstance(value, Place | AxisList | AllAxes | Count | Linear) for value in values):
            if not all(
                isinstance(value, Place | AxisList | AllAxes | Count | Linear) or value is NUMBER for value in values
            ):
                raise NotRankPolymorphic  # a list of positions and others
            self.shown = True
            return AxisList(self.spaces.loosen(), LOOSE)
        out: list[Any] = []
        sizes = flat = True
        for value, element in zip(values, expr.elements, strict=True):
            one = (
                value if isinstance(value, Entries) else Entries(ONE, isinstance(element, t.Int) and element.value == 1)
            )
            if not isinstance(value, Entries | Number):
                raise NotRankPolymorphic  # a list of what is no number
            if isinstance(value, Number) and value.folded:
                self.spaces.loosen()
            out += one.sets
            sizes, flat = sizes and one.sizes, flat and self.flat(one)
        return Entries(tuple(out), sizes, flat)

    def listed(self, values: list[Place | AxisList]) -> AxisList:
        """A list of axes from single ones and from lists."""
        target: Any = values[0].target
        out: list[Any] = []
        for value in values:
            if len(values) > 1:
                target = self.spaces.target(values[0])
                self.spaces.aim(value, target)
            out += value.sets if isinstance(value, AxisList) else (Named(value.axis),)
        if any(isinstance(value, Place) and value.axis == _HERE for value in values):
            raise NotRankPolymorphic  # a list within a list
        return AxisList(tuple(out), target)

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
                    raise NotRankPolymorphic  # an index that is not understood
                index += part.sets if isinstance(part, Entries) else ONE
                if not isinstance(part, Entries):
                    self.number(part)
            self.spaces.unify(tuple(index), base.sets, equal_length=True)
            if expr.other:
                self.number(self.value(expr.other, env))
            return NUMBER
        if len(expr.subs) != 1 or expr.other:
            raise NotRankPolymorphic  # a list at several positions
        at = self.value(expr.subs[0], env)
        if isinstance(at, Place) and isinstance(base, Entries | AxisList):
            self.spaces.aim(at, base.sets)
            self.apart = self.apart or isinstance(base, AxisList) or at.axis != _HERE
            return NUMBER if isinstance(base, Entries) else Place(at.axis, base.target)
        if not (isinstance(base, Entries) and self.fixed(base)) or not isinstance(expr.subs[0], t.Int):
            raise NotRankPolymorphic  # an entry by its number
        return NUMBER

    def _nested(self, expr: t.Nested, env: AxisEnv) -> Any:
        scope = expr.scope
        if expr.subs is not None or expr.other is not None or not isinstance(scope, t.Traversal):
            raise NotRankPolymorphic  # a scope within an expression
        if len(scope.places) != 1 or not isinstance(scope.places[0], t.Binder) or scope.where:
            raise NotRankPolymorphic  # a scope within an expression
        (binder,) = scope.places
        assert isinstance(binder, t.Binder)
        count = self.value(binder.range, env)
        if binder.star or not isinstance(count, Count):
            raise NotRankPolymorphic  # a list whose length is no number of axes
        if any(isinstance(value, Place) and value.axis == _HERE for value in env.values.values()):
            raise NotRankPolymorphic  # a list within a list
        self.shown = True
        inner = env.child()
        inner.values[binder.name] = Place(_HERE, count.sets)
        value = self.value(scope.body, inner)
        if isinstance(value, Place) and value.axis == _HERE:
            self.apart = True
            return AxisList(count.sets, self.spaces.target(value))
        if self.number(value).folded:
            self.spaces.loosen()
        ones = isinstance(scope.body, t.Int) and scope.body.value == 1
        return Entries(count.sets, ones, ones)

    def _meant(self, expr: t.Call, env: AxisEnv) -> Any:
        """The definition that a call is of, if any."""
        term = self.terms.get(expr.function) if env.rule else None
        return term or env.module.lookup(expr.function)

    def _field(self, expr: t.Field, env: AxisEnv) -> Any:
        """One result of a call."""
        op = self._meant(expr.call, env) if isinstance(expr.call, t.Call) else None
        names = [output.name for output in op.outputs] if isinstance(op, OperatorDef) else []
        results = self.value(expr.call, env)
        if not isinstance(results, tuple) or len(results) != len(names) or expr.name not in names:
            raise NotRankPolymorphic  # a result without a name
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
                raise NotRankPolymorphic  # a function with attributes
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
            raise NotRankPolymorphic  # a function with attributes
        values = [self.value(arg, env) for arg in expr.args]
        meaning = getattr(self, f"f_{expr.function}", None)
        if meaning is not None:
            try:
                return meaning(*values)
            except TypeError:
                raise NotRankPolymorphic from None  # `{expr.function}` of this
        if expr.function == "max" and len(values) > 1 and all(isinstance(value, Count | Linear) for value in values):
            return Linear()
        if expr.function in FUNCTIONS_1 | {"ceildiv", CONVERT} or (expr.function in {"min", "max"} and len(values) > 1):
            return self.together(values)
        raise NotRankPolymorphic  # `{expr.function}`
