"""Derivations applied: to one scope, to several of a program, and anywhere in an expression."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice, permutations

from dslc.analysis.narrowing import scope_ranges, sum_ranges, unit_positions
from dslc.analysis.numeric import in_bounds
from dslc.deadline import FOREVER, Deadline
from dslc.derivation.left_sides import LeftSide
from dslc.derivation.pieces import Operands, Ranges, Unfit, Views, reduced, without_others
from dslc.derivation.right_sides import RightSide
from dslc.derivation.tables import TOTAL, around
from dslc.derivation.unknowns import Unknowns, may_apply
from dslc.ir.constants import number_of
from dslc.ir.dtype import Dim
from dslc.ir.graph import Scope, ScopeNode, Value, Values, nodes_of, rebuild, replace, scope_value, with_args
from dslc.ir.normal import Normalizer
from dslc.ir.scalar import Iter, Num, Read, Scalar, apply, as_scalar, num, read, traversal
from dslc.ir.scalar import rebuild as rebuild_scalar
from dslc.ir.scopes import positions, renumber, substitute
from dslc.records import record
from dslc.semantics.definitions import DerivationDef
from dslc.semantics.ways import SearchWay, way_of
from dslc.syntax import tree as t

INSTANCES = 400  #: instances of one rule at one place that are looked at
ITERATORS = 24  #: iterators of a scope beyond which no rule is applied to it


@record
class DerivationStep:
    """One application: the rule's name, and its direction."""

    rule: str
    reverse: bool = False

    def __str__(self) -> str:
        return self.rule + "^-1" * self.reverse


Path = tuple[DerivationStep, ...]
Neighbours = tuple[tuple[DerivationStep, Value], ...]


def directions(
    rules: Sequence[DerivationDef],
) -> tuple[tuple[DerivationStep, t.Derivation, tuple[t.Formula, ...], tuple[t.Formula, ...]], ...]:
    """Every rule, and its reverse where it has one."""
    found = []
    for rule in rules:
        syntax = rule.syntax
        found.append((DerivationStep(rule.name), syntax, syntax.left, syntax.right))
        if syntax.arrow == "<=>":
            found.append((DerivationStep(rule.name, True), syntax, syntax.right, syntax.left))
    return tuple(found)


def rewritten(
    rule: t.Derivation, left: Sequence[t.Formula], right: Sequence[t.Formula], values: Sequence[Value],
    views: Views | None = None,
) -> Iterator[Mapping[Value, Value]]:  # fmt: skip
    """Every way in which a rule rewrites these scopes, one per formula of its left side: new values for them, of the same types.

    `views`: scopes that were taken apart before, and get what is.
    """
    operands = Operands(views={} if views is None else views)
    if any(len(value.type.shape) > ITERATORS for value in values):
        return
    if isinstance(values[0].node, ScopeNode) and not may_apply(rule, values[0].node.scope.body):
        return
    count, unknowns = 0, Unknowns(rule, operands)
    for match in LeftSide(rule, left, operands).match(values):
        for found in unknowns.every(match):
            count += 1
            if count > INSTANCES:
                return
            try:
                results = RightSide(rule, found, operands, values[0].type.dtype).build(right)
            except Unfit:
                continue
            yield {found.formulas[name].value: value for name, value in results.items()}


