"""A group of nodes as few scopes: calls expanded, what is cheap put into its users.

What is left are `Part`s: values that are computed once and kept (in memory, in a row's buffer, or in a register: the loop nest says).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from dslc.analysis.narrowing import narrowed, scope_ranges
from dslc.codegen.identities import shortened
from dslc.codegen.text import NotGenerated, Reason
from dslc.errors import DslcError
from dslc.ir.constants import number_of
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Constant, Graph, Input, Scope, ScopeNode, Value, Values, nodes_of, scope_value
from dslc.ir.scalar import (
    Apply,
    Iter,
    Num,
    Read,
    Reduce,
    Scalar,
    Table,
    apply,
    as_scalar,
    num,
    read,
    scalars,
    table,
    walk,
)
from dslc.ir.scopes import converted, inline, inside, substitute
from dslc.records import record
from dslc.semantics.elaborate import expand
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules

#: functions that take so long that they are not computed twice
_HEAVY = frozenset(
    "exp log log1p sqrt rsqrt tanh erf sin cos tan asin acos atan sinh cosh asinh acosh atanh ^ / // %".split()
)


NODES = 2000  #: nodes of one group
TERMS = 4000  #: nodes of one expression
TABLE = 64  #: elements of a constant that is written into the code
OFTEN = 10  #: reads of each element, on average, from which what is computed is kept: more than a window of 3x3 has


@record
class Part:
    """A value that is kept: `scope` over `args`, each an input of the group or another part."""

    value: Value
    scope: Scope
    args: Values
    #: whether it has a stage of its own, for the sake of its tasks
    alone: bool = False

    @property
    def type(self) -> TensorType:
        return self.scope.type

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return tuple(arg.type.dtype for arg in self.args)


@record
class Parts:
    """A group in the order of computation. `outputs`: where each output is: a part, or an input that is handed on."""

    inputs: Values
    parts: tuple[Part, ...]
    outputs: Values


def parts_of(rules: Rules, group: Graph, read_outputs: bool = False, keep: bool = False) -> Parts:
    """The parts of a group.

    With `read_outputs` what needs an output reads it, and doesn't compute it once more; with `keep` what is read many
    times is computed once: what windows read, which is padded or has something added, is a part of its own.

    Raises:
        NotGenerated: OPAQUE, WEIGHT, MEANING or TOO_LARGE.
    """
    try:
        outputs = expand(rules, group.outputs)
    except (Mismatch, EvalError, DslcError) as problem:
        raise NotGenerated(Reason.MEANING, str(problem)) from problem
    nodes = nodes_of(outputs)
    if len(nodes) > NODES:
        raise NotGenerated(Reason.TOO_LARGE, f"{len(nodes)} nodes")
    users: Counter[Value] = Counter(arg for node in nodes for arg in set(node.args))
    users.update(set(outputs))
    mapped: dict[Value, Value] = {}
    read = frozenset(outputs) if read_outputs else frozenset()
    for node in nodes:
        if isinstance(node, Input):
            mapped[Value(node)] = Value(node)
        elif isinstance(node, Constant):
            continue
        elif isinstance(node, ScopeNode):
            mapped[Value(node)] = _fused(node, mapped, users, read, keep)
        else:
            raise NotGenerated(Reason.OPAQUE, type(node).__name__)
    found = tuple(_kept(mapped, value) for value in outputs)
    parts: list[Part] = []
    for node in nodes_of(found):
        if isinstance(node, ScopeNode):
            if sum(1 for _ in walk(node.scope.body)) > TERMS:
                raise NotGenerated(Reason.TOO_LARGE, "an expression")
            parts.append(Part(Value(node), _shortened(node), node.args))
    return Parts(group.inputs, tuple(parts), found)


def _shortened(node: ScopeNode) -> Scope:
    scope = node.scope
    body = shortened(_narrowed(scope.body, scope), tuple(arg.type.dtype for arg in node.args))
    return scope if body is scope.body else replace(scope, body=body)


def _narrowed(body: Scalar, scope: Scope) -> Scalar:
    """A scope's body without guards and quotients that its sizes decide: a position may be affine then."""
    return narrowed(body, scope_ranges(scope))


def _kept(mapped: dict[Value, Value], value: Value) -> Value:
    if not isinstance(value.node, Constant):
        return mapped[value]
    zeros = Scope(value.type.shape, num(0), value.type.dtype)
    return scope_value(replace(zeros, body=_constant(value, zeros.iters)), ())


def _constant(value: Value, index: tuple[Scalar, ...]) -> Scalar:
    """One element of a constant. Raises NotGenerated for a weight."""
    node = value.node
    assert isinstance(node, Constant)
    number = number_of(value)
    if number is not None:
        return num(number)
    if not value.type.is_static or value.type.elements > TABLE:
        raise NotGenerated(Reason.WEIGHT, str(value.type))
    return table(_nested(node.data.load().tolist()), index)


def _nested(values: Any) -> Any:
    return tuple(_nested(item) for item in values) if isinstance(values, list) else values


def _fused(
    node: ScopeNode, mapped: dict[Value, Value], users: Counter[Value], read: frozenset[Value], keep: bool
) -> Value:
    """A scope with its constants and those operands inside that are not worth keeping, none of `read` among them."""
    scope = node.scope
    constants = {k for k, arg in enumerate(node.args) if isinstance(arg.node, Constant)}
    if constants:
        scope = _without_constants(node, constants)
    args = tuple(mapped.get(arg, arg) for arg in node.args)
    value = _tidy(scope, args, node)
    for arg in dict.fromkeys(node.args):
        if arg in mapped and arg not in read and isinstance(mapped[arg].node, ScopeNode):
            inner = mapped[arg]
            current = value.node
            assert isinstance(current, ScopeNode)
            places = [k for k, each in enumerate(current.args) if each == inner]
            if (
                places
                and not (keep and _is_often_read(current, places, inner))
                and _goes_in(current, places, inner, users[arg])
            ):
                for k in reversed(places):
                    value = inline(value, k)
    return value


