"""Whether the text of a rule, and of all that it uses, treats every axis of a pack alike; docs/proofs.md, "Ranks".

What is allowed is listed, everything else counts as treating an axis by its number: then nothing is concluded about other ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from dslc.semantics.definitions import FunctionDef, Module, OperatorDef, SubstitutionDef
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import INDEX_FUNCTIONS, REDUCTIONS

#: what these give at an axis depends on that axis alone, and they keep the order of axes
_LOCAL = frozenset({"fit", "broadcast", "shape", "ceildiv"})
#: what these do with the sizes or positions of a pack shows at rank 2
_SHOWN = frozenset({"permute", "unpermute", "ravel", "unravel", "reversed"})
#: these put together what is at some axes and what is at the others
_PICKING = frozenset({"merge", "without", "only"})
_CUTS = frozenset({"take", "drop"})
_COUNTS = frozenset({"rank", "len"})
_AXES = frozenset({"axis", "axes", "permutation"})
_UNREAD = (t.OnnxMap, t.Example, t.Tags, t.Verify, t.TermDecl, t.Trusted)


def telling_rank(sub: SubstitutionDef) -> int | None:
    """The rank at which a pack shows how the rule treats it at any rank; None where no such rank is known.

    1 where every function on lists treats each axis by itself and keeps their order; 2 where axes are also picked by attributes, and
    lists of sizes or positions permuted, ravelled and unravelled, but no axis is treated by its number and no value depends on
    a rank.
    """
    text = _Text()
    text.rule(sub)
    return None if text.number else 2 if text.shown else 1


def excludes_ranks(sub: SubstitutionDef) -> bool:
    """Whether guards may let some ranks in and keep smaller ones out, in the rule or in what it uses."""
    text = _Text()
    text.rule(sub)
    return text.number or text.ranked


@dataclass(frozen=True, slots=True)
class _Names:
    """What names stand for: packs, attributes that are lists of integers, axes or permutations, and ranks."""

    module: Module
    packs: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
    axes: frozenset[str] = frozenset()
    counts: frozenset[str] = frozenset()
    #: lists of a length that no rank says
    written: frozenset[str] = frozenset()


@dataclass
class _Text:
    #: an axis is treated by its number, or something depends on a rank
    number: bool = False
    shown: bool = False
    #: a guard is about ranks
    ranked: bool = False
    seen: set[Any] = field(default_factory=set)

    def rule(self, sub: SubstitutionDef) -> None:
        syntax = sub.syntax
        names = _Names(sub.module, _packs(syntax.params), _given(sub, False), _given(sub, True))
        names = _with_lets(names, (*syntax.left, *syntax.right))
        self.visit((syntax.params, syntax.left, syntax.right), names)

    def operator(self, op: OperatorDef) -> None:
        if op in self.seen:
            return
        self.seen.add(op)
        axes = frozenset(attr.name for attr in op.attrs if attr.type.name in _AXES)
        lists = frozenset(attr.name for attr in op.attrs if attr.type.dims is not None or attr.type.name == "ints")
        lets = [part for part in op.syntax.statements if isinstance(part, t.Let) and _all_axes(part.value)]
        axes |= {part.target.name for part in lets}
        names = _with_lets(_Names(op.module, _packs(op.syntax.params), lists, axes), op.syntax.statements)
        statements = tuple(part for part in op.syntax.statements if part not in lets)
        self.visit((op.syntax.params, op.syntax.outputs, statements), names)

    # ---- what is allowed --------------------------------------------------------------------------------------

    def visit(self, node: Any, names: _Names) -> None:
        if isinstance(node, tuple):
            for part in node:
                self.visit(part, names)
        elif isinstance(node, t.Where):
            for condition in node.conditions:
                self.guard(condition, names)
        elif isinstance(node, t.Attr):
            if node.default is not None:
                # a number that follows the rank is no place of an axis
                (self.axes if node.type.name in _AXES else self.visit)(node.default, names)
        elif isinstance(node, t.Name):
            self.number = self.number or node.id in names.axes or node.id in names.counts
        elif isinstance(node, t.Call):
            self.call(node, names)
        elif isinstance(node, t.Compare):
            # how long a list is decides whether it is equal to one that is written out
            self.number = self.number or _by_length(node, names)
            self.children(node, names)
        elif isinstance(node, t.Subscript):
            by_number = isinstance(node.base, t.Name) and node.base.id[:1].islower()
            self.number = self.number or (by_number and any(isinstance(s, t.Int) for s in node.subs))
            self.children(node, names)
        elif isinstance(node, t.ListExpr):
            # ones may stand in the place of axes, and nowhere else
            ones = {id(part) for part in node.elements if isinstance(part, t.Pack) and _ones(part.value, names)}
            self.shown = self.shown or bool(ones)
            self.visit(tuple(part for part in node.elements if id(part) not in ones), names)
        elif isinstance(node, t.Traversal) and len(node.places) == 1 and isinstance(node.places[0], t.Binder):
            self.traversal(node, node.places[0], names)
        elif isinstance(node, t.Node) and not isinstance(node, _UNREAD):
            self.children(node, names)

    def children(self, node: t.Node, names: _Names) -> None:
        for each in fields(node):
            if each.name not in {"span", "source"}:
                value = getattr(node, each.name)
                if isinstance(value, tuple | t.Node):
                    self.visit(value, names)

    def guard(self, condition: t.Expr, names: _Names) -> None:
        """A guard about ranks and axes is about nothing else, or linear, or says that a list is that of all axes.

        So it decides which ranks occur, or is another condition at every rank, and then no smaller instance stands for it.
        """
        if isinstance(condition, t.Binary) and condition.op == "and":
            self.guard(condition.left, names)
            self.guard(condition.right, names)
            return
        equal = isinstance(condition, t.Compare) and condition.ops == ("==",)
        if not equal and any(isinstance(part, t.Call) and part.function in _COUNTS for part in walk_expr(condition)):
            self.ranked = True
        if _of_ranks(condition, names):
            return
        if isinstance(condition, t.Compare):
            if all(_linear(operand) or _product(operand, names) for operand in condition.operands):
                # a number that is said to be a rank takes the rank with it wherever it goes
                counted = any(_is_count(part) for part in walk_expr(condition))
                others = {part.id for part in walk_expr(condition) if isinstance(part, t.Name)} - names.axes - _counted(condition)
                self.number = self.number or (equal and counted and bool(others))
                return
            plain = [operand for operand in condition.operands if not _all_axes(operand)]
            if condition.ops == ("==",) and len(plain) < 2:
                self.shown = True
                self.axes(tuple(plain), names)
                return
            if condition.ops == ("==",):
                # it lets one length in
                self.children(condition, names)
                return
        self.visit(condition, names)

    def axes(self, value: Any, names: _Names) -> None:
        """What stands for axes: names of axes, numbers that follow the rank, all axes, and lists of these."""
        if isinstance(value, tuple):
            for part in value:
                self.axes(part, names)
        elif _all_axes(value):
            self.shown = True
        elif isinstance(value, t.ListExpr):
            self.axes(value.elements, names)
        elif isinstance(value, t.Pack):
            self.axes(value.value, names)
        elif isinstance(value, t.Call) and value.function in _SHOWN | {"only", "without"}:
            self.shown = True
            self.axes(value.args, names)
        elif isinstance(value, t.Call) and value.function == "range" and all(_linear(arg) for arg in value.args):
            self.shown = True
        elif isinstance(value, t.Call) and isinstance(found := names.module.lookup(value.function), FunctionDef):
            self.function(found, value.args, names, axes=True)
        elif not _linear(value):
            self.visit(value, names)

    def call(self, node: t.Call, names: _Names) -> None:
        found = names.module.lookup(node.function)
        if isinstance(found, FunctionDef):
            self.function(found, node.args, names)
        elif isinstance(found, OperatorDef):
            self.operator(found)
            kinds = {attr.name: attr.type.name for attr in found.attrs}
            self.visit(node.args, names)
            for keyword in node.kwargs:
                (self.axes if kinds.get(keyword.name) in _AXES else self.visit)(keyword.value, names)
        elif node.function in _CUTS:
            parts = [part for part in walk_expr(node.args[0]) if isinstance(part, t.Name | t.Call)]
            whole = all(isinstance(part, t.Name) and part.id in names.lists for part in parts)
            own = isinstance(node.args[-1], t.Call) and node.args[-1].function == "rank" and _is_count(node.args[-1])
            self.number = self.number or not whole or not own
            self.shown = True
        elif node.function in _PICKING:
            self.shown = True
            self.axes(node.args[-1], names)
            self.visit(tuple(arg for arg in node.args[:-1] if not _is_axes(arg, names)), names)
        elif node.function in _SHOWN:
            self.shown = True
            self.visit(tuple(arg for arg in node.args if not _is_axes(arg, names)), names)
        elif node.function in REDUCTIONS and len(node.args) == 1 and node.function not in {"all", "any"}:
            # of what belongs to axes only a product of sizes, which are followed
            self.number = self.number or node.function != "prod" or not _sizes(node.args[0], names)
            self.visit(node.args, names)
        else:
            self.number = self.number or (node.function in INDEX_FUNCTIONS and node.function not in _LOCAL)
            self.visit((node.args, tuple(keyword.value for keyword in node.kwargs)), names)

    def function(self, found: FunctionDef, args: tuple[t.Expr, ...], names: _Names, axes: bool = False) -> None:
        kinds: dict[str, set[str]] = {"packs": set(), "lists": set(), "axes": set(), "counts": set(), "written": set()}
        for name, arg in zip(found.syntax.params, args, strict=False):
            if _is_rank(arg, names):
                kinds["counts"].add(name)
            elif _is_axes(arg, names):
                kinds["axes"].add(name)
            else:
                if _written(arg, names):
                    kinds["written"].add(name)
                for kind in ("packs", "lists"):
                    if isinstance(arg, t.Name) and arg.id in getattr(names, kind):
                        kinds[kind].add(name)
                self.visit(arg, names)
        inner = _Names(found.module, **{kind: frozenset(each) for kind, each in kinds.items()})
        key = (found, inner.packs, inner.lists, inner.axes, inner.counts, inner.written, axes)
        if key not in self.seen:
            self.seen.add(key)
            (self.axes if axes else self.visit)(found.syntax.body, inner)

    def traversal(self, node: t.Traversal, binder: t.Binder, names: _Names) -> None:
        """`{[k: rank(S)] S[k]}`: places are used to read lists, and for nothing else."""
        every = [p for p in walk_expr((node.body, node.where or ())) if isinstance(p, t.Name) and p.id == binder.name]
        plain = [s for part in walk_expr(node.body) if isinstance(part, t.Subscript) for s in part.subs]
        read = sum(isinstance(s, t.Name) and s.id == binder.name for s in plain)
        self.shown = True
        self.number = self.number or (not binder.star and (len(every) != read or not read))
        known = _is_rank(binder.range, names)
        self.visit((() if known else binder.range, node.where or (), node.body), names)


def _is_count(expr: Any) -> bool:
    """`rank(S)` or `len(s)`, or the largest of several."""
    if isinstance(expr, t.Call) and expr.function == "max" and len(expr.args) > 1:
        return all(_is_count(arg) for arg in expr.args)
    return isinstance(expr, t.Call) and expr.function in _COUNTS and len(expr.args) == 1 and isinstance(expr.args[0], t.Name)


def _with_lets(names: _Names, statements: Sequence[Any]) -> _Names:
    """With the names of lists that a side or an operator writes out."""
    for part in statements:
        if isinstance(part, t.Let) and part.target.places is None and _written(part.value, names):
            names = replace(names, written=names.written | {part.target.name})
    return names


def _by_length(condition: t.Compare, names: _Names) -> bool:
    """Whether a comparison is of a list that is as long as a rank and one of another length."""
    operands = condition.operands
    if condition.ops == ("in",) and isinstance(operands[1], t.ListExpr):
        operands = (operands[0], *operands[1].elements)
    written = [_written(part, names) for part in operands]
    return any(written) and not all(written)


def _written(expr: Any, names: _Names) -> bool:
    """Whether an expression may be a list, or a list of lists, of a length that no rank says: `[2, 3]`, `{[k: 4] 1}`."""
    if isinstance(expr, t.Name):
        return expr.id in names.written
    if isinstance(expr, t.ListExpr):
        packs = [part.value for part in expr.elements if isinstance(part, t.Pack)]
        return all(_written(part, names) for part in packs) or any(_written(part, names) for part in expr.elements)
    if isinstance(expr, t.Conditional | t.Binary | t.Unary):
        return any(_written(part, names) for part in vars(expr).values())
    if isinstance(expr, t.Nested) and expr.subs is None:
        return _written(expr.scope, names)
    if isinstance(expr, t.Traversal):
        return any(isinstance(place, t.Binder) and not place.star and not _is_rank(place.range, names) for place in expr.places)
    if isinstance(expr, t.Call):
        found = names.module.lookup(expr.function)
        if isinstance(found, FunctionDef):
            given = frozenset(p for p, arg in zip(found.syntax.params, expr.args, strict=False) if _written(arg, names))
            return _written(found.syntax.body, _Names(found.module, written=given))
        listing = expr.function == "range" and not all(_is_rank(arg, names) for arg in expr.args)
        return listing or (expr.function in INDEX_FUNCTIONS and any(_written(arg, names) for arg in expr.args))
    return False


def _counted(expr: Any) -> set[str]:
    """The lists whose lengths an expression asks for."""
    return {part.args[0].id for part in walk_expr(expr)
            if isinstance(part, t.Call) and _is_count(part) and isinstance(part.args[0], t.Name)}  # fmt: skip


def _all_axes(expr: Any) -> bool:
    """`range(rank(S))`, maybe backwards."""
    if isinstance(expr, t.Call) and expr.function == "reversed" and len(expr.args) == 1:
        return _all_axes(expr.args[0])
    return isinstance(expr, t.Call) and expr.function == "range" and len(expr.args) == 1 and _is_count(expr.args[0])


def _is_axes(expr: t.Expr, names: _Names) -> bool:
    """Names of axes, or all axes."""
    if isinstance(expr, t.ListExpr):
        return bool(expr.elements) and all(_is_axes(element, names) for element in expr.elements)
    if isinstance(expr, t.Pack):
        return _is_axes(expr.value, names)
    return _all_axes(expr) or (isinstance(expr, t.Name) and expr.id in names.axes)


def _linear(expr: Any) -> bool:
    """A sum of names, numbers and ranks: with the rank it grows as axes are added, or not at all."""
    if isinstance(expr, t.Binary) and expr.op in {"+", "-"}:
        return _linear(expr.left) and _linear(expr.right)
    return isinstance(expr, t.Name | t.Int) or _is_count(expr)


def _is_rank(expr: Any, names: _Names) -> bool:
    """A rank, by itself or more or less by a number."""
    if isinstance(expr, t.Binary) and expr.op in {"+", "-"}:
        return (_is_rank(expr.left, names) and isinstance(expr.right, t.Int)) or (
            isinstance(expr.left, t.Int) and expr.op == "+" and _is_rank(expr.right, names)
        )
    return _is_count(expr) or (isinstance(expr, t.Name) and expr.id in names.counts)


def _of_ranks(expr: Any, names: _Names) -> bool:
    """Whether ranks and the numbers of axes are all that an expression depends on."""
    if isinstance(expr, tuple):
        return all(_of_ranks(part, names) for part in expr)
    if isinstance(expr, t.Binary):
        return _of_ranks((expr.left, expr.right), names)
    if isinstance(expr, t.Unary):
        return _of_ranks(expr.operand, names)
    if isinstance(expr, t.Compare):
        return _of_ranks(expr.operands, names)
    if isinstance(expr, t.Call) and expr.function in {"min", "max"}:
        return _of_ranks(expr.args, names)
    return isinstance(expr, t.Int) or _is_count(expr) or (isinstance(expr, t.Name) and expr.id in names.axes)


def _ones(expr: Any, names: _Names) -> bool:
    """`{[k: rank(S)] 1}`, or a function that is this."""
    if isinstance(expr, t.Call) and len(expr.args) == 1 and _is_rank(expr.args[0], names):
        found = names.module.lookup(expr.function)
        if isinstance(found, FunctionDef):
            return _ones(found.syntax.body, _Names(found.module, counts=frozenset(found.syntax.params)))
    if isinstance(expr, t.Nested) and expr.subs is None:
        return _ones(expr.scope, names)
    if not isinstance(expr, t.Traversal) or len(expr.places) != 1 or expr.where is not None:
        return False
    place = expr.places[0]
    return isinstance(expr.body, t.Int) and expr.body.value == 1 and isinstance(place, t.Binder) and _is_rank(place.range, names)


def _sizes(expr: Any, names: _Names) -> bool:
    """A pack, the shape of a tensor, or some axes of these."""
    if isinstance(expr, t.Call) and expr.function in {"only", "without"}:
        return _sizes(expr.args[0], names)
    if isinstance(expr, t.Call) and expr.function == "shape":
        return True
    return isinstance(expr, t.Name) and expr.id in names.packs


def _product(expr: Any, names: _Names) -> bool:
    """Names, numbers and the products of lists, multiplied: at every rank another one."""
    if isinstance(expr, t.Binary) and expr.op == "*":
        return _product(expr.left, names) and _product(expr.right, names)
    if isinstance(expr, t.Call) and expr.function == "prod" and len(expr.args) == 1:
        arg = expr.args[0]
        listed = isinstance(arg, t.Name) and arg.id in names.lists
        return listed or (_sizes(arg, names) and not any(isinstance(part, t.Call) for part in walk_expr(arg)))
    return isinstance(expr, t.Name | t.Int)


def _packs(params: Any) -> frozenset[str]:
    """The packs in the types of parameters."""
    return frozenset(
        part.value.id
        for param in params
        for part in walk_expr(param.type.dims or () if param.type is not None else ())
        if isinstance(part, t.Pack) and isinstance(part.value, t.Name)
    )


def _given(sub: SubstitutionDef, axes: bool) -> frozenset[str]:
    """The names in a rule that stand for axes, or for lists of integers, as the attributes say to which they are given."""
    return frozenset(
        name
        for call in walk_expr((sub.syntax.left, sub.syntax.right))
        if isinstance(call, t.Call) and isinstance(op := sub.module.lookup(call.function), OperatorDef)
        for name in _of_call(call, op, axes)
    )


def _of_call(call: t.Call, op: OperatorDef, axes: bool) -> Iterator[str]:
    for attr in op.attrs:
        fits = attr.type.name in _AXES if axes else attr.type.dims is not None or attr.type.name == "ints"
        if not fits:
            continue
        if call.rest is not None:
            yield f"{call.rest}.{attr.name}"
        for keyword in call.kwargs:
            if keyword.name == attr.name:
                given = keyword.value.elements if isinstance(keyword.value, t.ListExpr) else (keyword.value,)
                parts = (part.value if isinstance(part, t.Pack) else part for part in given)
                yield from (part.id for part in parts if isinstance(part, t.Name))
