"""Values of the names of a rule in a case: unknown sizes, unknown or enumerated attributes, ranks, unknown functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import permutations
from typing import Any

from dslc.interpret.draft import Draft as Names
from dslc.interpret.draft import NamePlace, entry_count, operator_hints, partly_bound
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Value, input_value
from dslc.ir.scalar import apply, as_scalar, dimension, sym
from dslc.prove.instances.batches import broadcast_guards
from dslc.prove.instances.cases import AssumedCase, Path, Restart
from dslc.prove.instances.choice import Choice, shifts, step
from dslc.semantics.definitions import OperatorDef, SubstitutionDef
from dslc.semantics.env import Mismatch, MismatchKind, Unbound, Undecided
from dslc.semantics.evaluate import evaluate
from dslc.semantics.lists import plain
from dslc.semantics.types import shape_of, solve
from dslc.semantics.values import texts, values
from dslc.semantics.walk import nodes
from dslc.syntax import tree as t

ROWS = 250  #: cases of numbers that are taken with all values of the others
MOST_LISTED = 3  #: the longest list that is looked at where nothing says how many entries an attribute has
#: how many values one number, and each of several, is looked at for (a prime: see `Draft.among`)
MOST_VALUES = {"real": (13, 7), "number": (11, 5), "size": (7, 5)}


@dataclass(kw_only=True)
class Draft(Names):
    """Names along a path of choices: unknown where that is enough."""

    path: Path
    assumed: AssumedCase
    choice: Choice
    #: whether an attribute was enumerated, or has as many entries, as a rank says
    listed: bool = False
    mixing: bool = False
    #: how many entries lists of any length have in this case
    lengths: dict[str, int] = field(default_factory=dict)
    #: the names that stand in the rule
    taken: set[str]
    #: the guards that hold by now, by their positions
    held: set[int] = field(default_factory=set)
    #: names without which a guard, by its position, has no value and binds nothing
    missing: dict[int, tuple[str, ...]] = field(default_factory=dict)
    #: the values that numbers of each kind have, by their places in the table
    columns: dict[tuple[str, str], int] = field(default_factory=dict)
    numbers: list[tuple[str, Any]] = field(default_factory=list)
    #: how many values those of each kind have that are taken with all values of the others
    widths: dict[str, list[int]] = field(default_factory=dict)
    #: the calls of the left side that were applied before all tensors were known, by their positions
    applied: set[int] = field(default_factory=set)
    early: tuple[tuple[t.Call, frozenset[str], str | None], ...]

    def entry_name(self, name: str, at: int) -> str:
        """The name of an entry of a list, which is no name that the rule has for something else."""
        full = f"{name}{at}"
        while full in self.taken:
            full += "_"
        return full

    # ---- unknowns -------------------------------------------------------------------------------------------

    def size(self, name: str) -> Any:
        if self.choice.level == "sizes":
            return self.among("size", name, values("size", near=self.choice.near, hints=self.text.hints.get(name, ())))
        return plain(self.path.value(dimension(name)))

    def integer(self, name: str, at: int | None = None, hints: Sequence[tuple[str, int]] = ()) -> Any:
        """An integer, entry `at` of a list: along a list numbers of steps differ. `hints`: what guards say of it."""
        if name in self.choice.steps:
            self.choice.turning = self.choice.turning or bool(at)
            positive = any(relation in {">", ">="} and bound + (relation == ">") > 0 for relation, bound in hints)
            if not positive and name not in self.choice.signed:
                self.choice.signed.add(name)
                raise Restart
            place = sorted(self.choice.steps).index(name) + (at or 0)
            return step(self.path.pick("steps", shifts(self.choice)), place, name in self.choice.signed)
        full = name if at is None else self.entry_name(name, at)
        if self.choice.level in {"attributes", "sizes"}:
            return self.among("number", full, values("int", near=self.choice.near, hints=hints), name)
        self.assumed.integers[full] = name
        return plain(self.path.value(sym(full)))

    def among(self, kind: str, full: str, options: Sequence[Any], name: str = "") -> Any:
        """A number out of some: the first two of a kind take all their values together, each later pair does, but not all of them.

        Where sizes are unknown more than two take all their values together, as long as that gives few cases: guards may leave few.
        With n values, n a prime, the k-th one takes that of the place x + k * y modulo n, where x and y are those of the first two: so
        two of them take every pair of values along the paths.
        """
        if len(options) == 1:
            # what a guard fixes goes with all values of the others
            self.numbers.append((name or full, options[0]))
            return options[0]
        alone, several = MOST_VALUES[kind]
        options = options[: several if self.choice.together.get(kind, 0) > 1 else alone]
        before = [place for (each, _), place in self.columns.items() if each == kind]
        if (kind, full) not in self.columns:
            if len(before) > self.choice.together.get(kind, 0) - 1:
                self.choice.together[kind] = len(before) + 1
                if len(before) == 1:
                    raise Restart
            rows = math.prod(self.widths.get(kind, ())) * len(options)
            if len(before) > 1 and (rows > ROWS or self.choice.level != "attributes"):
                at = (before[0] + (len(before) - 1) * before[1]) % len(options)
            else:
                at = self.path.pick((kind, full), range(len(options)))
                self.widths.setdefault(kind, []).append(len(options))
            self.columns[kind, full] = at
        found = options[self.columns[kind, full] % len(options)]
        self.numbers.append((name or full, found))
        return found

    def real(self, name: str, at: int | None = None) -> Any:
        full = name if at is None else self.entry_name(name, at)
        if name in self.choice.reals:
            return self.among("real", full, values("float", near=self.choice.near), name)
        unknown = sym(full)
        self.assumed.reals[unknown] = name
        return plain(self.path.value(unknown))

    def entries(self) -> frozenset[str]:
        """The unknowns that are entries of lists."""
        drawn = (*self.assumed.integers.items(), *((str(one.name), name) for one, name in self.assumed.reals.items()))
        return frozenset(full for full, name in drawn if full != name)

    def bind(self, name: str, value: Any) -> None:
        if isinstance(value, tuple):
            self.env.ranks.setdefault(name, len(value))
        super().bind(name, value)

    def searched(self, name: str, domain: Any) -> Any:
        return self.path.pick(("search", name), domain)

    def tensor(self, param: t.Param, type: TensorType) -> Value:
        return input_value(param.name, type)

    def typed(self, name: str, type: t.TypeExpr) -> None:
        """Apply operators whose operands are known, so that ranks that do not fit end a path before more is chosen."""
        self.env.bind(name, input_value(name, shape_of(type, self.env)))
        for place, (call, operands, result) in enumerate(self.early):
            if place not in self.applied and all(map(self.env.has, operands)):
                self.applied.add(place)
                value = self.needing(self.env, call)
                if result is not None:
                    self.env.bind(result, value)
                    self.solve_conditions()

    def refused(self, reason: str) -> Exception:
        return Undecided(reason)

    def solve_conditions(self) -> None:
        """Binds what an equation among the guards determines, and assumes the guards that have a value by now."""
        for place, condition in enumerate(self.text.conditions):
            names = self.missing.get(place)
            if place in self.held or (names and not any(map(self.env.has, names))):
                continue
            self._broadcasts(condition)
            try:
                solve((), (condition,), self.env)
            except Undecided:
                raise
            except Mismatch as problem:
                if problem.kind is not MismatchKind.UNBOUND:
                    raise
                self.missing[place] = self._unbound(condition)
                continue
            self.held.add(place)

    def _unbound(self, condition: t.Expr) -> tuple[str, ...]:
        """The first name without a value on each side of an equation, or in another guard; none where more is in the way."""
        found = []
        for part in condition.equated or (condition,):
            try:
                evaluate(part, self.env)
            except Unbound as unknown:
                # `a.b` is an attribute of what `a` stands for
                found.append(unknown.name.partition(".")[0])
            except Mismatch:
                return ()
        return tuple(found)

    def _broadcasts(self, condition: t.Expr) -> None:
        """`broadcast(Q, L) == L`: every size of Q is the one of L or 1 (that one of L is 1 is no case of its own)."""
        for call, other in broadcast_guards((condition,)):
            try:
                target, lists = evaluate(other, self.env), [evaluate(arg, self.env) for arg in call.args]
            except Unbound:
                return
            for arg, each in zip(call.args, lists, strict=True) if target in lists else ():
                if arg.bare in self.choice.padded and len(each) < len(target):
                    raise Mismatch("the same with leading axes of size 1 is looked at")
                if len(each) > len(target):
                    raise Mismatch("more axes than the shape to broadcast to")
                for size, wanted in zip(reversed(each), reversed(target), strict=False):
                    one = as_scalar(size)
                    self.assumed.one_of((apply("==", one, as_scalar(wanted)), apply("==", one, as_scalar(1))))

    def _fitting(self, name: str) -> int | None:
        """The rank of a pack that a guard lets broadcast to a shape: shorter ones are the same, longer ones never fit."""
        for call, other in broadcast_guards(self.text.conditions):
            others = [arg for arg in call.args if arg.bare != name]
            if len(others) < len(call.args):
                try:
                    target = evaluate(other, self.env)
                    if any(evaluate(arg, self.env) == target for arg in others):
                        return len(target)
                except Unbound:
                    continue
        return None

    # ---- sizes ---------------------------------------------------------------------------------------------

    def pack(self, name: str) -> tuple[Any, ...]:
        rank = self.env.ranks.get(name)
        if rank is None:
            most = self.choice.most_rank.get(name, 2)
            fitting = self._fitting(name) if name in self.choice.padded else None
            ranks = range(most + 1) if fitting is None else range(fitting, min(fitting, most) + 1)
            rank = self.path.pick(("rank", name), tuple(ranks))
        return tuple(self.size(self.entry_name(name, k)) for k in range(rank))

    def dtype(self, name: str) -> DType:
        return self.choice.types.get(name, self.choice.dtype)

    # ---- attributes ------------------------------------------------------------------------------------------

    def entry(self, name: str, op: OperatorDef, attr: t.Attr, args: list[Value], place: NamePlace) -> Any:
        if attr.type.name in {"axes", "permutation"}:
            rank = args[0].type.rank if args else 0
            self.listed = self.mixing = True
            if not place.starred:
                return self.path.pick(("axis", name), tuple(range(rank)))
            lists = [p for n in range(rank - place.siblings + 1) for p in permutations(range(rank), n)]
            return self.path.pick(("axes", name), lists)
        hints = tuple(operator_hints(op).get(attr.name, ()))
        if not place.starred:
            return self.integer(name, hints=hints)
        self.listed = True
        count = entry_count(op, attr, args, partly_bound(op, args, self.env), place.results)
        entries = self._length(name, attr) if count is None else max(0, count - place.siblings)
        return tuple(self.integer(name, k, hints) for k in range(entries))

    def _length(self, name: str, attr: t.Attr) -> int:
        """The number of entries of a list of which nothing says it; as many as are declared, or more, where an operator is used so."""
        least = attr.type.dims[0].value if attr.type.dims and isinstance(attr.type.dims[0], t.Int) else 0
        self.mixing = self.mixing or attr.type.dims is None
        most = self.choice.lists[name] = max(MOST_LISTED, least + 1)
        self.lengths[name] = self.path.pick(("length", name), tuple(range(least, most + 1)))
        return self.lengths[name]

    def operand(self, name: str, op: OperatorDef, place: NamePlace) -> Any:
        """A number where a tensor is expected: of the type of the tensors beside it, else of both kinds."""
        at = next(k for k, arg in enumerate(place.call.args) if arg.bare == name)
        types = [param.type.name for param in op.params if param.type]
        shared = at < len(types) and types.count(types[at]) > 1
        integral = shared and self.choice.dtype.is_integer
        kinds = ("integer",) if integral else ("real",) if shared else ("integer", "real")
        if self.path.pick(("kind", name), kinds) == "integer":
            return self.integer(name)
        return self.real(name)

    def attribute(self, name: str, op: OperatorDef, attr: t.Attr, args: list[Value], place: NamePlace) -> Any:
        kind, rank = attr.type.name, args[0].type.rank if args else 0
        ask = self.path.pick
        self.listed = (
            self.listed or attr.type.dims is not None or kind in {"axis", "axes", "permutation", "ints", "floats"}
        )
        self.mixing = self.mixing or kind in {"permutation", "ints"}
        hints = (*operator_hints(op).get(attr.name, ()), *self.text.hints.get(name, ()))
        one = self.real if kind in {"float", "floats"} else partial(self.integer, hints=hints)
        if attr.type.dims is not None or kind in {"ints", "floats"}:
            count = entry_count(op, attr, args, partly_bound(op, args, self.env), place.results)
            return tuple(one(name, k) for k in range(self._length(name, attr) if count is None else count))
        if kind in {"int", "float"}:
            return one(name)
        if kind == "dtype":
            return self.dtype(name)
        if kind == "string":
            return ask(("string", name), texts(op, attr))
        if kind in {"bool", "axis", "axes", "permutation"}:
            return ask((kind, name), values(kind, rank))
        raise Undecided(f"an attribute of the type {kind}")


@lru_cache(maxsize=64)
def early_calls(sub: SubstitutionDef) -> tuple[tuple[t.Call, frozenset[str], str | None], ...]:
    """The calls of the left side on parameters alone, with the names of these, and the name of the result where it has one."""
    params = {param.name for param in sub.params}
    binds = [s for s in sub.left if isinstance(s, t.Bind)]
    whole = {id(bind.value): bind.names[0] for bind in binds if len(bind.names) == 1}
    calls = (node for bind in binds for node in nodes(t.Call, bind.value) if node.args)
    return tuple(
        (call, frozenset(arg.bare for arg in call.args if arg.bare), whole.get(id(call)))
        for call in calls
        if all(arg.bare in params for arg in call.args)
    )
