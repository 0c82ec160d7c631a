"""Definitions: an item of a `.rules` file together with the module whose names it may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from dslc.errors import Diagnostic, Span
from dslc.ir.scalar import Number
from dslc.syntax import tree as t

S = TypeVar(
    "S",
    bound=t.Operator | t.Function | t.Property | t.Substitution | t.Derivation | t.Lowering | t.Test | t.Ruleset,
    covariant=True,
)


@dataclass(eq=False)
class Module:
    """The names that one file sees. Filled by the loader, then only read."""

    name: str
    library: str
    file: t.File
    names: dict[str, Definition] = field(default_factory=dict)
    aliases: dict[str, Module] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The path of its file, as it was asked for."""
        return self.file.source.path

    @property
    def place(self) -> Path:
        """The path of its file, whichever way it was asked for."""
        return Path(self.path).resolve()

    def lookup(self, name: str) -> Definition | None:
        """A definition by the name that the file uses for it (`conv`, `layout.conv`)."""
        found = self.names.get(name)
        if not found and "." in name:
            head, _, rest = name.partition(".")
            alias = self.aliases.get(head)
            if alias:
                return alias.names.get(rest)
        return found

    def like(self, other: Module) -> bool:
        """Return whether both have the same tree and import the same definitions."""
        return self.file is other.file and self._imported == other._imported

    @property
    def _imported(self) -> tuple[Mapping[str, Definition], Mapping[str, Mapping[str, Definition]]]:
        imported = {name: found for name, found in self.names.items() if found.module is not self}
        return imported, {alias: module.names for alias, module in self.aliases.items()}

    def called(self, node: t.Node) -> Definition | None:
        """The definition that a call calls; None for what is no call, or of a function of the vocabulary."""
        return self.lookup(node.function) if isinstance(node, t.Call) else None


@dataclass(frozen=True, eq=False)
class ItemDef(Generic[S]):
    """An item with its qualified name, and the module whose names it may use."""

    name: str
    syntax: S
    module: Module

    @property
    def short(self) -> str:
        """Its name in its own file."""
        return self.syntax.name

    @property
    def span(self) -> Span:
        return self.syntax.span

    def _repr_html_(self) -> str:
        from dslc.reporting.pages import fragment_of_text

        return fragment_of_text(self.name, self.syntax.span.text, {})


class OperatorDef(ItemDef[t.Operator]):
    """An operator of a library."""

    @property
    def params(self) -> tuple[t.Param, ...]:
        return self.syntax.params

    @property
    def outputs(self) -> tuple[t.Param, ...]:
        return self.syntax.outputs

    @property
    def statements(self) -> tuple[t.OperatorStatement, ...]:
        return self.syntax.statements

    def _repr_html_(self) -> str:
        from dslc.reporting.pages import fragment_of_text

        attributes = {one.name: one.span.text for one in self.attrs}
        return fragment_of_text(self.name, self.span.text, attributes, self.signature)

    @cached_property
    def signature(self) -> str:
        """Signature as it was written: `relu(X: T[*S]) -> Y: T[*S]`."""
        return " ".join(self.span.text.split("{")[0].split()).removeprefix("operator ")

    @property
    def attrs(self) -> tuple[t.Attr, ...]:
        return tuple(s for s in self.statements if isinstance(s, t.Attr))


class FunctionDef(ItemDef[t.Function]):
    """A `let f(x) = e` beside the operators of a file."""


@dataclass(frozen=True, eq=False)
class UnknownFunction:
    """A scalar function of which nothing is known but its name."""

    name: str
    module: Module


Definition: TypeAlias = OperatorDef | FunctionDef | UnknownFunction


@dataclass(frozen=True, eq=False)
class SubstitutionDef(ItemDef[t.Substitution]):
    """A rule between graphs."""

    syntax: t.Substitution

    @property
    def params(self) -> tuple[t.Param, ...]:
        return self.syntax.params

    @property
    def left(self) -> tuple[t.GraphStatement, ...]:
        return self.syntax.left

    @property
    def right(self) -> tuple[t.GraphStatement, ...]:
        return self.syntax.right


@dataclass(frozen=True, eq=False)
class PropertyDef(ItemDef[t.Property]):
    """A law. `trait`: of which operator and trait (`property NAME is ...`) it is the equations."""

    trait: tuple[str, str] | None = None


class DerivationDef(ItemDef[t.Derivation]):
    """A rule between expressions."""


class LoweringDef(ItemDef[t.Lowering]):
    """A kernel or a runtime's node that computes an expression."""


class TestDef(ItemDef[t.Test]):
    """A test of a rule or an operator."""


class RulesetDef(ItemDef[t.Ruleset]):
    """A choice of rules with a name."""


@dataclass(frozen=True, eq=False)
class OnnxClause:
    """One way in which an ONNX node is read; an operator's own clause (`value` is None) also writes it."""

    op: str
    since: int
    until: int | None
    inputs: tuple[t.OnnxInput, ...]
    outputs: tuple[t.Param, ...] | None
    attrs: tuple[t.Entry, ...]
    statements: tuple[t.Where | t.Let | t.LetMany | t.Function, ...]
    value: t.Expr | None
    operator: OperatorDef | None
    module: Module
    syntax: t.OnnxMap | t.OnnxDef


@dataclass(frozen=True)
class Traits:
    """Declared traits of an operator (`property NAME is ...`). `named` holds every trait with a name as its value."""

    associative: bool = False
    commutative: bool = False
    idempotent: bool = False
    involution: bool = False
    identity: Number | None = None
    absorbing: Number | None = None
    inverse: str | None = None
    named: Mapping[str, str] = field(default_factory=dict)


NO_TRAITS = Traits()

#: anything that a file defines and a check is about
Checkable: TypeAlias = OperatorDef | SubstitutionDef | PropertyDef | LoweringDef
#: finds what is wrong with a definition, unless that is known already: the check's name, the definition, and how to find it
Remember: TypeAlias = Callable[[str, Checkable, Callable[[], Sequence[Diagnostic]]], Sequence[Diagnostic]]


def afresh(check: str, definition: Checkable, find: Callable[[], Sequence[Diagnostic]]) -> Sequence[Diagnostic]:
    """Remembers nothing."""
    return find()