@dataclass
class Steps:
    """The expressions one step away from another one, anywhere in it; computed once for each scope. Memory of a search."""

    rules: Sequence[DerivationDef]
    normalizer: Normalizer = field(default_factory=Normalizer)
    #: whether expressions that differ in names and orders only are one
    fingerprint: bool = True
    #: rules applied so far
    applications: int = 0
    #: the end, asked between applications
    until: Deadline = FOREVER
    #: scopes taken apart
    views: Views = field(default_factory=dict)
    _known: dict[Value, Neighbours] = field(default_factory=dict)
    _read: dict[Value, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        every = [
            (way_of(left, right), step, syntax, left, right) for step, syntax, left, right in directions(self.rules)
        ]
        self._alone = [each[1:] for each in every if each[0] is SearchWay.ALONE]
        #: rules between two expressions, and whether the second one reads the first
        self._joint = [
            (each[0] is SearchWay.LINKED, *each[1:])
            for each in every
            if each[0] in {SearchWay.BESIDE, SearchWay.LINKED}
        ]

    def start(self, value: Value) -> Value:
        """An expression in the form that the search keeps: merged dimensions in a scope of their own."""
        return self.normal(rebuild((value,), lambda node, args: tuple(map(_apart, with_args(node, args))))[0])

    def normal(self, value: Value) -> Value:
        """The form that the search tells expressions apart by."""
        plain = _without_copies(value, self._read)
        return self.normalizer.value(plain) if self.fingerprint else plain

    def near(self, value: Value) -> Iterator[tuple[DerivationStep, Value]]:
        """The programs one step away, by rules of one expression and of two."""
        yield from self.of(value)
        yield from self.between(value)

    def of(self, value: Value) -> Neighbours:
        """The expressions one step away, each once, with the step."""
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = tuple({new: (step, new) for step, new in self._fresh(value)}.values())
        return found

    def between(
        self, value: Value, wanted: Callable[[ScopeNode], bool] | None = None
    ) -> Iterator[tuple[DerivationStep, Value]]:
        """The programs one step away by rules between two expressions, anywhere in it; or between those that are `wanted`."""
        scopes = [
            node.values[0]
            for node in nodes_of([value])
            if isinstance(node, ScopeNode) and (wanted is None or wanted(node))
        ]
        below = {each: {node.values[0] for node in nodes_of([each])} for each in scopes}
        for linked, step, rule, left, right in self._joint:
            # of two that do not need each other the order is no matter
            for first, second in (permutations if linked else combinations)(scopes, 2):
                if (linked and first not in second.node.args) or (
                    not linked and (first in below[second] or second in below[first])
                ):
                    continue
                for results in rewritten(rule, left, right, (first, second), self.views):
                    self.applications += 1
                    if self.until.over:
                        return
                    # users before what they use
                    order = sorted(results, key=lambda each: -len(below[each]))
                    whole = value
                    for each in order:
                        (whole,) = replace((whole,), {each: results[each]})
                    new = self.normal(whole)
                    if new != value:
                        yield step, new

    def _fresh(self, value: Value) -> Iterator[tuple[DerivationStep, Value]]:
        node = value.node
        if not isinstance(node, ScopeNode):
            return
        for step, rule, left, right in self._alone:
            for results in rewritten(rule, left, right, (value,), self.views):
                self.applications += 1
                if self.until.over:
                    return
                if value not in results:
                    # a rule that replaces nothing
                    continue
                new = self.normal(results[value])
                if new != value:
                    yield step, new
        for arg in dict.fromkeys(node.args):
            for step, below in self.of(arg):
                if below.type == arg.type:
                    yield step, self.normal(replace((value,), {arg: below})[0])


def _apart(value: Value) -> Value:
    """`[(g, f), h] e` → `[(g, f), h] {[g, f, h] e}[g, f, h]`; iterators of one position are no part of an index.

    What is computed of a sum is apart from it too: `[h] (sum[r] e) / 9` → `[h] {[h] sum[r] e}[h] / 9`.
    """
    node = value.node
    if not isinstance(node, ScopeNode):
        return value
    scope = _without_units(node.scope)
    body = _with_numbers(substitute(scope.body, unit_positions(scope)), node.args)
    body = without_others(reduced(body), [arg.type.shape for arg in node.args], scope_ranges(scope))
    inner = renumber(_summed_apart(Scope(scope.extents, body, scope.dtype), node.args))
    if scope.groups is None:
        return inner
    return scope_value(Scope(scope.extents, read(0, scope.iters), scope.dtype, scope.groups), (inner,))


def _without_units(scope: Scope) -> Scope:
    """Merged dimensions without the iterators of one position: `(g: 1, f: 8)` is `f: 8`."""
    if scope.groups is None:
        return scope
    values: dict[Iter, Scalar] = {}
    extents: list[Dim] = []
    groups: list[int] = []
    places = iter(scope.ranges)
    for count in scope.groups:
        own = list(islice(places, count))
        kept = [each for each in own if each[1] != 1] or own[:1]
        values.update({it: num(0) for it, _ in own})
        for it, extent in kept:
            values[it] = traversal(len(extents))
            extents.append(extent)
        groups.append(len(kept))
    body = substitute(scope.body, values)
    return Scope(tuple(extents), body, scope.dtype, tuple(groups) if any(count > 1 for count in groups) else None)


def _with_numbers(body: Scalar, args: Values) -> Scalar:
    """Whole numbers in the place of tensors that hold one everywhere, as what stands around a tensor does: `pad` of 0 is `other=0`."""
    numbers = {
        k: number for k, arg in enumerate(args) if (number := number_of(arg)) is not None and float(number).is_integer()
    }

    def leaf(node: Scalar) -> Scalar | None:
        if not isinstance(node, Read) or node.operand not in numbers or (node.other and node.index):
            return None
        return num(int(numbers[node.operand]))

    return rebuild_scalar(body, leaf) if numbers else body


def _summed_apart(scope: Scope, args: Values) -> Value:
    total, outer = around(scope.body)
    if not total or not outer or not total.reads:
        return scope_value(scope, args)
    # what is the same along an axis is summed once
    kept = [(it, extent) for it, extent in scope.ranges if it in total.free]
    own: dict[Iter, Scalar] = {it: traversal(k) for k, (it, _) in enumerate(kept)}
    summed = scope_value(Scope(tuple(extent for _, extent in kept), substitute(total, own), scope.dtype), args)
    body = rebuild_scalar(outer, lambda node: read(len(args), tuple(it for it, _ in kept)) if node is TOTAL else None)
    return renumber(scope_value(Scope(scope.extents, body, scope.dtype), (*args, summed)))


def _without_copies(value: Value, mapped: dict[Value, Value]) -> Value:
    """Scopes that only look up what another one holds are read through, where that is the same at every position.

    `[x] A[x + 1, 0]` over `A = {[y, z] B[z, y]}` → `[x] B[0, x + 1]`. `mapped` has what became of values, and gets what it lacks.
    """
    for node in nodes_of([value]):
        if node.values[0] in mapped:
            continue
        moved = with_args(node, tuple(mapped[arg] for arg in node.args))
        if isinstance(node, ScopeNode):
            moved = (_original(_read_through(moved[0])),)
        mapped.update(zip(node.values, moved, strict=True))
    return mapped[value]


def _original(value: Value) -> Value:
    """The source of a plain copy: `[i, j] A[i, j]` over all of A → `A`; `[(g, c)] A[4 * g + c]` → `A` where c runs to 4."""
    node = value.node
    if not isinstance(node, ScopeNode) or not isinstance(node.scope.body, Read):
        return value
    scope, body = node.scope, node.scope.body
    source = node.args[body.operand]
    if source.type != value.type:
        return value
    single = unit_positions(scope)
    place: list[Scalar] = []
    for axis in scope.dimensions:
        position: Scalar = num(0)
        for k in axis:
            it = traversal(k)
            position = apply("+", apply("*", position, as_scalar(scope.extents[k])), single.get(it, it))
        place.append(position)
    same = tuple(substitute(at, single) for at in body.index) == tuple(place)
    return source if same else value


def _read_through(value: Value) -> Value:
    node = value.node
    assert isinstance(node, ScopeNode)
    scope, args = node.scope, list(node.args)
    changed = False
    ranges: Ranges | None = None

    def on_read(each: Read, index: tuple[Scalar, ...], other: Scalar | None, depth: int) -> Scalar:
        nonlocal changed, ranges
        below = args[each.operand].node
        if not isinstance(below, ScopeNode) or not isinstance(below.scope.body, Read):
            return read(each.operand, index, other)
        if below.scope.dtype is not below.args[0].type.dtype:
            return read(each.operand, index, other)
        if other:
            if ranges is None:
                ranges = _ranges(scope)
            # the value outside is that of the outer read only where the inner scope is not left
            if not in_bounds(each.index, args[each.operand].type.shape, ranges) and not _leaves_with(below, each.index):
                return read(each.operand, index, other)
        inner = below.scope.body
        at = positions(below.scope, index)
        changed = True

        outside = other

        def of_inner(part: Read, index: tuple[Scalar, ...], other: Scalar | None, depth: int) -> Scalar:
            source = below.args[part.operand]
            if source not in args:
                args.append(source)
            return read(args.index(source), index, other or outside)

        return substitute(inner, at, depth, of_inner)

    body = substitute(scope.body, {}, 0, on_read)
    if not changed:
        return value
    made = scope_value(Scope(scope.extents, body, scope.dtype, scope.groups), tuple(args))
    return _read_through(made)


def _leaves_with(node: ScopeNode, index: Sequence[Scalar]) -> bool:
    """Return whether an index is outside of a scope just where its source is left: `[h, w] A[h // 2, w]` of twice as many rows."""
    scope, body = node.scope, node.scope.body
    if not isinstance(body, Read) or body.other is not None or scope.groups is not None:
        return False
    sizes = dict(scope.ranges)
    read_at: set[Iter] = set()
    for at, size in zip(body.index, node.args[body.operand].type.shape, strict=True):
        factor: Scalar = num(1)
        if at.op == "//" and isinstance(at.args[1], Num):
            at, factor = at.args
        if at is num(0) and size == 1:
            continue
        if not isinstance(at, Iter) or at in read_at or as_scalar(sizes[at]) != apply("*", as_scalar(size), factor):
            return False
        read_at.add(at)
    # along what is not looked up nothing may be left
    return all(it in read_at or (sizes[it] == 1 and at is num(0)) for it, at in zip(scope.iters, index, strict=True))


def _ranges(scope: Scope) -> Ranges:
    return {**sum_ranges(scope.body), **scope_ranges(scope)}