def _tidy(scope: Scope, args: Values, node: ScopeNode) -> Value:
    used = sorted({each.operand for each in scalars(Read, scope.body)})
    numbers = {old: new for new, old in enumerate(used)}
    body = substitute(scope.body, {}, 0, lambda each, index, other, depth: read(numbers[each.operand], index, other))
    return scope_value(replace(scope, body=_narrowed(body, scope)), tuple(args[k] for k in used))


def _without_constants(node: ScopeNode, constants: set[int]) -> Scope:
    dtypes = tuple(arg.type.dtype for arg in node.args)

    def on_read(each: Read, index: tuple[Scalar, ...], other: Scalar | None, depth: int) -> Scalar:
        if each.operand not in constants:
            return read(each.operand, index, other)
        arg = node.args[each.operand]
        element = _constant(arg, index)
        bare = isinstance(element, Num) and arg.type.dtype.is_float and not isinstance(element.value, bool)
        # the number keeps the type that the tensor had: it decides what it is computed with
        element = (
            element
            if bare and all(each is arg.type.dtype for each in dtypes if each.is_float)
            else converted(element, arg.type.dtype, dtypes)
        )
        return apply("select", inside(index, arg.type.shape), element, other) if other else element

    scope = node.scope
    return replace(scope, body=substitute(scope.body, {}, 0, on_read))


def _goes_in(user: ScopeNode, places: list[int], inner: Value, count: int) -> bool:
    """Return whether an operand is put in the place of its reads: not where it would be computed more often than it is now."""
    node = inner.node
    assert isinstance(node, ScopeNode)
    body = node.scope.body
    reduces = body.binds
    heavy = any(each.op in _HEAVY and not each.integral for each in walk(body))
    if not heavy and not reduces:
        return _is_linear_read(body) or not _is_transform(user.scope.body, places)
    if count > 1:
        return False
    reads = list(reads_of(user.scope.body, places))
    if len({index for index, _ in reads}) != 1:
        return False
    index, around = reads[0]
    own = {it for it, extent in user.scope.ranges if extent != 1} | set(around)
    used = {it for part in index for it in part.free}
    if not own <= used:
        return False
    # a reduction inside a reduction, or one that is computed for places where it is not needed, is better kept
    return not reduces or (not around and all(isinstance(part, Iter | Num) for part in index))


def _is_often_read(user: ScopeNode, places: list[int], inner: Value) -> bool:
    """Return whether something is computed, and read so many times that computing it once is worth a pass through memory."""
    node = inner.node
    assert isinstance(node, ScopeNode)
    # positions are of use where they are known
    if _is_linear_read(node.scope.body) or not node.scope.body.reads:
        return False
    sizes: dict[Iter, Scalar] = dict(zip(user.scope.iters, map(as_scalar, user.scope.extents), strict=True))
    for each in walk(user.scope.body):
        if isinstance(each, Reduce):
            sizes.update(each.ranges)
    most = 0
    for _, around in reads_of(user.scope.body, places):
        extents = [sizes[it] for it in (*user.scope.iters, *around)]
        if not inner.type.is_static or not all(isinstance(extent, Num) for extent in extents):
            return False
        most = max(most, prod(int(extent.value) for extent in extents if isinstance(extent, Num)))
    return most >= OFTEN * inner.type.elements


def _is_transform(body: Scalar, places: Sequence[int]) -> bool:
    """Return whether elements of an operand are added times constant tables.

    Tiles overlap, so that each is asked for several times, and products between transforms (`filtered`) want to know
    where it is.
    """
    found = tabled(body)
    return found is not None and found.operand in places


def tabled(node: Scalar) -> Read | None:
    """The element in a sum of products of constant tables and one element; None where a node is no such sum."""
    if not isinstance(node, Reduce) or node.kind != "sum" or node.body.op != "*":
        return None
    factors = node.body.args
    reads = [each for each in factors if isinstance(each, Read)]
    tables = sum(isinstance(each, Table) for each in factors)
    return reads[0] if len(reads) == 1 and tables == len(factors) - 1 > 0 else None


def _is_linear_read(body: Scalar) -> bool:
    """Return whether an element is one of another tensor, at positions that are sums of multiples of iterators."""
    return isinstance(body, Read) and not any(
        part.name not in ("+", "-", "*") for at in body.index for part in scalars(Apply, at)
    )


def reads_of(body: Scalar, places: list[int]) -> Iterator[tuple[tuple[Scalar, ...], tuple[Iter, ...]]]:
    """Index and surrounding reduction iterators of each read of some operands."""
    stack: list[tuple[Scalar, tuple[Iter, ...]]] = [(body, ())]
    seen: set[tuple[Scalar, tuple[Iter, ...]]] = set()
    while stack:
        node, around = stack.pop()
        if (node, around) in seen:
            continue
        seen.add((node, around))
        if isinstance(node, Read) and node.operand in places:
            yield node.index, around
        inner = (*around, *node.iters) if isinstance(node, Reduce) else around
        stack.extend((child, inner) for child in node.children)
