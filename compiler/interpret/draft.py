"""The names of a rule as they are found one after the other, whatever their values are taken from: chance, paths of choices, a table.

A name is drawn where evaluating the left side first needs it, from what its place says: a dimension, an attribute of a known declared
type, an entry of a list. Equations among the guards bind names; a `let` is computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dslc.errors import DslcError
from dslc.interpret.rule_text import NamePlace, RuleText
from dslc.ir.dtype import DTYPES, DType
from dslc.ir.graph import Value
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.env import AttrSet, Env, Mismatch, OperatorRef, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.types import solve
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t

MOST_NAMES = 64  #: names that one expression may ask for


@dataclass(kw_only=True)
class Draft(ABC):
    """One evaluation of a rule: its names so far. What they may be is said by the abstract methods: the source of values."""

    env: Env
    text: RuleText
    lets: tuple[t.GraphStatement, ...]
    drawn: dict[str, Any] = field(default_factory=dict)

    # ---- the source ------------------------------------------------------------------------------------------

    @abstractmethod
    def dtype(self, name: str) -> DType:
        """The element type that a type variable stands for."""

    @abstractmethod
    def size(self, name: str) -> Any:
        """A size."""

    @abstractmethod
    def pack(self, name: str) -> tuple[Any, ...]:
        """The sizes of a pack."""

    @abstractmethod
    def operand(self, name: str, op: OperatorDef, place: NamePlace) -> Any:
        """A number where a tensor is expected."""

    @abstractmethod
    def attribute(self, name: str, op: OperatorDef, attr: t.Attr, args: list[Value], place: NamePlace) -> Any:
        """A whole attribute; `name` is `a.stride` where `**a` stands for it."""

    @abstractmethod
    def entry(self, name: str, op: OperatorDef, attr: t.Attr, args: list[Value], place: NamePlace) -> Any:
        """One entry of a list attribute, or (where the place is starred) several."""

    @abstractmethod
    def refused(self, reason: str) -> Exception:
        """What is raised where nothing says what a name may be."""

    @abstractmethod
    def solve_conditions(self) -> None:
        """Binds what an equation among the guards determines."""

    # ---- names -----------------------------------------------------------------------------------------------

    def bind(self, name: str, value: Any) -> None:
        self.env.bind(name, value)
        self.drawn[name] = value
        self.solve_conditions()

    def dims(self, type: t.TypeExpr) -> None:
        """Binds the names of a declared type."""
        if type.name not in DTYPES and not self.env.has(type.name):
            self.bind(type.name, self.dtype(type.name))
        for element in type.dims or ():
            slots = element.slots if isinstance(element, t.TupleExpr) else (element,)
            for slot in slots:
                inner = slot.value if isinstance(slot, t.Pack) else slot
                for node in walk_expr(inner):
                    if isinstance(node, t.Name) and not self.env.has(node.id) and "." not in node.id:
                        whole = isinstance(slot, t.Pack) and isinstance(inner, t.Name)
                        self.bind(node.id, self.pack(node.id) if whole else self.size(node.id))

    def needing(self, env: Env, expr: t.Expr) -> Any:
        """The value of an expression; names without a value are drawn."""
        for _ in range(MOST_NAMES):
            try:
                return evaluate(expr, env)
            except Unbound as unknown:
                self.draw(unknown.name)
        raise self.refused("too many names")

    def draw(self, name: str) -> None:
        """Binds a name that the left side needs, by the places where it stands."""
        name = name.partition(".")[0]
        for statement in self.lets:
            if isinstance(statement, t.Let) and statement.target.name == name and statement.target.places is None:
                self.needing(self.env, statement.value)
                return
        for condition in self.text.conditions:
            if self._draw_list(name, condition):
                return
        for place in self.text.places.get(name, ()):
            if self.operator(place.call) is None:
                continue
            try:
                value = self._placed(name, place)
            except Unbound:
                continue
            self.bind(name, value)
            return
        raise self.refused(f"nothing says what `{name}` may be")

    def operator(self, call: t.Call) -> OperatorDef | None:
        """The operator that a call is of; a term's is bound to its name."""
        if self.env.has(call.function):
            target = self.env.get(call.function)
            return self.env.rules.operators[target.name] if isinstance(target, OperatorRef) else None
        found = self.env.module.lookup(call.function)
        return found if isinstance(found, OperatorDef) else None

    def _draw_list(self, name: str, condition: t.Expr) -> bool:
        """`[N, b, C] == s`: unknown entries of a list are sizes."""
        if not isinstance(condition, t.Compare) or condition.ops != ("==",):
            return False
        for target, source in (condition.operands, condition.operands[::-1]):
            if not (isinstance(target, t.Name) and target.id == name and isinstance(source, t.ListExpr)):
                continue
            for element in source.elements:
                if isinstance(element, t.Name) and not self.env.has(element.id):
                    self.bind(element.id, self.size(element.id))
            if not self.env.has(name):
                self.bind(name, self.needing(self.env, source))
            return True
        return False

    def _placed(self, name: str, place: NamePlace) -> Any:
        op = self.operator(place.call)
        assert op is not None
        if place.attr is None and not place.starred:
            return self.operand(name, op, place)
        args = [value for arg in place.call.args for value in tensors_in(evaluate(arg, self.env))]
        if place.attr is None:
            named = {keyword.name for keyword in place.call.kwargs}
            return AttrSet({
                attr.name: self.attribute(f"{name}.{attr.name}", op, attr, args, place) for attr in op.attrs if attr.name not in named
            })  # fmt: skip
        attr = next((attr for attr in op.attrs if attr.name == place.attr), None)
        if attr is None:
            raise Mismatch(f"`{op.short}` has no attribute `{place.attr}`")
        return (self.entry if place.entry else self.attribute)(name, op, attr, args, place)


def tensors_in(value: Any) -> Iterator[Value]:
    """The tensors of an evaluated argument."""
    if isinstance(value, Value):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from tensors_in(item)


def partly_bound(op: OperatorDef, args: Sequence[Value], outer: Env) -> Env:
    """An environment with what the types of the arguments alone say about an operator's sizes."""
    env = Env(op.module, outer.rules)
    for param, arg in zip(op.syntax.params, args, strict=False):
        env.bind(param.name, arg)
        if param.type is not None:
            try:
                solve(((param.type, arg.type),), (), env)
            except (Mismatch, DslcError):
                continue
    return env


def entry_count(
    op: OperatorDef, attr: t.Attr, args: Sequence[Value], inner: Env, results: int | None = None
) -> int | None:
    """How many entries a list attribute has; None where it may have any number, or its declaration cannot say yet.

    `results`: how many results of the operator are named. With more of them than are declared, lists of a fixed length have as many
    entries more; where nothing says how many there are, they may have any number.
    """
    if attr.type.name in {"axes", "permutation"}:
        return args[0].type.rank if args else 0
    if not attr.type.dims:
        return None
    outputs = len(op.syntax.outputs)
    if isinstance(attr.type.dims[0], t.Int) and outputs > 1:
        return None if results is None else max(0, attr.type.dims[0].value + results - outputs)
    try:
        return int(evaluate(attr.type.dims[0], inner))
    except (Unbound, Mismatch, DslcError, TypeError):
        return None
