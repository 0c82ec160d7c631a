"""Environments, and the kinds of value that an expression of the language may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dslc.errors import Diagnostic, DslcError, Span
from dslc.ir.graph import Value, Values
from dslc.ir.scalar import Iter, Scalar, iterator, read
from dslc.semantics.definitions import Module
from dslc.semantics.library import Rules
from dslc.semantics.walk import span_of
from dslc.syntax import tree as t


class Unbound(Exception):
    """A name without a value yet."""

    def __init__(self, name: str, span: Span | None = None) -> None:
        super().__init__(name)
        self.name = name
        self.span = span


class EvalError(DslcError):
    """An expression that has no value."""


class MismatchKind(Enum):
    """Reason for a mismatch; decisions depend on it, never on the words."""

    FIT = "types, sizes, axes or attributes do not fit"
    GUARD = "a guard does not hold"
    UNBOUND = "a name has no value yet; it may have one later"
    UNDECIDED = "a size or truth value has to be known and is not"


class Mismatch(Exception):
    """Types, sizes or guards that do not fit; an expected outcome of matching, so it carries a reason, no diagnostic."""

    #: what may help, of the outermost operator that it came up in
    hint = ""
    #: the name that has no value yet (UNBOUND)
    unknown = ""

    def __init__(self, reason: str, span: Span | None = None, kind: MismatchKind = MismatchKind.FIT) -> None:
        super().__init__(reason)
        self.reason = reason
        self.span = span
        self.kind = kind

    def again(self, span: Span | None = None, within: str = "", hint: str = "") -> Mismatch:
        """The same, of the same class and kind, at a place where none was known and inside what `within` names."""
        reason = f"{within}: {self.reason}" if within else self.reason
        found = type(self)(reason, self.span or span, self.kind)
        found.hint = hint or self.hint
        return found


def fail(code: str, message: str, at: t.Node | Span | None, hint: str = "") -> EvalError:
    """The error of an expression without a value."""
    return EvalError([Diagnostic(code, message, span_of(at), hint=hint)])


class Undecided(Mismatch):
    """Something has to be known as a number, or as a truth value, and is not."""

    def __init__(self, reason: str, span: Span | None = None, kind: MismatchKind = MismatchKind.UNDECIDED) -> None:
        super().__init__(reason, span, kind)


def unbound(problem: Unbound, span: Span | None = None) -> Mismatch:
    """The mismatch that a name without a value is where everything else is known."""
    found = Mismatch(f"`{problem.name}` stays unknown", span or problem.span, MismatchKind.UNBOUND)
    found.unknown = problem.name.partition(".")[0]
    return found


class Outputs(Values):
    """The results of an operator with several outputs, and their names."""

    names: tuple[str, ...]

    def __new__(cls, values: Values, names: tuple[str, ...]) -> Outputs:
        out = super().__new__(cls, values)
        out.names = names
        return out


@dataclass(frozen=True)
class AttrSet:
    """Value of `**a`."""

    values: Mapping[str, Any]


@dataclass(frozen=True)
class Closure:
    """A `let f(x) = e` with the environment of its body."""

    syntax: t.Function
    env: Env


@dataclass(frozen=True)
class AskedFunction:
    """A function that whoever evaluates answers: of the call as it is written, and the environment."""

    answer: Callable[[t.Call, Env], Any]


@dataclass(frozen=True)
class OperatorRef:
    """An operator bound to a term variable `f`, by qualified name; `extra` are operands behind those that the term names."""

    name: str
    extra: Values = ()


def with_attributes(name: str, attributes: str) -> str:
    """The name of what an unknown operator is with the set of attributes that `**attributes` hands on."""
    return f"{name}:{attributes}" if attributes else name


@dataclass(frozen=True, eq=False)
class Thunk:
    """A value computed on first use."""

    compute: Callable[[], Any]


class ScopeBuilder:
    """Collects the operands of a scope while its body is evaluated, and knows the extents of its iterators."""

    def __init__(self) -> None:
        self.operands: list[Value] = []
        self.extents: dict[Iter, Any] = {}

    def read(self, value: Value, index: tuple[Scalar, ...], other: Scalar | None = None) -> Scalar:
        if value not in self.operands:
            self.operands.append(value)
        return read(self.operands.index(value), index, other)


class Env:
    """Names and their values; inner environments see the outer ones.

    `builder` is set inside the body of a scope: there reductions and reads become scalar expressions. `depth` counts the enclosing
    reduction iterators, `calls` the enclosing expansions of functions. `ranges` gives the range of iterators that stand without one.
    """

    __slots__ = ("builder", "calls", "decls", "depth", "module", "parent", "ranges", "ranks", "rules", "values")

    def __init__(self, module: Module, rules: Rules, parent: Env | None = None) -> None:
        self.module = module
        self.rules = rules
        self.parent = parent
        self.values: dict[str, Any] = {}
        self.builder: ScopeBuilder | None = parent.builder if parent else None
        self.depth: int = parent.depth if parent else 0
        self.calls: int = parent.calls if parent else 0
        self.ranges: Mapping[str, t.Expr] = parent.ranges if parent else {}
        self.ranks: dict[str, int] = parent.ranks if parent else {}
        self.decls: dict[str, tuple[t.Expr, ...]] = parent.decls if parent else {}

    def child(self) -> Env:
        return Env(self.module, self.rules, self)

    def bind(self, name: str, value: Any) -> None:
        self.values[name] = value

    def has(self, name: str) -> bool:
        return self.found(name) is not None

    def get(self, name: str, span: Span | None = None) -> Any:
        """The value of a name. Raises Unbound where it has none, or one that needs another name without a value."""
        found = self._value(name)
        if found is None:
            raise Unbound(name, span)
        return found[0]

    def found(self, name: str) -> tuple[Any] | None:
        """The value of a name, in a tuple; None where it has none."""
        try:
            return self._value(name)
        except Unbound:
            return None

    def _value(self, name: str) -> tuple[Any] | None:
        env: Env | None = self
        while env:
            if name in env.values:
                value = env.values[name]
                if isinstance(value, Thunk):
                    value = value.compute()
                    env.values[name] = value
                return (value,)
            env = env.parent
        return None

    def fresh_iterator(self, extent: Any) -> Iter:
        """The next reduction iterator at this depth."""
        found = iterator(f"r{self.depth}")
        self.depth += 1
        if self.builder:
            self.builder.extents[found] = extent
        return found
