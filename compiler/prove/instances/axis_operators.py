"""The kinds of what operators give: their types, attributes and equations. docs/proofs.md, "Ranks", Lemma 3."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from dslc.prove.instances.axis_sets import (
    LOOSE,
    AllAxes,
    AxisList,
    AxisSets,
    Chosen,
    Count,
    Entries,
    Fixed,
    Linear,
    NotRankPolymorphic,
    Number,
    One,
    Part,
    Place,
    Tensor,
    of_kind,
)
from dslc.prove.instances.axis_values import NUMBER, ONE, AxisEnv, Closure, Drawn, Unknown, Values
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.env import Env
from dslc.semantics.library import Rules
from dslc.semantics.operator_env import declare
from dslc.semantics.walk import conditions_in, names_in
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import FUNCTIONS_1

_LISTED = frozenset({"axes", "permutation"})
_SCALARS = frozenset({"int", "float", "string", "dtype"})


class UnknownFlag(Exception):
    """A flag on which the reading depends."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Operators(Values):
    """The kinds of the results of operators. What they raise is NotRankPolymorphic, or UnknownFlag."""

    flags: Mapping[str, bool]

    def __init__(self) -> None:
        super().__init__()
        #: the attributes that name one axis
        self.named: dict[str, None] = {}
        #: attributes, with the sets of the tensor along whose axes they are counted
        self.counted: list[tuple[Place | AxisList | AllAxes, AxisSets]] = []

    @abstractmethod
    def guard(self, condition: t.Expr, env: AxisEnv) -> None:
        """Looks at what is asked of arguments."""

    def operator(self, op: OperatorDef, expr: t.Call, env: AxisEnv) -> Any:
        values = []
        for arg in expr.args:
            value = self.value(arg, env)
            if isinstance(value, Unknown) and isinstance(arg, t.Name) and env.rule:
                value = env.values[arg.id] = NUMBER
            values.append(value)
        if env.inside:
            if expr.kwargs or expr.rest:
                raise NotRankPolymorphic  # an operator with attributes in an equation
            if expr.function in FUNCTIONS_1 | {"min", "max"} or any(isinstance(value, Entries) for value in values):
                return self.together(values)
        operands = [
            value if isinstance(value, Tensor) else Tensor(()) if self.number(value) else None for value in values
        ]
        attrs = self.attributes(op, expr, operands, env)
        found = self.applied(op, [each for each in operands if each], attrs)
        if env.inside:
            if not isinstance(found, Tensor) or found.sets:
                raise NotRankPolymorphic  # a tensor within an equation
            return NUMBER
        return found

    def attributes(self, op: OperatorDef, expr: t.Call, operands: list[Tensor | None], env: AxisEnv) -> dict[str, Any]:
        kinds = {attr.name: attr for attr in op.attrs}
        given: dict[str, tuple[str, Any]] = {}
        for keyword in expr.kwargs:
            if keyword.name not in kinds:
                raise NotRankPolymorphic  # an attribute that is not declared
            self.meant(keyword.value, kinds[keyword.name], env)
            at = _literal(keyword.value) if kinds[keyword.name].type.name == "axis" else None
            given[keyword.name] = ("", self.value(keyword.value, env) if at is None else Fixed(at))
        for name in kinds if expr.rest is not None else ():
            if name not in given:
                full = f"{expr.rest}.{name}"
                given[name] = (full, env.values.get(full, Unknown(full)))
        out = {}
        for name, (full, value) in given.items():
            if isinstance(value, Unknown):
                value = self.drawn(full or value.name, kinds[name], env)
            out[name] = self.checked(kinds[name], value, operands)
        return out

    def meant(self, value: t.Expr, attr: t.Attr, env: AxisEnv) -> None:
        """Binds the names in a list that nothing has said yet."""
        if not isinstance(value, t.ListExpr):
            return
        for element in value.elements:
            inner = element.value if isinstance(element, t.Pack) else element
            if isinstance(inner, t.Name) and isinstance(self.value(inner, env), Unknown):
                names = ("axes", "axis") if attr.type.name in _LISTED else ("ints", "int")
                kind = replace(attr.type, name=names[not isinstance(element, t.Pack)], dims=None)
                self.drawn(inner.id, replace(attr, type=kind), env)

    def drawn(self, name: str, attr: t.Attr, env: AxisEnv) -> Any:
        """The kind of an attribute that may have any value."""
        if not env.rule:
            raise NotRankPolymorphic  # `{name}` has no value
        kind = attr.type.name
        value: Any = NUMBER
        if attr.type.dims is not None:
            if kind in _LISTED or len(attr.type.dims) != 1:
                raise NotRankPolymorphic  # a list of lists
            (count,) = attr.type.dims
            value = Entries(ONE * count.value, given=True) if isinstance(count, t.Int) else Drawn(name, env)
        elif kind == "axis":
            value = Place(name, name)
            self.named[name] = None
        elif kind in _LISTED:
            value = AxisList((Chosen(name, kind == "permutation"),), name)
        elif kind == "bool":
            if name not in self.flags:
                raise UnknownFlag(name)
            value = self.flags[name]
        elif kind in {"ints", "floats"}:
            value = Entries(self.spaces.loosen(), given=True)
        elif kind not in _SCALARS:
            raise NotRankPolymorphic  # an attribute that is not understood
        env.values[name] = value
        return value

    def checked(self, attr: t.Attr, value: Any, operands: list[Tensor | None]) -> Any:
        kind = attr.type.name
        if attr.type.dims is not None:
            fits = isinstance(value, Entries | Number | Drawn)
        elif kind == "axis" or kind in _LISTED:
            if not operands or not operands[0]:
                raise NotRankPolymorphic  # axes of no tensor
            front = self.sets(operands[0])
            if kind == "axis" and isinstance(value, Fixed):
                passed = front[: value.at + 1] if value.at >= 0 else front[value.at :]
                if -len(front) <= value.at < len(front) and all(isinstance(each, One) for each in passed):
                    return value
                return Place(attr.name, self.spaces.loosen())
            if kind == "axis" and isinstance(value, Count | Linear):
                return Place(attr.name, self.spaces.loosen())
            fixed = isinstance(value, Entries) and len(value.sets) == len(front)
            if kind == "permutation" and fixed and all(isinstance(each, One) for each in (*front, *value.sets)):
                return value
            if kind != "axis" and not isinstance(value, AllAxes):
                value = self.positions(value, None)
            fits = isinstance(value, Place) if kind == "axis" else isinstance(value, AxisList | AllAxes)
            if fits:
                self.counted.append((value, front))
        elif kind == "bool":
            fits = isinstance(value, bool)
        elif kind in {"ints", "floats"}:
            fits = isinstance(value, Entries)
            value = replace(value, given=True) if fits else value
        else:
            fits = kind in _SCALARS and isinstance(value, Number)
        if not fits:
            raise NotRankPolymorphic  # `{attr.name}` is given another kind of value
        return value

    def applied(self, op: OperatorDef, operands: list[Tensor], attrs: dict[str, Any]) -> Any:
        """The results of an operator."""
        params = op.params
        if len(operands) > len(params) == 2:
            total = operands[0]
            for other in operands[1:]:
                total = self.applied(op, [total, other], attrs)
            return total
        parts = next(
            (name for name, value in attrs.items() if isinstance(value, Entries) and len(value.sets) > 2), None
        )
        if parts is not None and len(op.outputs) == 2:
            # an inverse takes what is left apart again
            count = len(attrs[parts].sets)
            first, rest = self.applied(op, operands, {**attrs, parts: Entries(ONE * 2)})
            more = self.applied(op, [rest, *operands[1:]], {**attrs, parts: Entries(ONE * (count - 1))})
            return (first, *more)
        if any(param.star for param in params) or len(operands) > len(params):
            raise NotRankPolymorphic  # any number of tensors
        env = AxisEnv(op.module, dict(attrs))
        conditions = conditions_in(op.statements)
        for param, operand in itertools.zip_longest(params, operands, fillvalue=None):
            assert param
            if operand is None and param.default is None:
                raise NotRankPolymorphic  # a tensor is missing
            operand = operand or Tensor(())
            env.values[param.name] = operand
            if param.type is not None:
                env.values.setdefault(param.type.name, NUMBER)
                self.fitted(param.type.dims or (), operand, conditions, env)
        env.ranges = _ranges(op)
        for attr in op.attrs:
            if attr.name not in env.values:
                if not attr.default:
                    raise NotRankPolymorphic  # an attribute without a value
                env.values[attr.name] = self.checked(attr, self.value(attr.default, env), list(operands))
            if attr.type.dims is not None:
                env.values[attr.name] = self.counted_list(attr, env.values[attr.name], env)
        self.bind_equal(conditions, env)
        for statement in op.statements:
            if isinstance(statement, t.Let | t.Equation):
                declared = next((output.type for output in op.outputs if output.name == statement.target.name), None)
                env.values[statement.target.name] = self.target(statement, declared, env)
            elif isinstance(statement, t.LetMany | t.EquationMany):
                env.values.update(zip(statement.names, self.results(statement, env), strict=True))
            elif isinstance(statement, t.Function):
                env.values[statement.name] = Closure(statement, env)
            elif not isinstance(statement, t.Attr | t.Where | t.OnnxMap | t.Example | t.Tags | t.Verify):
                raise NotRankPolymorphic  # a statement that is not understood
        for condition in conditions:
            self.guard(condition, env)
        results = tuple(env.values.get(output.name) for output in op.outputs)
        if not all(isinstance(result, Tensor) for result in results):
            raise NotRankPolymorphic  # no tensor
        return results if len(results) > 1 else results[0]

    def results(self, statement: t.LetMany | t.EquationMany | t.Bind, env: AxisEnv) -> tuple[Any, ...]:
        """The results of a call that have names."""
        value = self.value(statement.value, env)
        values = value if isinstance(value, tuple) else (value,)
        if len(values) != len(statement.names):
            raise NotRankPolymorphic  # results without names
        return values

    def counted_list(self, attr: t.Attr, value: Any, env: AxisEnv) -> Entries:
        """A list attribute with as many entries as its type says; a number stands for every one of them."""
        (count,) = attr.type.dims or ()
        twice = (
            isinstance(count, t.Binary) and count.op == "*" and isinstance(count.left, t.Int) and count.left.value == 2
        )
        if isinstance(count, t.Int):
            sets = ONE * count.value
        else:
            number = self.value(count.right if twice and isinstance(count, t.Binary) else count, env)
            sets = of_kind(Count, number).sets * (2 if twice else 1)
        if isinstance(value, Drawn):
            value.rule.values[value.name] = Entries(sets, given=True)
        elif isinstance(value, Entries):
            self.spaces.unify(value.sets, sets, equal_length=True)
        elif self.number(value).folded:
            self.spaces.loosen()
        return Entries(sets, given=True)

    def bind_equal(self, conditions: Sequence[t.Expr], env: AxisEnv) -> None:
        """`R == kernel` says what R is."""
        for condition in conditions:
            if condition.equated:
                name, other = condition.equated
                if isinstance(name, t.Name) and isinstance(self.value(name, env), Unknown):
                    env.values[name.id] = self.value(other, env)

    def target(self, statement: t.Let | t.Equation, declared: t.TypeExpr | None, env: AxisEnv) -> Any:
        """The value of a `let` or an equation."""
        dims = declared.dims if declared else None
        places = statement.target.places
        if places is None:
            value = self.value(statement.value, env)
            if dims is not None:
                whole = self.value(t.ListExpr(dims, span=statement.span), env)
                self.spaces.unify(self.sets(value), self.sets(whole))
            return value
        if dims is not None and len(dims) != len(places):
            raise NotRankPolymorphic  # places that are not those of the type
        inner = env.child()
        inner.inside = True
        out: list[Any] = []
        flat = True
        for k, place in enumerate(places):
            if isinstance(place, t.TuplePlace):
                for slot in place.places:
                    inner.values[slot.name] = Entries(self.spaces.loosen()) if slot.star else NUMBER
                out.append(One())
                continue
            over = dims[k] if dims is not None else place.range
            if over is None or (place.range is not None and dims is not None):
                raise NotRankPolymorphic  # an iterator without a range
            if dims is not None and isinstance(over, t.Pack) != place.star:
                raise NotRankPolymorphic  # places that are not those of the type
            sizes = self.value(over.value if isinstance(over, t.Pack) else over, env)
            out += self.bind(place, sizes, inner)
            flat = flat and (not isinstance(sizes, Entries) or self.flat(sizes))
        self.number(self.value(statement.value, inner))
        return Tensor(tuple(out), flat)

    def fitted(self, dims: tuple[t.Expr, ...], operand: Tensor, conditions: Sequence[t.Expr], env: AxisEnv) -> None:
        """Binds the names of a type to the shape of an operand."""
        sets = self.sets(operand)
        packs = [k for k, dim in enumerate(dims) if isinstance(dim, t.Pack)]
        for name in names_in(tuple(dim for dim in dims if not isinstance(dim, t.Pack))):
            self.number(env.values.setdefault(name, NUMBER))
        if len(packs) == 2 and len(dims) == 3 and packs == [0, 2] and self.cut(dims, sets, conditions, env):
            return
        before = packs[0] if packs else len(dims)
        after = len(dims) - before - 1 if packs else 0
        inside = sets[before : len(sets) - after]
        outside = sets[:before] + (sets[len(sets) - after :] if after else ())
        single = all(isinstance(each, One) for each in outside)
        if len(packs) > 1 or len(sets) < before + after or not single or (not packs and inside):
            inside = self.spaces.loosen()
        for k in packs:
            self.packed(dims[k], inside, env, operand.flat)

    def cut(self, dims: tuple[t.Expr, ...], sets: AxisSets, conditions: Sequence[t.Expr], env: AxisEnv) -> bool:
        """`[*L, A, *R]` where `rank(L) == axis`: whether a guard says so."""
        first = dims[0].value if isinstance(dims[0], t.Pack) else None
        for condition in conditions:
            if condition.equated and isinstance(condition.equated[1], t.Name):
                count, axis = condition.equated[0], env.values.get(condition.equated[1].id)
                if not (isinstance(count, t.Call) and count.function == "rank" and count.args == (first,)):
                    continue
                if isinstance(axis, Fixed):
                    at = axis.at if axis.at >= 0 else len(sets) + axis.at
                    self.packed(dims[0], sets[:at], env)
                    self.packed(dims[2], sets[at + 1 :], env)
                    return True
                if isinstance(axis, Place) and axis.target != LOOSE:
                    self.spaces.aim(axis, sets)
                    self.packed(dims[0], (Part(sets, axis.axis, -1),), env)
                    self.packed(dims[2], (Part(sets, axis.axis, 1),), env)
                    return True
        return False

    def packed(self, dim: t.Expr, sets: AxisSets, env: AxisEnv, flat: bool = False) -> None:
        if not isinstance(dim, t.Pack) or not isinstance(dim.value, t.Name):
            raise NotRankPolymorphic  # a list of sizes that is computed
        known = env.values.setdefault(dim.value.id, Entries(sets, True, flat))
        self.spaces.unify(self.sets(known), sets, equal_length=True)


@lru_cache(maxsize=1024)
def _ranges(op: OperatorDef) -> Mapping[str, t.Expr]:
    """Ranges of the iterators of an operator, by the places where they stand."""
    env = Env(op.module, Rules())
    declare(op, env)
    return env.ranges


def _literal(expr: t.Expr) -> int | None:
    """An integer that is written as one."""
    if isinstance(expr, t.Unary) and expr.op == "-" and isinstance(expr.operand, t.Int):
        return -expr.operand.value
    return expr.value if isinstance(expr, t.Int) else None
