"""Whether a rule, and all that it uses, says the same of an axis whatever other axes there are: docs/proofs.md, Lemma 3.

Every expression is given a kind: a number, a list with an entry for every axis of some segments, a list of positions in such a list,
a position. What is allowed is listed; all else is `Unnatural`, and then nothing is concluded about other ranks.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from dslc.prove.axis_kinds import (
    Chosen,
    Count,
    Entries,
    Every,
    Fixed,
    Named,
    Number,
    One,
    Pack,
    Part,
    Place,
    Places,
    Rest,
    Reversed,
    Segments,
    Spaces,
    Tensor,
    Truth,
    Unnatural,
)
from dslc.prove.instance_terms import unknown_operators
from dslc.semantics.definitions import FunctionDef, Module, OperatorDef, SubstitutionDef, UnknownFunction
from dslc.semantics.env import Env
from dslc.semantics.library import Rules
from dslc.semantics.operator_env import declare
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import CONVERT, DTYPE_NAMES, FUNCTIONS_1, PREDICATES

_NUMBER = Number()
_ONE: Segments = (One(),)
_HERE = "."
_MOST_FLAGS = 4
_LISTED = frozenset({"axes", "permutation"})
_SCALARS = frozenset({"int", "float", "string", "dtype"})


@dataclass(frozen=True, slots=True)
class Reading:
    """What the text of a rule says of axes, for some values of its flags.

    `packs` go together axis by axis. `named`: attributes that name one axis; `needed`: lists of axes that must keep one; `alike`: no
    attribute tells axes apart, and no product of sizes occurs.
    """

    spaces: Spaces
    packs: frozenset[str]
    named: tuple[str, ...]
    needed: tuple[Segments, ...]
    alike: bool


#: for all values of a rule's flags
Readings = Mapping[tuple[tuple[str, bool], ...], Reading]


def readings(sub: SubstitutionDef) -> Readings | None:
    """What a rule says of axes, for all values of its flags; None where anything in it is unnatural."""
    flags: tuple[str, ...] = ()
    try:
        while True:
            found = {}
            try:
                for values in itertools.product((False, True), repeat=len(flags)):
                    chosen = dict(zip(flags, values, strict=True))
                    found[tuple(sorted(chosen.items()))] = _Rule(sub, chosen).read()
                return found
            except _Flag as unknown:
                flags = (*flags, unknown.name)
                if len(flags) > _MOST_FLAGS:
                    return None
    except (Unnatural, RecursionError):
        return None


class _Flag(Exception):
    """A flag on which the reading depends."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, slots=True)
