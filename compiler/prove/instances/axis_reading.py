"""Abstract interpretation of a rule, and of all that it uses, over opaque axes. docs/proofs.md, "Ranks", Lemmas 1 and 3.

Every expression is given a kind: a number, a list with an entry for every axis of some sets, a list of positions in such a list, a
position, a number of axes. What is allowed is listed; any other question is `NotRankPolymorphic`, and nothing is concluded about
other ranks.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import Any

from dslc.ir.dtype import DTYPES
from dslc.prove.instances.axis_operators import Operators, UnknownFlag
from dslc.prove.instances.axis_sets import (
    AllAxes,
    AxisList,
    AxisSets,
    Count,
    Entries,
    Fixed,
    Linear,
    NotRankPolymorphic,
    Number,
    One,
    Pack,
    Part,
    Place,
    Spaces,
    Tensor,
    Truth,
)
from dslc.prove.instances.axis_values import NUMBER, ONE, AxisEnv
from dslc.prove.instances.batches import broadcast_guards, padded
from dslc.prove.terms import unknown_operators
from dslc.records import record
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.walk import conditions_in, names_in, nodes
from dslc.syntax import tree as t

MOST_FLAGS = 4  #: booleans whose values are tried in every combination


@record
class AxesReading:
    """Demands of a rule on axes, for some values of its flags.

    `packs` go together axis by axis. `named`: attributes that name one axis; `needed`: lists of axes that must keep one; `alike`: no
    attribute tells axes apart, and no product of sizes occurs; `padded`: packs that are looked at in their longest shape.
    `natural`: it is known of every list for which axes its entries are; else no more is said than that all axes are treated alike.
    `shown`: some are picked or permuted; `apart`: it matters which position an axis has; `ranked`: a guard is about ranks.
    """

    spaces: Spaces
    packs: frozenset[str]
    named: tuple[str, ...]
    needed: tuple[AxisSets, ...]
    alike: bool
    padded: frozenset[str]
    natural: bool
    shown: bool
    apart: bool
    ranked: bool


#: for all values of a rule's flags
Readings = Mapping[tuple[tuple[str, bool], ...], AxesReading]


def natural(sub: SubstitutionDef) -> Readings | None:
    """Demands of a rule on axes, for all values of its flags; None where it is not natural."""
    found = _readings(sub)
    return found if found is not None and all(each.natural for each in found.values()) else None


def sufficient_rank(sub: SubstitutionDef) -> int | None:
    """The rank at which a pack shows how the rule treats it at any rank; None where no such rank is known.

    1 where every function on lists treats each axis by itself and keeps their order; 2 where axes are also picked by attributes, and
    lists of sizes or positions permuted, ravelled and unravelled, but no axis is treated by its number and no value depends on
    a rank.
    """
    found = _readings(sub)
    if found is None or any(each.apart for each in found.values()):
        return None
    return 2 if any(each.shown for each in found.values()) else 1


def excludes_ranks(sub: SubstitutionDef) -> bool:
    """Return whether guards may let some ranks in and keep smaller ones out, in the rule or in what it uses."""
    found = _readings(sub)
    return found is None or any(each.ranked or each.apart for each in found.values())


@functools.lru_cache(maxsize=64)
def _readings(sub: SubstitutionDef) -> Readings | None:
    flags: tuple[str, ...] = ()
    try:
        while True:
            found = {}
            try:
                for values in itertools.product((False, True), repeat=len(flags)):
                    chosen = dict(zip(flags, values, strict=True))
                    found[tuple(sorted(chosen.items()))] = _Rule(sub, chosen).read()
                return found
            except UnknownFlag as unknown:
                flags = (*flags, unknown.name)
                if len(flags) > MOST_FLAGS:
                    return None
    except (NotRankPolymorphic, RecursionError):
        return None


class _Rule(Operators):
    """One reading of a rule."""

    def __init__(self, sub: SubstitutionDef, flags: Mapping[str, bool]) -> None:
        super().__init__()
        self.sub, self.flags = sub, flags
        self.needed: dict[AxisSets, None] = {}
        self.ranked = False
        terms = unknown_operators(sub)
        if terms is None:
            raise NotRankPolymorphic  # a term of which nothing is known
        self.terms = terms
        self.longest = _longest(sub)

    def read(self) -> AxesReading:
        syntax = self.sub.syntax
        env = AxisEnv(self.sub.module, rule=True)
        for param in syntax.params:
            if param.star or param.type is None or param.type.dims is None:
                raise NotRankPolymorphic  # a parameter without a type
            env.values.setdefault(param.type.name, NUMBER)
            if not self.longest.keys() & names_in(param.type.dims):
                env.values[param.name] = Tensor(self.declared(param.type.dims, env))
        self.broadcasting(env)
        for statement in syntax.left:
            self.statement(statement, env)
        for guard in conditions_in(syntax.left):
            self.guard(guard, env)
        left = [env.values[name] for name in syntax.outputs]
        inner = env.child()
        for statement in syntax.right:
            if isinstance(statement, t.Search):
                self.value(statement.domain, inner)
                self.spaces.loosen()
                inner.values[statement.name] = NUMBER
                continue
            for condition in statement.conditions if isinstance(statement, t.Where) else ():
                self.guard(condition, inner)
            self.statement(statement, inner)
        for name, one in zip(syntax.outputs, left, strict=True):
            self.spaces.unify(self.sets(one), self.sets(inner.values[name]))
        packs = {each.name for value in env.values.values() if isinstance(value, Entries) for each in value.sets
                 if isinstance(each, Pack)}  # fmt: skip
        if len({self.spaces.root(name) for name in packs}) != 1:
            self.spaces.loosen()
        self.counts()
        needed = tuple(map(self.spaces.normal, self.needed))
        alike = not (self.spaces.targets or self.folds)
        return AxesReading(
            self.spaces, frozenset(packs), tuple(self.named), needed, alike, frozenset(self.longest), self.spaces.exact, self.shown,
            self.apart, self.ranked,
        )  # fmt: skip

    def broadcasting(self, env: AxisEnv) -> None:
        """Packs that broadcast to a list are looked at as long as it is (Lemma 2), each size as it is there, or 1."""
        for pack, target in self.longest.items():
            try:
                found = self.value(target, env)
            except NotRankPolymorphic:
                # of what the left side computes nothing is known yet
                found = None
            if not isinstance(found, Entries) or not self.flat(found):
                found = Entries(self.spaces.loosen())
            own = env.values[pack] = Entries(self.sets(found), True, self.flat(found))
            for param in self.sub.params:
                if param.type and pack in names_in(param.type):
                    env.values[param.name] = Tensor(own.sets, own.flat)

    def counts(self) -> None:
        """Attributes are positions in lists of all axes, as many as those along which they are counted."""
        for value, front in self.counted:
            target = value.sets if isinstance(value, AllAxes) else self.spaces.target(value)
            if not self.spaces.as_many(target, front):
                # it names some of the axes only
                self.spaces.loosen()

    def declared(self, dims: tuple[t.Expr, ...], env: AxisEnv) -> AxisSets:
        """The sets of a type, whose names become known."""
        out: list[Any] = []
        for element in dims:
            inner = element.value if isinstance(element, t.Pack) else element
            if isinstance(element, t.Pack):
                if not isinstance(inner, t.Name):
                    raise NotRankPolymorphic  # a list of sizes that is computed
                known = env.values.setdefault(inner.id, Entries((Pack(inner.id),), sizes=True))
                out += self.sets(known)
            else:
                for name in names_in(inner):
                    env.values.setdefault(name, NUMBER)
                for slot in inner.slots if isinstance(inner, t.TupleExpr) else (inner,):
                    self.number(self.value(slot, env))
                out.append(One())
        return tuple(out)

    def statement(self, statement: t.GraphStatement, env: AxisEnv) -> None:
        if isinstance(statement, t.Where | t.TermDecl | t.Tags | t.Verify | t.Trusted):
            return
        if isinstance(statement, t.Bind | t.LetMany | t.Let):
            if isinstance(statement, t.Bind | t.LetMany):
                env.values.update(zip(statement.names, self.results(statement, env), strict=True))
            else:
                env.values[statement.target.name] = self.target(statement, None, env)
            return
        raise NotRankPolymorphic  # a statement that is not understood

    # ---- guards ---------------------------------------------------------------------------------------------------

    def guard(self, condition: t.Expr, env: AxisEnv) -> None:
        """Looks at what is asked of ranks and lists."""
        if isinstance(condition, t.Binary) and condition.op == "and":
            self.guard(condition.left, env)
            self.guard(condition.right, env)
            return
        counted = any(node.function in {"rank", "len"} for node in nodes(t.Call, condition))
        self.ranked = self.ranked or (counted and not condition.equated)
        if _of_types(condition):
            return
        try:
            self.natural_guard(condition, env)
        except NotRankPolymorphic:
            self.spaces.loosen()
            self.guarding = True
            self.alike_guard(condition, env)
            self.guarding = False

    def alike_guard(self, condition: t.Expr, env: AxisEnv) -> None:
        """A guard about ranks and axes is about nothing else, or linear, or says that a list is that of all axes.

        So it decides which ranks occur, or is another condition at every rank, and then no smaller instance stands for it.
        """
        equal = bool(condition.equated)
        if self.of_ranks(condition, env):
            self.ranked = self.ranked or not equal
            return
        if isinstance(condition, t.Compare):
            values = [self.value(operand, env) for operand in condition.operands]
            if all(isinstance(value, Number | Count | Linear | Place | Fixed) for value in values):
                counted = not all(isinstance(value, Number) for value in values)
                self.ranked = self.ranked or (counted and not equal)
                others = any(isinstance(value, Number) and not isinstance(operand, t.Int)
                             for value, operand in zip(values, condition.operands, strict=True))  # fmt: skip
                if equal and counted and others:
                    raise NotRankPolymorphic  # a number that takes a rank or a position with it
                return
            if (
                equal
                and any(isinstance(value, AllAxes) for value in values)
                and all(isinstance(v, AllAxes | AxisList) for v in values)
            ):
                self.shown = True
                return
            if equal and all(isinstance(value, Entries | Number) for value in values):
                return
        if not isinstance(self.value(condition, env), Number | Truth | Entries):
            raise NotRankPolymorphic  # a guard that is not understood

    def of_ranks(self, expr: Any, env: AxisEnv) -> bool:
        """Return whether ranks and the numbers of axes are all that an expression depends on."""
        if isinstance(expr, t.Binary):
            return self.of_ranks(expr.left, env) and self.of_ranks(expr.right, env)
        if isinstance(expr, t.Unary):
            return self.of_ranks(expr.operand, env)
        if isinstance(expr, t.Compare):
            return all(self.of_ranks(operand, env) for operand in expr.operands)
        if isinstance(expr, t.Call) and expr.function in {"min", "max"}:
            return all(self.of_ranks(arg, env) for arg in expr.args)
        if not isinstance(expr, t.Int | t.Name | t.Call):
            return False
        return isinstance(expr, t.Int) or isinstance(self.value(expr, env), Count | Linear | Place | AxisList | Fixed)

    def natural_guard(self, condition: t.Expr, env: AxisEnv) -> None:
        """Look at a condition that must hold with fewer axes where it holds with all of them."""
        if counted := _some(condition):
            value = self.value(counted, env)
            if isinstance(value, Count):
                self.needed[value.sets] = None
                return
        if listed := _not_empty(condition):
            value = self.value(listed, env)
            if isinstance(value, AxisList):
                self.needed[value.sets] = None
            elif not isinstance(value, AllAxes):
                raise NotRankPolymorphic  # how many axes there are
            return
        if condition.equated:
            if self.defines(condition, env):
                return
            one, other = (self.value(operand, env) for operand in condition.equated)
            if isinstance(one, Count) and isinstance(other, Place):
                self.spaces.unify(one.sets, (Part(self.spaces.target(other), other.axis, -1),))
                return
            if isinstance(one, Count) and isinstance(other, Fixed):
                # the pack in front of the place was cut there
                if other.at < 0 or self.spaces.normal(one.sets) != ONE * other.at:
                    raise NotRankPolymorphic  # how many axes there are
                return
            if isinstance(one, AxisList | AllAxes) and isinstance(other, AxisList | AllAxes):
                # equal lists of positions in one list are lists of the same axes
                if isinstance(one, AllAxes):
                    one, other = other, one
                if isinstance(one, AllAxes):
                    raise NotRankPolymorphic  # how many axes there are
                self.spaces.aim(one, other.sets if isinstance(other, AllAxes) else self.spaces.target(other))
                self.spaces.declare_equal(one.sets, other.sets)
                return
            if isinstance(one, Entries) and isinstance(other, Entries):
                self.spaces.unify(one.sets, other.sets, equal_length=True)
                return
        found = self.value(condition, env)
        if not isinstance(found, Number | Truth | Entries) or (isinstance(found, Number) and found.folded):
            raise NotRankPolymorphic  # a guard that is not understood

    def defines(self, condition: t.Expr, env: AxisEnv) -> bool:
        """`c * prod(S) == 1` for a number c that stands in no other guard and in no type: at every rank there is such a c."""
        for product, other in (condition.equated, condition.equated[::-1]):
            if not (isinstance(product, t.Binary) and product.op == "*" and isinstance(product.left, t.Name)):
                continue
            name, folded = product.left.id, self.value(product.right, env)
            syntax = self.sub.syntax
            every = t.walk((conditions_in(syntax.left), tuple(param.type for param in syntax.params)))
            uses = sum(node.bare == name for node in every)
            free = isinstance(other, t.Int) and other.value == 1 and uses == 1 and env.module is self.sub.module
            if free and isinstance(folded, Number) and folded.folded:
                return True
        return False


def _longest(sub: SubstitutionDef) -> dict[str, t.Expr]:
    """The packs of which a guard says what they broadcast to, and of which nothing else is asked; with that list."""
    only = padded(sub)
    return {
        arg.bare: target
        for call, target in broadcast_guards(conditions_in(sub.left))
        if target in call.args and len(call.args) == 2
        for arg in call.args
        if arg.bare in only
    }


def _of_types(condition: t.Expr) -> bool:
    """`T in [f32, f64]`, `T != bool`: what is asked of an element type is asked at every rank."""
    if (
        not isinstance(condition, t.Compare)
        or len(condition.operands) != 2
        or not isinstance(condition.operands[0], t.Name)
    ):
        return False
    other = condition.operands[1]
    named = other.elements if isinstance(other, t.ListExpr) else (other,)
    return bool(named) and all(each.bare in DTYPES for each in named)


def _some(condition: t.Expr) -> t.Expr | None:
    """`rank(S)` of `rank(S) > 0` and `rank(S) >= 1`: it must keep an axis."""
    if not isinstance(condition, t.Compare) or len(condition.ops) != 1 or not isinstance(condition.operands[1], t.Int):
        return None
    count, least = condition.operands[0], condition.operands[1].value
    asks = (condition.ops[0], least) in {(">", 0), (">=", 1)}
    return count if asks and isinstance(count, t.Call) and count.function in {"rank", "len"} else None


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
