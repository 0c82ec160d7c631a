"""The normal form of an expression, whose identity is EinNet's fingerprint (OSDI'23, section 6.2).

Four redundancies vanish: the order of summations, the order of operands of commutative functions, the names of iterators, and the
names of intermediate tensors (a graph has none: equal scopes are one object). Nested reductions of one kind become one, and
iterators of reductions over one position go. Scopes stay, and so do the order of traversal iterators and those of extent 1, or
a split would look like what it came from.

The iterators of a reduction are told apart by where they occur; those that are alike in that are tried in every order, up to a
limit. Beyond it two equal expressions may keep different forms: a form never stands for two different expressions.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, permutations, product

from dslc.ir.graph import (
    Call,
    Constant,
    Graph,
    Input,
    Kernel,
    Node,
    Opaque,
    Scope,
    ScopeNode,
    Value,
    Values,
    kernel_value,
    scope_value,
    with_args,
)
from dslc.ir.graph import rebuild as rebuild_graph
from dslc.ir.scalar import (
    Iter,
    Num,
    Read,
    Reduce,
    Scalar,
    Table,
    apply,
    bound,
    num,
    raw_apply,
    rebuild,
    reduce,
    rewrite,
    walk,
    with_children,
)
from dslc.ir.scopes import each_of, renumbered, substitute

#: functions of two or more operands in any order; `+` and `*` are kept in order by their constructors
_SYMMETRIC = frozenset({"==", "!=", "and", "or", "min", "max"})
_ASSOCIATIVE = frozenset({"and", "or", "min", "max"})
#: functions whose operands the normal form has in one order
_ORDERLESS = _SYMMETRIC | {"+", "*"}


ORDERS = 120  #: orders of alike iterators of one reduction that are tried


class Normalizer:
    """Normal forms of values, each computed once: what graphs have in common is looked at once."""

    def __init__(self) -> None:
        self._nodes: dict[Node, Sequence[Value]] = {}
        self._labels: dict[Value, str] = {}
        # bodies stay as they are where only what they read is another one
        self._forms: dict[Scalar, Scalar] = {}

    def value(self, value: Value) -> Value:
        """`{[i0] $1[i0] * $0[i0]}(A, {[j] ...})` → the same with operands, summations and factors in their one order."""
        return rebuild_graph([value], self._node, memo=self._nodes)[0]

    def _node(self, node: Node, args: Values) -> Values:
        if isinstance(node, ScopeNode):
            return (self._scope(node.scope, args),)
        if isinstance(node, Kernel):
            group = node.group
            inside = rebuild_graph(group.outputs, self._node, memo=self._nodes)
            return kernel_value(group if inside == group.outputs else Graph(group.inputs, inside), args)
        return with_args(node, args)

    def _scope(self, scope: Scope, args: Sequence[Value]) -> Value:
        labels = [self.label(arg) for arg in args]
        # operands in the order of their labels, whatever reads them first
        used = sorted({node.operand for node in each_of(Read, scope.body)}, key=lambda k: labels[k])
        numbers: dict[int, int] = {}
        operands: list[Value] = []
        for k in used:
            if args[k] not in operands:
                operands.append(args[k])
            numbers[k] = operands.index(args[k])
        body = scope.body
        if any(k != number for k, number in numbers.items()):
            body = substitute(body, {}, 0, renumbered(numbers.__getitem__))
        groups = scope.groups if scope.groups is not None and any(count != 1 for count in scope.groups) else None
        form = self._forms.get(body)
        if not form:
            form = self._forms[body] = form_of(body)
        whole = Scope(scope.extents, form, scope.dtype, groups)
        if len({node.operand for node in each_of(Read, whole.body)}) < len(operands):
            return self._scope(whole, operands)  # what was read twice in one maximum is read once
        return scope_value(whole, tuple(operands))

    def label(self, value: Value) -> str:
        """A text that says what a value is, equal for equal normal values: input tensors keep their identity."""
        found = self._labels.get(value)
        if found is None:
            found = self._labels[value] = self._label(value)
        return found

    def _label(self, value: Value) -> str:
        node = value.node
        if isinstance(node, Input):
            return f"{'weight' if node.constant else 'input'} {node.name}: {node.types[0]}"
        if isinstance(node, Constant):
            return f"constant {node.data.key}: {node.types[0]}"
        args = ", ".join(self.label(arg) for arg in node.args)
        if isinstance(node, ScopeNode):
            own = f"{node.scope} {node.scope.groups} {node.scope.dtype}"
        elif isinstance(node, Call):
            own = f"{node.op} {node.tag}"
        elif isinstance(node, Kernel):
            own = f"kernel {[self.label(each) for each in (*node.group.inputs, *node.group.outputs)]}"
        else:
            own = node.key if isinstance(node, Opaque) else type(node).__name__
        # of one length, however deep the graph is
        return hashlib.sha256(f"{own}({args}).{value.index}".encode()).hexdigest()


def normal(value: Value) -> Value:
    """The normal form of one value. See `Normalizer` for several."""
    return Normalizer().value(value)


def form_of(body: Scalar) -> Scalar:
    """The normal form of an expression below iterators whose names are final: `max(max(b, a), a)` → `max(a, b)`."""
    return _named(_simplified(_flat(body)) if body.binds else body, 0, {})


def _named(node: Scalar, depth: int, names: Mapping[Iter, Scalar]) -> Scalar:
    """The expression with its reductions' iterators in their order, and named by it."""
    if isinstance(node, Iter):
        return names.get(node, node)
    if isinstance(node, Reduce):
        return min((_in_order(node, order, depth, names) for order in _orders(node, names)), key=str)
    parts = [_named(part, depth, names) for part in node.children]
    if node.op in _SYMMETRIC:
        return _folded(node.op, sorted(parts, key=str))
    return apply(node.op, *parts) if node.op else with_children(node, parts)


