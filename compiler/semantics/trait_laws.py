"""Traits (`property NAME is ...`) as laws with equations: `sub is commutative` is `sub(A, B) == sub(B, A)`.

A trait is believed no more than any other law is. Its name is that of the operator and of the trait: `mine.sub.commutative`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dslc.errors import Span
from dslc.semantics.checks.terms import substituted
from dslc.semantics.definitions import Module, OperatorDef, PropertyDef
from dslc.semantics.walk import conditions_in, names_in, nodes
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import CONSTANTS

#: traits of operators with two operands, and of those with one
OF_TWO = frozenset({"associative", "commutative", "idempotent", "identity", "absorbing"})
OF_ONE = frozenset({"involution"})


def trait_laws(line: t.PropertyIs, module: Module) -> Iterator[PropertyDef]:
    """The law of each trait that a line states and that equations can say, in its order; names are those of the line's module."""
    op = module.lookup(line.name)
    if not isinstance(op, OperatorDef):
        return
    for trait in line.traits:
        other = module.lookup(trait.value.id) if isinstance(trait.value, t.Name) else None
        syntax = _Writer(line.name, op, trait, other if isinstance(other, OperatorDef) else None).law()
        if syntax:
            name = f"{module.library}.{line.name.rpartition('.')[2]}.{trait.name}"
            yield PropertyDef(name, syntax, module, trait=(op.name, trait.name))


class _Writer:
    """The equations of one trait; every piece of them stands where the trait does."""

    def __init__(self, name: str, op: OperatorDef, trait: t.Trait, other: OperatorDef | None) -> None:
        self.name, self.op, self.trait, self.other = name, op, trait, other
        self.span: Span = trait.span
        self.params = op.params
        known = {node.id for p in self.params for node in nodes(t.Name, p.type)}
        attrs = {attr.name for attr in op.attrs}
        # a type that attributes take part in is that of the results only; any shape stands for it, as the operator checks it again
        self.plain = all(p.type is not None and p.type.dims is not None for p in self.params) and not known & attrs
        kept = known | attrs | CONSTANTS | {p.type.name for p in self.params if p.type}
        conditions = conditions_in(op.statements)
        self.guards = tuple(c for c in conditions if self.plain and names_in(c) <= kept)

    def law(self) -> t.Property | None:
        """None where the trait is no equation, or makes no sense for as many operands."""
        count, outputs, trait = len(self.params), len(self.op.outputs), self.trait.name
        if trait in OF_TWO and (count, outputs) == (2, 1):
            x, y = self._param(0), self._param(1)
            first, second = self._name(x), self._name(y)
            if trait == "commutative":
                return self._property((x, y), (self._call(first, second), self._call(second, first)))
            if trait == "associative":
                z, third = self._third(y)
                both = self._call(self._call(first, second), third), self._call(first, self._call(second, third))
                return self._property((x, y, z), both)
            if trait == "idempotent":
                return self._property((x,), (self._call(first, first), first))
            if trait == "identity" and self.trait.value:
                return self._property((x,), (self._call(first, self.trait.value), first))
            return None
        if trait in OF_ONE and (count, outputs) == (1, 1):
            x = self._param(0)
            return self._property((x,), (self._call(self._call(self._name(x))), self._name(x)))
        if trait == "inverse" and self.other and (count, outputs) == (1, 2) and len(self.other.syntax.params) == 2:
            return self._inverse(self.other)
        return None

    def _inverse(self, other: OperatorDef) -> t.Property:
        """Parts put together are the whole, and the whole taken apart gives the parts."""
        assert isinstance(self.trait.value, t.Name)
        own = {attr.name for attr in self.op.attrs}
        shared = tuple(self._keyword(attr.name) for attr in other.attrs if attr.name in own)
        x = self._param(0)
        parts = tuple(self._typed(output.name, output.type) for output in self.op.outputs)
        apart = [t.Field(self._call(self._name(x)), part.name, span=self.span) for part in parts]
        joined = t.Call(self.trait.value.id, tuple(self._name(part) for part in parts), shared, None, span=self.span)
        # what the guards say of an attribute stands in its place: a logic without guards may take the law at its word
        told = tuple(replace(self._keyword(attr.name), value=self._told(attr.name)) for attr in self.op.attrs)
        taken = t.Call(self.name, (joined,), told, None, span=self.span)
        again = [(t.Field(taken, part.name, span=self.span), self._name(part)) for part in parts]
        whole = t.Call(self.trait.value.id, tuple(apart), shared, None, span=self.span)
        return self._property((x, *parts), (whole, self._name(x)), *again)

    # ---- pieces ------------------------------------------------------------------------------------------------------

    def _param(self, place: int) -> t.Param:
        param = self.params[place]
        if self.plain:
            return self._typed(param.name, param.type)
        dims = (t.Pack(t.Name(f"shape_of_{param.name}", span=self.span), span=self.span),)
        name = param.type.name if param.type else "T"
        return self._typed(param.name, t.TypeExpr(name, dims, span=self.span))

    def _typed(self, name: str, type: t.TypeExpr | None) -> t.Param:
        return t.Param(False, name, type, None, span=self.span)

    def _third(self, second: t.Param) -> tuple[t.Param, t.Expr]:
        """Another operand as the second one, with names of its own for those sizes that the first one does not have."""
        first = names_in(self._param(0).type)
        own = [node.id for node in nodes(t.Name, second.type) if node.id not in first]
        new: Mapping[str, t.Expr] = {name: t.Name(f"{name}_2", span=self.span) for name in own}
        name = f"{second.name}_2"
        param = replace(second, name=name, type=substituted(second.type, new))
        return param, self._name(param)

    def _name(self, param: t.Param) -> t.Expr:
        return t.Name(param.name, span=self.span)

    def _keyword(self, name: str) -> t.Keyword:
        return t.Keyword(name, t.Name(name, span=self.span), span=self.span)

    def _told(self, name: str) -> t.Expr:
        """The list that a guard sets an attribute equal to, else the attribute."""
        for guard in self.guards:
            match guard:
                case t.Compare((t.Name(one), t.ListExpr() as other), ("==",)) if one == name:
                    return other
        return t.Name(name, span=self.span)

    def _call(self, *args: t.Expr) -> t.Call:
        return t.Call(self.name, args, tuple(self._keyword(attr.name) for attr in self.op.attrs), None, span=self.span)

    def _property(self, params: tuple[t.Param, ...], *equations: tuple[t.Expr, t.Expr]) -> t.Property:
        laws = tuple(t.Compare(sides, ("==",), span=self.span) for sides in equations)
        statements = (t.Where(self.guards, span=self.span),) if self.guards else ()
        return t.Property(self.trait.name, params, None, statements, laws, None, span=self.span)