class _Unknown:
    """An attribute of a rule, before an operator says what it is."""

    name: str


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A list of one number for every axis, before the operands say which axes there are."""

    name: str
    rule: _Env


@dataclass(frozen=True, slots=True)
class _Closure:
    """A function that an operator defines for itself."""

    syntax: t.Function
    env: _Env


@dataclass
class _Env:
    module: Module
    values: dict[str, Any] = field(default_factory=dict)
    #: whether this is an equation, and whether these are the names of the rule itself
    inside: bool = False
    rule: bool = False
    #: what iterators without a range of their own range over
    ranges: Mapping[str, t.Expr] = field(default_factory=dict)

    def child(self) -> _Env:
        return _Env(self.module, dict(self.values), self.inside, self.rule, self.ranges)


class _Rule:
    """One reading of a rule."""

    def __init__(self, sub: SubstitutionDef, flags: Mapping[str, bool]) -> None:
        self.sub, self.flags = sub, flags
        self.spaces = Spaces()
        self.named: dict[str, None] = {}
        self.needed: dict[Segments, None] = {}
        self.folds = False
        #: attributes, with the segments of the tensor along whose axes they are counted
        self.counted: list[tuple[Place | Places | Every, Segments]] = []
        terms = unknown_operators(sub)
        if terms is None:
            raise Unnatural("a term of which nothing is known")
        self.terms = terms

    def read(self) -> Reading:
        syntax = self.sub.syntax
        env = _Env(self.sub.module, rule=True)
        for param in syntax.params:
            if param.star or param.type is None or param.type.dims is None:
                raise Unnatural("a parameter without a type")
            env.values.setdefault(param.type.name, _NUMBER)
            env.values[param.name] = Tensor(self.declared(param.type.dims, env))
        guards: list[t.Expr] = []
        for statement in syntax.left:
            guards += statement.conditions if isinstance(statement, t.Where) else ()
            self.statement(statement, env)
        for guard in guards:
            self.guard(guard, env)
        left = [env.values[name] for name in syntax.outputs]
        inner = env.child()
        for statement in syntax.right:
            if isinstance(statement, t.Search):
                raise Unnatural("a parameter that is searched for")
            for condition in statement.conditions if isinstance(statement, t.Where) else ():
                self.guard(condition, inner)
            self.statement(statement, inner)
        for name, one in zip(syntax.outputs, left, strict=True):
            self.spaces.unify(self.segments(one), self.segments(inner.values[name]))
        packs = {each.name for value in env.values.values() if isinstance(value, Entries) for each in value.segments
                 if isinstance(each, Pack)}  # fmt: skip
        if len({self.spaces.root(name) for name in packs}) != 1:
            raise Unnatural("packs that do not go together")
        self.counts()
        needed = tuple(map(self.spaces.normal, self.needed))
        return Reading(self.spaces, frozenset(packs), tuple(self.named), needed, not (self.spaces.targets or self.folds))

    def counts(self) -> None:
        """Attributes are positions in lists of all axes, as many as those along which they are counted."""
        for value, front in self.counted:
            target = value.segments if isinstance(value, Every) else self.spaces.target(value)
            if not self.spaces.as_many(target, front):
                raise Unnatural("an attribute that names some of the axes only")

    def declared(self, dims: tuple[t.Expr, ...], env: _Env) -> Segments:
        """The segments of a type, whose names become known."""
        out: list[Any] = []
        for element in dims:
            inner = element.value if isinstance(element, t.Pack) else element
            if isinstance(element, t.Pack):
                if not isinstance(inner, t.Name):
                    raise Unnatural("a list of sizes that is computed")
                known = env.values.setdefault(inner.id, Entries((Pack(inner.id),), sizes=True))
                out += self.segments(known)
            else:
                for name in (node.id for node in walk_expr(inner) if isinstance(node, t.Name)):
                    env.values.setdefault(name, _NUMBER)
                for slot in inner.slots if isinstance(inner, t.TupleExpr) else (inner,):
                    self.number(self.value(slot, env))
                out.append(One())
        return tuple(out)

    def statement(self, statement: t.GraphStatement, env: _Env) -> None:
        if isinstance(statement, t.Where | t.TermDecl | t.Tags | t.Verify | t.Trusted):
            return
        if isinstance(statement, t.Bind) or (isinstance(statement, t.Let) and statement.target.places is None):
            value = self.value(statement.value, env)
            names = statement.names if isinstance(statement, t.Bind) else (statement.target.name,)
            values = value if isinstance(value, tuple) else (value,)
            if len(values) != len(names):
                raise Unnatural("results without names")
            env.values.update(zip(names, values, strict=True))
            return
        raise Unnatural("a statement that is not understood")

    # ---- guards ---------------------------------------------------------------------------------------------------

    def guard(self, condition: t.Expr, env: _Env) -> None:
        """What is asked must hold with fewer axes where it holds with all of them."""
        if isinstance(condition, t.Binary) and condition.op == "and":
            self.guard(condition.left, env)
            self.guard(condition.right, env)
            return
        if (listed := _not_empty(condition)) is not None:
            value = self.value(listed, env)
            if isinstance(value, Places):
                self.needed[value.segments] = None
            elif not isinstance(value, Every):
                raise Unnatural("how many axes there are")
            return
        if isinstance(condition, t.Compare) and condition.ops == ("==",):
            if self.defines(condition, env):
                return
            one, other = (self.value(operand, env) for operand in condition.operands)
            if isinstance(one, Count) and isinstance(other, Place):
                self.spaces.unify(one.segments, (Part(self.spaces.target(other), other.axis, -1),))
                return
            if isinstance(one, Count) and isinstance(other, Fixed):
                # the pack in front of the place was cut there
                if other.at < 0 or self.spaces.normal(one.segments) != _ONE * other.at:
                    raise Unnatural("how many axes there are")
                return
            if isinstance(one, Places | Every) and isinstance(other, Places | Every):
                self.equal_lists(one, other)
                return
            if isinstance(one, Entries) and isinstance(other, Entries):
                self.spaces.unify(one.segments, other.segments, equal_length=True)
                return
        found = self.value(condition, env)
        if not isinstance(found, Number | Truth | Entries) or (isinstance(found, Number) and found.folded):
            raise Unnatural("a guard that is not understood")

    def equal_lists(self, one: Places | Every, other: Places | Every) -> None:
        """Equal lists of positions in one list are lists of the same axes."""
        if isinstance(one, Every):
            one, other = other, one
        if isinstance(one, Every):
            raise Unnatural("how many axes there are")
        target = other.segments if isinstance(other, Every) else self.spaces.target(other)
        self.spaces.aim(one, target)
        self.spaces.declare_equal(one.segments, other.segments)

    def defines(self, condition: t.Compare, env: _Env) -> bool:
        """`c * prod(S) == 1` for a number c that stands in no other guard and in no type: at every rank there is such a c."""
        for product, other in (condition.operands, condition.operands[::-1]):
            if not (isinstance(product, t.Binary) and product.op == "*" and isinstance(product.left, t.Name)):
                continue
            name, folded = product.left.id, self.value(product.right, env)
            guards = [c for s in self.sub.syntax.left if isinstance(s, t.Where) for c in s.conditions]
            types = [param.type for param in self.sub.syntax.params]
            uses = sum(isinstance(node, t.Name) and node.id == name for node in walk_expr((tuple(guards), tuple(types))))
            free = isinstance(other, t.Int) and other.value == 1 and uses == 1 and env.module is self.sub.module
            if free and isinstance(folded, Number) and folded.folded:
                return True
        return False

    # ---- values ---------------------------------------------------------------------------------------------------

    def segments(self, value: Any) -> Segments:
        if isinstance(value, Number):
            return ()
        if not isinstance(value, Entries | Places | Every | Tensor):
            raise Unnatural("no list")
        return self.spaces.normal(value.segments)

    def number(self, value: Any) -> Number:
        if not isinstance(value, Number):
            raise Unnatural("a list, a position or a number of axes where a number is expected")
        return value

    def value(self, expr: Any, env: _Env) -> Any:
        """The kind of an expression."""
        known = getattr(self, f"_{type(expr).__name__.lower()}", None)
        if known is None:
            raise Unnatural(f"{type(expr).__name__}")
        return known(expr, env)

    def _int(self, expr: t.Int, env: _Env) -> Any:
        return _NUMBER

    _float = _inf = _str = _int

    def _name(self, expr: t.Name, env: _Env) -> Any:
        if expr.id in env.values:
            return env.values[expr.id]
        if expr.id in {"true", "false"}:
            return expr.id == "true"
        if expr.id in DTYPE_NAMES or expr.id in {"pi", "nan"}:
            return _NUMBER
        return _Unknown(expr.id)

    def _unary(self, expr: t.Unary, env: _Env) -> Any:
        value = self.value(expr.operand, env)
        if isinstance(value, bool) and expr.op == "not":
            return not value
        if isinstance(value, Entries) and expr.op == "-":
            return Entries(value.segments)
        return self.number(value)

    def _binary(self, expr: t.Binary, env: _Env) -> Any:
        values = [self.value(side, env) for side in (expr.left, expr.right)]
        if expr.op in {"and", "or"}:
            if expr.op == "and" and any(isinstance(value, Truth) for value in values):
                return Truth() if all(isinstance(value, Truth | Number) for value in values) else self.number(None)
            return self.together([_NUMBER if isinstance(value, bool) else self.number(value) for value in values])
        return self.together(values)

    def together(self, values: list[Any]) -> Number | Entries:
        """Numbers and lists, elementwise."""
        lists = [value for value in values if isinstance(value, Entries)]
        folded = any(self.number(value).folded for value in values if not isinstance(value, Entries))
        if not lists:
            return Number(folded)
        if folded:
            raise Unnatural("a product of sizes in a list")
        segments = self.segments(lists[0])
        for other in lists[1:]:
            segments = self.spaces.unify(segments, self.segments(other), equal_length=True)
        return Entries(segments)

    def _compare(self, expr: t.Compare, env: _Env) -> Any:
        values = [self.value(operand, env) for operand in expr.operands]
        if any(isinstance(value, Place) for value in values):
            if len(values) == 2:
                return self.placed(expr.ops[0], values[0], values[1])
            raise Unnatural("positions in a chain")
        values = [_NUMBER if isinstance(value, bool) else value for value in values]
        if set(expr.ops) & {"==", "!=", "in"} and sum(isinstance(value, Entries) for value in values) > 1:
            raise Unnatural("lists compared as a whole")
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
        if isinstance(one.target, str) and one.target not in self.spaces.targets:
            self.spaces.aim(one, self.spaces.target(other))
        self.spaces.aim(other, self.spaces.target(one))
        return _NUMBER

    def _conditional(self, expr: t.Conditional, env: _Env) -> Any:
        condition = self.value(expr.condition, env)
        if isinstance(condition, bool):
            return self.value(expr.then if condition else expr.otherwise, env)
        then, otherwise = self.value(expr.then, env), self.value(expr.otherwise, env)
        if isinstance(then, Tensor) and isinstance(otherwise, Tensor) and not self.number(condition).folded:
            return Tensor(self.spaces.unify(then.segments, otherwise.segments))
        return self.together([condition, then, otherwise])

    def _reduction(self, expr: t.Reduction, env: _Env) -> Any:
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

    def bind(self, binder: t.Binder, over: Any, env: _Env) -> Segments:
        """An iterator, or one for every size of a list; the segments that it makes up."""
        if not binder.star:
            self.number(over)
            env.values[binder.name] = _NUMBER
            return _ONE
        if not isinstance(over, Entries):
            raise Unnatural("an iterator over no list of sizes")
        env.values[binder.name] = Entries(over.segments)
        return over.segments

    def _listexpr(self, expr: t.ListExpr, env: _Env) -> Any:
        values: list[Any] = []
        for element in expr.elements:
            value = self.value(element.value if isinstance(element, t.Pack) else element, env)
            if isinstance(element, t.Pack) == isinstance(value, Number | Place):
                raise Unnatural("a list that is spliced")
            values.append(value)
        if values and all(isinstance(value, Place | Places) for value in values):
            return self.listed(values)
        out: list[Any] = []
        sizes = True
        for value, element in zip(values, expr.elements, strict=True):
            one = value if isinstance(value, Entries) else Entries(_ONE, isinstance(element, t.Int) and element.value == 1)
            if not isinstance(value, Entries | Number) or (isinstance(value, Number) and value.folded):
                raise Unnatural("a list of positions and numbers")
            out += one.segments
            sizes = sizes and one.sizes
        return Entries(tuple(out), sizes)

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

    def _subscript(self, expr: t.Subscript, env: _Env) -> Any:
        base = self.value(expr.base, env)
        if isinstance(base, Tensor):
            index: list[Any] = []
            for sub in expr.subs:
                if isinstance(sub, t.TupleExpr):
                    for slot in sub.slots:
                        self.number(self.value(slot, env))
                    index += _ONE
                    continue
                part = self.value(sub.value if isinstance(sub, t.Pack) else sub, env)
                if isinstance(sub, t.Pack) != isinstance(part, Entries):
                    raise Unnatural("an index that is not understood")
                index += part.segments if isinstance(part, Entries) else _ONE
                if not isinstance(part, Entries):
                    self.number(part)
            self.spaces.unify(tuple(index), base.segments, equal_length=True)
            if expr.other is not None:
                self.number(self.value(expr.other, env))
            return _NUMBER
        if len(expr.subs) != 1 or expr.other is not None:
            raise Unnatural("a list at several positions")
        at = self.value(expr.subs[0], env)
        if isinstance(at, Place) and isinstance(base, Entries | Places):
            self.spaces.aim(at, base.segments)
            return _NUMBER if isinstance(base, Entries) else Place(at.axis, base.target)
        fixed = isinstance(base, Entries) and all(isinstance(each, One) for each in base.segments)
        if not fixed or not isinstance(expr.subs[0], t.Int):
            raise Unnatural("an entry by its number")
        return _NUMBER

    def _nested(self, expr: t.Nested, env: _Env) -> Any:
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
        inner = env.child()
        inner.values[binder.name] = Place(_HERE, count.segments)
        value = self.value(scope.body, inner)
        if isinstance(value, Place) and value.axis == _HERE:
            return Places(count.segments, self.spaces.target(value))
        if self.number(value).folded:
            raise Unnatural("a product of sizes in a list")
        ones = isinstance(scope.body, t.Int) and scope.body.value == 1
        return Entries(count.segments, sizes=ones)

    # ---- calls ----------------------------------------------------------------------------------------------------

    def _call(self, expr: t.Call, env: _Env) -> Any:
        closure = env.values.get(expr.function)
        if isinstance(closure, _Closure):
            inner = closure.env.child()
            inner.inside = env.inside
            inner.values.update(zip(closure.syntax.params, [self.value(arg, env) for arg in expr.args], strict=True))
            return self.value(closure.syntax.body, inner)
        term = self.terms.get(expr.function) if env.module is self.sub.module else None
        found = term if term is not None else env.module.lookup(expr.function)
        if isinstance(found, FunctionDef):
            if expr.kwargs or expr.rest or len(expr.args) != len(found.syntax.params):
                raise Unnatural("a function with attributes")
            args = [self.value(arg, env) for arg in expr.args]
            return self.value(found.syntax.body, _Env(found.module, dict(zip(found.syntax.params, args, strict=True)), env.inside))
        if isinstance(found, UnknownFunction):
            return self.together([self.number(self.value(arg, env)) for arg in expr.args])
        if isinstance(found, OperatorDef):
            return self.operator(found, expr, env)
        if expr.function in PREDICATES:
            return _NUMBER
        if expr.kwargs or expr.rest or any(isinstance(arg, t.Pack) for arg in expr.args):
            raise Unnatural("a function with attributes")
        values = [self.value(arg, env) for arg in expr.args]
        meaning = getattr(self, f"f_{expr.function}", None)
        if meaning is not None:
            try:
                return meaning(*values)
            except TypeError:
                raise Unnatural(f"`{expr.function}` of this") from None
        if expr.function in FUNCTIONS_1 | {"ceildiv", CONVERT} or (expr.function in {"min", "max"} and len(values) > 1):
            return self.together(values)
        raise Unnatural(f"`{expr.function}`")

    def f_rank(self, value: Any) -> Count:
        return Count(self.segments(value))

    f_len = f_rank

    def f_take(self, values: Any, count: Any) -> Entries:
        """The entries in front, for as many axes as there are of some."""
        front, _ = self.halves(values, count)
        return Entries(front)

    def f_drop(self, values: Any, count: Any) -> Entries:
        _, back = self.halves(values, count)
        return Entries(back)

    def halves(self, values: Any, count: Any) -> tuple[Segments, Segments]:
        if not isinstance(count, Count) or not isinstance(values, Entries):
            raise Unnatural("a list that is cut at a number")
        segments, front = self.segments(values), self.spaces.normal(count.segments)
        if not front or segments[: len(front)] != front:
            raise Unnatural("a list that is cut elsewhere")
        return front, segments[len(front) :]

    def f_shape(self, value: Any) -> Entries:
        if not isinstance(value, Tensor):
            raise Unnatural("the shape of no tensor")
        return Entries(value.segments, sizes=True)

    def f_range(self, value: Any) -> Every:
        if not isinstance(value, Count):
            raise Unnatural("positions by their numbers")
        return Every(value.segments)

    def f_reversed(self, value: Any) -> Entries | Places:
        turned: Segments = (Reversed(self.segments(value)),)
        if isinstance(value, Every):
            return Places(turned, value.segments)
        if isinstance(value, Places):
            return Places(turned, value.target)
        if isinstance(value, Entries):
            return Entries(turned, value.sizes)
        raise Unnatural("no list")

    def f_all(self, value: Any) -> Truth:
        if not isinstance(value, Entries | Number | Truth):
            raise Unnatural("no list of conditions")
        return Truth()

    def f_prod(self, value: Any) -> Number:
        if not isinstance(value, Entries) or not value.sizes:
            raise Unnatural("a product of what is no size")
        self.folds = True
        return Number(folded=True)

    def f_broadcast(self, *values: Any) -> Entries:
        lists = [value for value in values if not (isinstance(value, Entries) and not self.segments(value))]
        if not lists:
            return Entries((), sizes=True)
        segments = self.segments(lists[0])
        for value in lists:
            if not isinstance(value, Entries):
                raise Unnatural("no list of sizes")
            segments = self.spaces.unify(segments, self.segments(value))
        return Entries(segments, all(value.sizes for value in lists))

    def f_fit(self, index: Any, shape: Any) -> Entries:
        if not isinstance(index, Entries) or not isinstance(shape, Entries):
            raise Unnatural("no lists")
        if not self.segments(shape):
            return Entries(())
        return Entries(self.spaces.unify(index.segments, shape.segments))

    def f_permute(self, values: Any, by: Any) -> Entries | Places:
        if isinstance(by, Entries) and isinstance(values, Entries):
            # of places that are no axes
            if all(isinstance(each, One) for each in (*self.segments(by), *self.segments(values))):
                return Entries(self.spaces.unify(by.segments, values.segments), values.sizes)
            raise Unnatural("a permutation by numbers")
        if isinstance(by, Every):
            return self.entries(values, by.segments)
        if not isinstance(by, Places):
            raise Unnatural("no permutation")
        values = self.entries(values, None)
        self.spaces.aim(by, self.segments(values), equal_length=True)
        return self.like(values, by.segments)

    def f_unpermute(self, values: Any, by: Any) -> Entries | Places:
        if isinstance(by, Entries):
            return self.f_permute(values, by)
        if isinstance(by, Every):
            return self.entries(values, by.segments)
        if not isinstance(by, Places):
            raise Unnatural("no permutation")
        values = self.entries(values, by.segments)
        self.spaces.unify(self.segments(values), by.segments, equal_length=True)
        return self.like(values, self.spaces.target(by))

    def entries(self, values: Any, segments: Segments | None) -> Entries | Places:
        """A list; that of all positions as a list of positions in itself, whichever of as many entries that is."""
        if isinstance(values, Every):
            own = values.segments
            if segments is not None and self.spaces.as_many(own, segments):
                own = segments
            return Places(own, own)
        if not isinstance(values, Entries | Places):
            raise Unnatural("no list")
        return values

    def like(self, values: Entries | Places, segments: Segments) -> Entries | Places:
        if isinstance(values, Places):
            return Places(segments, values.target)
        return Entries(segments, values.sizes)

    def f_only(self, values: Any, by: Any) -> Entries | Places:
        values = self.entries(values, None)
        by = self.entries(by, self.segments(values))
        if not isinstance(by, Places):
            raise Unnatural("no list of axes")
        self.spaces.aim(by, self.segments(values))
        return self.like(values, by.segments)

    def f_without(self, values: Any, by: Any) -> Entries | Places:
        values = self.entries(values, None)
        by = self.entries(by, self.segments(values))
        if not isinstance(by, Places):
            raise Unnatural("no list of axes")
        self.spaces.aim(by, self.segments(values))
        return self.like(values, (Rest(self.segments(values), by.segments),))

    def f_merge(self, rest: Any, chosen: Any, by: Any) -> Entries:
        by = self.entries(by, None)
        if not isinstance(by, Places) or not isinstance(rest, Entries):
            raise Unnatural("no list of axes")
        target = self.spaces.target(by)
        self.spaces.unify(rest.segments, (Rest(target, by.segments),))
        if isinstance(chosen, Entries):
            self.spaces.unify(chosen.segments, by.segments)
            return Entries(target, rest.sizes and chosen.sizes)
        if self.number(chosen).folded:
            raise Unnatural("a product of sizes in a list")
        return Entries(target)

    # ---- operators ------------------------------------------------------------------------------------------------

    def operator(self, op: OperatorDef, expr: t.Call, env: _Env) -> Any:
        values = []
        for arg in expr.args:
            value = self.value(arg, env)
            if isinstance(value, _Unknown) and isinstance(arg, t.Name) and env.rule:
                value = env.values[arg.id] = _NUMBER
            values.append(value)
        if env.inside:
            if expr.kwargs or expr.rest:
                raise Unnatural("an operator with attributes in an equation")
            if expr.function in FUNCTIONS_1 | {"min", "max"} or any(isinstance(value, Entries) for value in values):
                return self.together(values)
        operands = [value if isinstance(value, Tensor) else Tensor(()) if self.number(value) else None for value in values]
        attrs = self.attributes(op, expr, operands, env)
        found = self.applied(op, [each for each in operands if each is not None], attrs)
        if env.inside:
            if not isinstance(found, Tensor) or found.segments:
                raise Unnatural("a tensor within an equation")
            return _NUMBER
        return found

    def attributes(self, op: OperatorDef, expr: t.Call, operands: list[Tensor | None], env: _Env) -> dict[str, Any]:
        kinds = {attr.name: attr for attr in op.attrs}
        given: dict[str, tuple[str, Any]] = {}
        for keyword in expr.kwargs:
            if keyword.name not in kinds:
                raise Unnatural("an attribute that is not declared")
            self.meant(keyword.value, kinds[keyword.name], operands, env)
            at = _literal(keyword.value) if kinds[keyword.name].type.name == "axis" else None
            given[keyword.name] = ("", self.value(keyword.value, env) if at is None else Fixed(at))
        for name in kinds if expr.rest is not None else ():
            if name not in given:
                full = f"{expr.rest}.{name}"
                given[name] = (full, env.values.get(full, _Unknown(full)))
        out = {}
        for name, (full, value) in given.items():
            if isinstance(value, _Unknown):
                value = self.drawn(full or value.name, kinds[name], operands, env)
            out[name] = self.checked(kinds[name], value, operands)
        return out

    def meant(self, value: t.Expr, attr: t.Attr, operands: list[Tensor | None], env: _Env) -> None:
        """Binds the names in a list of axes that nothing has said yet."""
        if attr.type.name not in _LISTED or not isinstance(value, t.ListExpr):
            return
        for element in value.elements:
            inner = element.value if isinstance(element, t.Pack) else element
            if isinstance(inner, t.Name) and isinstance(self.value(inner, env), _Unknown):
                kind = replace(attr, type=replace(attr.type, name="axes" if isinstance(element, t.Pack) else "axis"))
                self.drawn(inner.id, kind, operands, env)

    def drawn(self, name: str, attr: t.Attr, operands: list[Tensor | None], env: _Env) -> Any:
        """The kind of an attribute that may have any value."""
        if not env.rule:
            raise Unnatural(f"`{name}` has no value")
        kind = attr.type.name
        value: Any = _NUMBER
        if attr.type.dims is not None:
            if kind in _LISTED or len(attr.type.dims) != 1:
                raise Unnatural("a list of lists")
            (count,) = attr.type.dims
            value = Entries(_ONE * count.value) if isinstance(count, t.Int) else _Drawn(name, env)
        elif kind == "axis":
            value = Place(name, name)
            self.named[name] = None
        elif kind in _LISTED:
            value = Places((Chosen(name, kind == "permutation"),), name)
        elif kind == "bool":
            if name not in self.flags:
                raise _Flag(name)
            value = self.flags[name]
        elif kind not in _SCALARS:
            raise Unnatural("a list of numbers of any length")
        env.values[name] = value
        return value

    def checked(self, attr: t.Attr, value: Any, operands: list[Tensor | None]) -> Any:
        kind = attr.type.name
        if attr.type.dims is not None:
            fits = isinstance(value, Entries | Number | _Drawn)
        elif kind == "axis" or kind in _LISTED:
            if not operands or operands[0] is None:
                raise Unnatural("axes of no tensor")
            front = self.segments(operands[0])
            if kind == "axis" and isinstance(value, Fixed):
                passed = front[: value.at + 1] if value.at >= 0 else front[value.at :]
                if -len(front) <= value.at < len(front) and all(isinstance(each, One) for each in passed):
                    return value
                raise Unnatural("an axis of a pack by its number")
            fixed = isinstance(value, Entries) and len(value.segments) == len(front)
            if kind == "permutation" and fixed and all(isinstance(each, One) for each in (*front, *value.segments)):
                return value
            fits = isinstance(value, Place) if kind == "axis" else isinstance(value, Places | Every)
            if fits:
                self.counted.append((value, front))
        elif kind == "bool":
            fits = isinstance(value, bool)
        else:
            fits = kind in _SCALARS and isinstance(value, Number)
        if not fits:
            raise Unnatural(f"`{attr.name}` is given another kind of value")
        return value

    def applied(self, op: OperatorDef, operands: list[Tensor], attrs: dict[str, Any]) -> Any:
        """The results of an operator."""
        params = op.syntax.params
        if len(operands) > len(params) == 2:
            total = operands[0]
            for other in operands[1:]:
                total = self.applied(op, [total, other], attrs)
            return total
        parts = next((name for name, value in attrs.items() if isinstance(value, Entries) and len(value.segments) > 2), None)
        if parts is not None and len(op.syntax.outputs) == 2:
            # an inverse takes what is left apart again
            count = len(attrs[parts].segments)
            first, rest = self.applied(op, operands, {**attrs, parts: Entries(_ONE * 2)})
            more = self.applied(op, [rest, *operands[1:]], {**attrs, parts: Entries(_ONE * (count - 1))})
            return (first, *more)
        if any(param.star for param in params) or len(operands) > len(params):
            raise Unnatural("any number of tensors")
        env = _Env(op.module, dict(attrs))
        conditions = [c for s in op.syntax.statements if isinstance(s, t.Where) for c in s.conditions]
        for param, operand in itertools.zip_longest(params, operands, fillvalue=None):
            assert param is not None
            if operand is None and param.default is None:
                raise Unnatural("a tensor is missing")
            operand = operand if operand is not None else Tensor(())
            env.values[param.name] = operand
            if param.type is not None:
                env.values.setdefault(param.type.name, _NUMBER)
                self.fitted(param.type.dims or (), self.segments(operand), conditions, env)
        env.ranges = _ranges(op)
        for attr in op.attrs:
            if attr.name not in env.values:
                if attr.default is None:
                    raise Unnatural("an attribute without a value")
                env.values[attr.name] = self.checked(attr, self.value(attr.default, env), list(operands))
            if attr.type.dims is not None:
                env.values[attr.name] = self.counted_list(attr, env.values[attr.name], env)
        self.bind_equal(conditions, env)
        for statement in op.syntax.statements:
            if isinstance(statement, t.Let | t.Equation):
                declared = next((output.type for output in op.syntax.outputs if output.name == statement.target.name), None)
                env.values[statement.target.name] = self.target(statement, declared, env)
            elif isinstance(statement, t.Function):
                env.values[statement.name] = _Closure(statement, env)
            elif not isinstance(statement, t.Attr | t.Where | t.OnnxMap | t.Example | t.Tags | t.Verify):
                raise Unnatural("a statement that is not understood")
        for condition in conditions:
            self.guard(condition, env)
        results = tuple(env.values.get(output.name) for output in op.syntax.outputs)
        if not all(isinstance(result, Tensor) for result in results):
            raise Unnatural("no tensor")
        return results if len(results) > 1 else results[0]

    def counted_list(self, attr: t.Attr, value: Any, env: _Env) -> Entries:
        """A list attribute with as many entries as its type says; a number stands for every one of them."""
        (count,) = attr.type.dims or ()
        twice = isinstance(count, t.Binary) and count.op == "*" and isinstance(count.left, t.Int) and count.left.value == 2
        if isinstance(count, t.Int):
            segments = _ONE * count.value
        else:
            number = self.value(count.right if twice and isinstance(count, t.Binary) else count, env)
            if not isinstance(number, Count):
                raise Unnatural("a list whose length is no number of axes")
            segments = number.segments * (2 if twice else 1)
        if isinstance(value, _Drawn):
            value.rule.values[value.name] = Entries(segments)
        elif isinstance(value, Entries):
            self.spaces.unify(value.segments, segments, equal_length=True)
        elif self.number(value).folded:
            raise Unnatural("a product of sizes in a list")
        return Entries(segments)

    def bind_equal(self, conditions: list[t.Expr], env: _Env) -> None:
        """`R == kernel` says what R is."""
        for condition in conditions:
            if isinstance(condition, t.Compare) and condition.ops == ("==",):
                name, other = condition.operands
                if isinstance(name, t.Name) and isinstance(self.value(name, env), _Unknown):
                    env.values[name.id] = self.value(other, env)

    def target(self, statement: t.Let | t.Equation, declared: t.TypeExpr | None, env: _Env) -> Any:
        """What a `let` or an equation gives."""
        dims = declared.dims if declared is not None else None
        places = statement.target.places
        if places is None:
            value = self.value(statement.value, env)
            if dims is not None:
                whole = self.value(t.ListExpr(dims, span=statement.span), env)
                self.spaces.unify(self.segments(value), self.segments(whole))
            return value
        if dims is not None and len(dims) != len(places):
            raise Unnatural("places that are not those of the type")
        inner = env.child()
        inner.inside = True
        out: list[Any] = []
        for k, place in enumerate(places):
            if isinstance(place, t.TuplePlace):
                for slot in place.places:
                    if slot.star:
                        raise Unnatural("a merged pack")
                    inner.values[slot.name] = _NUMBER
                out.append(One())
                continue
            over = dims[k] if dims is not None else place.range
            if over is None or (place.range is not None and dims is not None):
                raise Unnatural("an iterator without a range")
            if dims is not None and isinstance(over, t.Pack) != place.star:
                raise Unnatural("places that are not those of the type")
            out += self.bind(place, self.value(over.value if isinstance(over, t.Pack) else over, env), inner)
        self.number(self.value(statement.value, inner))
        return Tensor(tuple(out))

    def fitted(self, dims: tuple[t.Expr, ...], segments: Segments, conditions: list[t.Expr], env: _Env) -> None:
        """Binds the names of a type to the shape of an operand."""
        packs = [k for k, dim in enumerate(dims) if isinstance(dim, t.Pack)]
        for dim in dims:
            for name in (node.id for node in walk_expr(dim) if isinstance(node, t.Name) and not isinstance(dim, t.Pack)):
                self.number(env.values.setdefault(name, _NUMBER))
        if len(packs) == 2 and len(dims) == 3 and packs == [0, 2]:
            self.cut(dims, segments, conditions, env)
            return
        if len(packs) > 1:
            raise Unnatural("a type of several packs")
        before = packs[0] if packs else len(dims)
        after = len(dims) - before - 1 if packs else 0
        inside = segments[before : len(segments) - after]
        outside = segments[:before] + (segments[len(segments) - after :] if after else ())
        if len(segments) < before + after or not all(isinstance(each, One) for each in outside) or (not packs and inside):
            raise Unnatural("sizes that are not those of the type")
        for k in packs:
            self.packed(dims[k], inside, env)

    def cut(self, dims: tuple[t.Expr, ...], segments: Segments, conditions: list[t.Expr], env: _Env) -> None:
        """`[*L, A, *R]` where `rank(L) == axis`."""
        first = dims[0].value if isinstance(dims[0], t.Pack) else None
        for condition in conditions:
            if isinstance(condition, t.Compare) and condition.ops == ("==",) and isinstance(condition.operands[1], t.Name):
                count, axis = condition.operands[0], env.values.get(condition.operands[1].id)
                if not (isinstance(count, t.Call) and count.function == "rank" and count.args == (first,)):
                    continue
                if isinstance(axis, Fixed):
                    at = axis.at if axis.at >= 0 else len(segments) + axis.at
                    self.packed(dims[0], segments[:at], env)
                    self.packed(dims[2], segments[at + 1 :], env)
                    return
                if isinstance(axis, Place):
                    self.spaces.aim(axis, segments)
                    self.packed(dims[0], (Part(segments, axis.axis, -1),), env)
                    self.packed(dims[2], (Part(segments, axis.axis, 1),), env)
                    return
        raise Unnatural("nothing says where a pack ends")

    def packed(self, dim: t.Expr, segments: Segments, env: _Env) -> None:
        if not isinstance(dim, t.Pack) or not isinstance(dim.value, t.Name):
            raise Unnatural("a list of sizes that is computed")
        known = env.values.setdefault(dim.value.id, Entries(segments, sizes=True))
        self.spaces.unify(self.segments(known), segments, equal_length=True)


@lru_cache(maxsize=1024)
def _ranges(op: OperatorDef) -> Mapping[str, t.Expr]:
    """What the iterators of an operator range over by the places where they stand."""
    env = Env(op.module, Rules())
    declare(op, env)
    return env.ranges


def _literal(expr: t.Expr) -> int | None:
    """An integer that is written as one."""
    if isinstance(expr, t.Unary) and expr.op == "-" and isinstance(expr.operand, t.Int):
        return -expr.operand.value
    return expr.value if isinstance(expr, t.Int) else None


def _not_empty(condition: t.Expr) -> t.Expr | None:
    """The list a of `len(a) > 0 or rank(S) == 0`."""
    if not isinstance(condition, t.Binary) or condition.op != "or":
        return None
    some, none = condition.left, condition.right
    if not (isinstance(some, t.Compare) and isinstance(none, t.Compare) and (some.ops, none.ops) == ((">",), ("==",))):
        return None
    calls = [each.operands[0] for each in (some, none)]
    zeros = [each.operands[1] for each in (some, none)]
    if not all(isinstance(zero, t.Int) and zero.value == 0 for zero in zeros):
        return None
    count, rank = calls
    if isinstance(count, t.Call) and count.function == "len" and isinstance(rank, t.Call) and rank.function == "rank":
        return count.args[0] if len(count.args) == 1 else None
    return None