def _in_order(node: Reduce, order: Sequence[int], depth: int, names: Mapping[Iter, Scalar]) -> Scalar:
    inner = dict(names)
    iters: list[Iter] = []
    extents: list[Scalar] = []
    for below, k in enumerate(order, depth):
        extents.append(_named(node.extents[k], below, inner))
        iters.append(bound(below))
        inner[node.iters[k]] = iters[-1]
    depth += len(iters)
    where = _named(node.where, depth, inner) if node.where else None
    return reduce(node.kind, tuple(iters), tuple(extents), _named(node.body, depth, inner), where)


def _orders(node: Reduce, names: Mapping[Iter, Scalar]) -> Iterator[tuple[int, ...]]:
    """Orders of a reduction's iterators that may be its first one: by signatures, alike ones in every order up to a limit."""
    if len(node.iters) == 1:
        return iter([(0,)])
    classes: dict[tuple[int, str], list[int]] = {}
    for k, signature in enumerate(_signatures(node, names)):
        classes.setdefault((_after(node, k), signature), []).append(k)
    choices = product(*(permutations(members) for _, members in sorted(classes.items())))
    return islice((tuple(chain.from_iterable(chosen)) for chosen in choices), ORDERS)


def _signatures(node: Reduce, names: Mapping[Iter, Scalar]) -> list[str]:
    """Signature of an iterator without its name: the reduction with the iterator marked, and the others by their signatures."""
    own = set(node.iters)
    marks = [f"?{extent}" if own.isdisjoint(extent.free) else "?" for extent in node.extents]
    outer = {it: str(name) for it, name in names.items()}
    parts = [node.body, *([node.where] if node.where else [])]
    for _ in range(2):
        count = Counter(marks)
        if len(count) == len(marks):
            return marks
        found = list(marks)
        for k, mark in enumerate(marks):
            if count[mark] > 1:
                shown = _Shown({**outer, **dict(zip(node.iters, marks, strict=True)), node.iters[k]: f"{mark}!"}, 0)
                text = " where ".join(shown.go(part) for part in parts)
                found[k] = f"?{hashlib.sha256(f'{mark} {text}'.encode()).hexdigest()[:16]}"
        marks = found
    return marks


class _Shown:
    """Expressions as text that is the same in whatever order operands and summations stand, and whatever is bound inside is named."""

    __slots__ = ("level", "memo", "names")

    def __init__(self, names: Mapping[Iter, str], level: int) -> None:
        self.names, self.level = names, level
        self.memo: dict[Scalar, str] = {}

    def go(self, node: Scalar) -> str:
        found = self.memo.get(node)
        if found is None:
            found = self.memo[node] = self._fresh(node)
        return found

    def _fresh(self, node: Scalar) -> str:
        if isinstance(node, Iter):
            return self.names.get(node, node.name)
        if node.op:
            parts = sorted(self._operands(node)) if node.op in _ORDERLESS else map(self.go, node.args)
            return f"{node.op}({', '.join(parts)})"
        if isinstance(node, Read | Table):
            head = node.operand if isinstance(node, Read) else node.values
            other = "" if not isinstance(node, Read) or not node.other else f" else {self.go(node.other)}"
            return f"{head}[{', '.join([self.go(part) for part in node.index])}{other}]"
        if isinstance(node, Reduce):
            inside = dict(self.names)
            sizes = []
            for it, extent in node.ranges:
                sizes.append(_Shown(inside, self.level + 1).go(extent))
                inside[it] = f"?{self.level} {sizes[-1]}"
            below = _Shown(inside, self.level + 1)
            where = f" where {below.go(node.where)}" if node.where else ""
            return f"{node.kind}[{', '.join(sorted(sizes))}{where}] {below.go(node.body)}"
        return str(node)

    def _operands(self, node: Scalar) -> Iterator[str]:
        for arg in node.args:
            if arg.op == node.op and node.op not in {"==", "!="}:
                yield from self._operands(arg)
            else:
                yield self.go(arg)


def _after(node: Reduce, k: int) -> int:
    """Number of iterators that must come before one, since its extent uses them."""
    own = {it: j for j, it in enumerate(node.iters)}
    return max((1 + _after(node, own[it]) for it in node.extents[k].free if it in own and own[it] < k), default=0)


# ---- shapes of expressions -------------------------------------------------------------------------------------------


def _simplified(root: Scalar) -> Scalar:
    """The expression with every function of it in the form of the smart constructors: what signatures of iterators are told by."""
    return rewrite(root, lambda node: apply(node.op, *node.args) if node.op else node)


def _flat(node: Scalar) -> Scalar:
    """Nested reductions of one kind as one, without iterators of one position; nested `min`, `max`, `and`, `or` as one."""

    def leaf(part: Scalar) -> Scalar | None:
        return _flat_reduction(part) if isinstance(part, Reduce) else None if part.binds else part

    return rebuild(node, leaf)


def _flat_reduction(node: Reduce) -> Scalar:
    single: dict[Iter, Scalar] = {
        it: num(0) for it, extent in node.ranges if isinstance(extent, Num) and extent.value == 1
    }
    if not single and not any(part.binds for part in node.children):
        return node
    # every reduction inside binds names that occur nowhere else in it, so that they can be joined
    depth = _beyond(node)

    def put(part: Scalar) -> Scalar:
        return _flat(substitute(part, single, depth) if part.binds or single else part)

    iters: list[Iter] = []
    extents: list[Scalar] = []
    for it, extent in node.ranges:
        if it not in single:
            iters.append(it)
            extents.append(put(extent))
    where = put(node.where) if node.where else None
    body = put(node.body)
    while (joined := _inner(node.kind, frozenset(iters), body)) is not None:
        inner, body = joined
        iters += inner.iters
        extents += inner.extents
        if inner.where is not None:
            where = apply("and", where, inner.where) if where else inner.where
    if not iters and where:
        # one position, perhaps none
        return Reduce._make(body, (num(1),), (bound(depth),), node.kind, where)
    return reduce(node.kind, tuple(iters), tuple(extents), body, where)


def _inner(kind: str, iters: frozenset[Iter], body: Scalar) -> tuple[Reduce, Scalar] | None:
    """A reduction inside that is one with that around it, and the body of both: `sum[a] sum[b] f`, `sum[a] c * sum[b] f(a, b)`.

    A factor that does not depend on `a` stays: it is computed once, and not for each `a`.
    """
    if isinstance(body, Reduce) and body.kind == kind:
        return body, body.body
    if kind == "sum" and body.op == "*":
        sums = [arg for arg in body.args if isinstance(arg, Reduce) and arg.kind == "sum"]
        if len(sums) == 1 and sums[0].free & iters:
            return sums[0], apply("*", *(arg for arg in body.args if arg is not sums[0]), sums[0].body)
    return None


def _beyond(node: Reduce) -> int:
    """A depth of which no name occurs in a reduction."""
    found = {it.name for part in walk(node) for it in (part.iters if isinstance(part, Reduce) else part.free)}
    return 1 + max((int(name[1:]) for name in found if name[0] == "r" and name[1:].isdigit()), default=0)


def _folded(name: str, args: Sequence[Scalar]) -> Scalar:
    """A symmetric function of operands in their order; associative ones of all that are nested in them."""
    if name not in _ASSOCIATIVE:
        return raw_apply(name, *args) if not any(isinstance(arg, Num) for arg in args) else apply(name, *args)
    parts = dict.fromkeys(part for arg in args for part in _nested(name, arg))
    numbers = [part for part in parts if isinstance(part, Num)]
    # numbers first, which become one
    flat = [*numbers, *sorted((part for part in parts if not isinstance(part, Num)), key=str)]
    return functools.reduce(functools.partial(apply, name), flat)


def _nested(name: str, node: Scalar) -> Iterator[Scalar]:
    """The operands of an associative function, those of the same one inside included."""
    if node.op == name:
        for arg in node.args:
            yield from _nested(name, arg)
    else:
        yield node
