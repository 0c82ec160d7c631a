"""Terms over the operators of a generation, hash-consed: equal terms are one object.

A term is an input, or one output of an application of a menu item. Its type carries a split tree for every dimension (TASO, section
2.1 and Figure 3): the size of a dimension together with the points where tensors were joined, so that cutting a tensor needs no
position: it is cut where it was joined last.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from itertools import islice
from typing import Any, ClassVar, TypeAlias

from dslc.ir.dtype import Dim, DType, TensorType
from dslc.ir.graph import Attrs, Value, Values, input_value
from dslc.ir.scalar import Apply, Num, dimension
from dslc.records import record
from dslc.semantics.apply import apply
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules, rules_cache

# ---- Terms over the operators of a generation, hash-consed: equal terms are one object -----------------------------

#: a size, or the trees of the two parts that were joined last
Tree: TypeAlias = "int | tuple[Tree, Tree]"
Terms: TypeAlias = "tuple[Term, ...]"


def total(tree: Tree) -> int:
    """The size of a dimension."""
    return tree if isinstance(tree, int) else total(tree[0]) + total(tree[1])


def meet(a: Tree, b: Tree) -> Tree:
    """The cuts that two trees of one size have in common."""
    if a == b:
        return a
    if isinstance(a, int) or isinstance(b, int) or total(a[0]) != total(b[0]):
        return total(a)
    return (meet(a[0], b[0]), meet(a[1], b[1]))


class _Hashed:
    """A dataclass that remembers its hash; another process hashes in its own way."""

    __slots__ = ("_hash",)
    _hash: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            own = hash(tuple(getattr(self, each.name) for each in fields(self)))  # type: ignore[arg-type]
            object.__setattr__(self, "_hash", own)
            return own


@record
class TermType(_Hashed):
    """An element type, and a split tree for every dimension."""

    dtype: DType
    dims: tuple[Tree, ...]
    __hash__ = _Hashed.__hash__

    @property
    def shape(self) -> tuple[int, ...]:
        return _sizes(self.dims)

    @property
    def tensor(self) -> TensorType:
        return _tensor(self.dtype, self.dims)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(_show_tree, self.dims))}]"


@functools.cache
def _sizes(dims: tuple[Tree, ...]) -> tuple[int, ...]:
    return tuple(map(total, dims))


@functools.cache
def _tensor(dtype: DType, dims: tuple[Tree, ...]) -> TensorType:
    return TensorType(dtype, _sizes(dims))


def _show_tree(tree: Tree) -> str:
    return str(tree) if isinstance(tree, int) else f"({_show_tree(tree[0])} + {_show_tree(tree[1])})"


@record
class Item(_Hashed):
    """A menu item: an operator with one choice of its attributes.

    `op` is the qualified name; `attrs` are all attributes but `cut`, complete, in declared order. `cut` names the attribute of the
    sizes of the parts where the operator undoes a joining one; its value at an application is `parts(item, type)`. `axis` is the
    axis that is cut. `sized` names the attributes whose values were taken from the shapes in play (the sizes of a constant, say): in
    a rule they are to be written by the sizes of other tensors, not as numbers.
    """

    op: str
    attrs: Attrs = ()
    cut: str | None = None
    axis: int | None = None
    sized: tuple[str, ...] = ()
    __hash__ = _Hashed.__hash__

    @property
    def short(self) -> str:
        return self.op.rpartition(".")[2]

    def __str__(self) -> str:
        return f"{self.short}({', '.join(f'{name}={show_attribute(value)}' for name, value in self.attrs)})"


def entries(value: Any) -> tuple[Any, ...]:
    """The entries of an attribute; a single value is one."""
    return value if isinstance(value, tuple) else (value,)


def parts(item: Item, type: TermType) -> tuple[int, int] | None:
    """The sizes into which a cutting item cuts a tensor; None where the tensor was not joined along that axis."""
    assert item.axis is not None
    tree = type.dims[item.axis] if item.axis < len(type.dims) else 0
    return None if isinstance(tree, int) else (total(tree[0]), total(tree[1]))


def attributes(item: Item, types: Sequence[TermType]) -> dict[str, Any]:
    """All attributes of an application of the item to tensors of the given types (a cutting item cuts the first)."""
    out: dict[str, Any] = dict(item.attrs)
    if item.cut is not None:
        out[item.cut] = parts(item, types[0])
    return out


class Term:
    """Build terms with `input_term` and `applied`, never by the class."""

    __slots__ = ("__weakref__", "_below", "args", "index", "item", "output", "type")
    _pool: ClassVar[weakref.WeakValueDictionary[Any, Term]] = weakref.WeakValueDictionary()
    #: None for an input
    item: Item | None
    args: Terms
    #: which output of the application
    output: int
    #: the number of an input; -1 for applications
    index: int
    type: TermType
    _below: Terms | None

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.item:
            return input_term, (self.index, self.type)
        return applied, (self.item, self.args, self.output, self.type)

    @property
    def is_input(self) -> bool:
        return self.item is None

    @property
    def is_constant(self) -> bool:
        """True where the term is an operator without tensors: a leaf, as inputs are."""
        return self.item is not None and not self.args

    @property
    def is_leaf(self) -> bool:
        return not self.args

    @property
    def below(self) -> Terms:
        """Every distinct proper subterm, arguments first, in order of first occurrence."""
        if self._below is None:
            self._below = tuple(subterms(self.args))
        return self._below

    @property
    def node(self) -> tuple[Item, Terms]:
        """The application: the outputs of one application are the same computation."""
        assert self.item
        return (self.item, self.args)

    @property
    def size(self) -> int:
        """The number of operators."""
        return size((self,))

    def __str__(self) -> str:
        return show(self)

    def __repr__(self) -> str:
        return f"<{self}>"


def _intern(item: Item | None, args: Terms, output: int, index: int, type: TermType) -> Term:
    key = (item, args, output, index, type)
    found = Term._pool.get(key)
    if not found:
        found = Term.__new__(Term)
        found.item, found.args, found.output, found.index, found.type = item, args, output, index, type
        found._below = None
        Term._pool[key] = found
    return found


def input_term(index: int, type: TermType) -> Term:
    """The input of a number."""
    return _intern(None, (), 0, index, type)


def applied(item: Item, args: Terms, output: int, type: TermType) -> Term:
    """One output of an application. Callers that don't know its type use `dslc.generate.terms.term.outputs`."""
    return _intern(item, args, output, -1, type)


@record
class Equation:
    """Two terms that have the same value for all inputs that were tried."""

    left: Term
    right: Term

    @property
    def roots(self) -> tuple[Term, Term]:
        return self.left, self.right

    def __str__(self) -> str:
        return f"{self.left} == {self.right}"


@record
class Conjecture:
    """A substitution that may hold: output k of the source is output k of the target."""

    sources: Terms
    targets: Terms

    @property
    def roots(self) -> Terms:
        return (*self.sources, *self.targets)

    @property
    def binds(self) -> bool:
        """True where all sources are computed, of all inputs that the targets have."""
        return not any(term.is_leaf for term in self.sources) and set(inputs(self.targets)) <= set(inputs(self.sources))

    @property
    def turned(self) -> Conjecture:
        return Conjecture(self.targets, self.sources)

    @property
    def size(self) -> int:
        """The number of operators of the larger side."""
        return max(size(self.sources), size(self.targets))

    def __str__(self) -> str:
        left, right = (", ".join(map(str, side)) for side in (self.sources, self.targets))
        return f"{left} => {right}"


# ---- walks -----------------------------------------------------------------------------------------------------


def subterms(roots: Iterable[Term]) -> Iterator[Term]:
    """Every distinct term below the roots and the roots themselves, arguments first, in order of first occurrence."""
    if isinstance(roots, tuple) and len(roots) == 1:
        return iter((*roots[0].below, roots[0]))
    listed: dict[Term, None] = {}
    for root in roots:
        listed.update(dict.fromkeys(root.below))
        listed[root] = None
    return iter(listed)


def applications(roots: Iterable[Term]) -> tuple[tuple[Item, Terms], ...]:
    """The distinct applications of operators to tensors, arguments first; constants are no operators here."""
    return tuple(dict.fromkeys(term.node for term in subterms(roots) if term.args))


def size(roots: Iterable[Term]) -> int:
    """The number of operators of a graph: shared subterms count once, the outputs of one application once, constants not at all."""
    return len(applications(roots))


def inputs(roots: Iterable[Term]) -> Terms:
    """The distinct inputs in order of first occurrence."""
    return tuple(term for term in subterms(roots) if term.is_input)


# ---- renaming --------------------------------------------------------------------------------------------------

#: makes all outputs of an application, of the right types: `functools.partial(dslc.generate.terms.term.outputs, rules)`
Build: TypeAlias = Callable[[Item, Terms], Terms]


def substitute(roots: Sequence[Term], values: Mapping[Term, Term], build: Build | None = None) -> Terms:
    """The roots with some of their subterms replaced.

    `build` is needed where a replacement's type differs from that of what it replaces, and may raise Mismatch.

    Raises:
        ValueError: a type changes and no `build` is given.
    """
    done: dict[Term, Term] = dict(values)

    def visit(root: Term) -> Term:
        found = done.get(root)
        if found:
            return found
        args = tuple(map(visit, root.args))
        if args == root.args:
            new = root
        elif all(a.type == b.type for a, b in zip(args, root.args, strict=True)):
            assert root.item
            new = applied(root.item, args, root.output, root.type)
        elif build is not None:
            assert root.item
            new = build(root.item, args)[root.output]
        else:
            raise ValueError(f"the type of an argument of {root} changes")
        done[root] = new
        return new

    return tuple(map(visit, roots))


def rename(roots: Sequence[Term], numbers: Mapping[int, int]) -> Terms:
    """Inputs renumbered; each keeps its type."""
    return substitute(roots, {term: input_term(numbers[term.index], term.type) for term in inputs(roots)})


def in_order(roots: Sequence[Term]) -> Terms:
    """Inputs numbered 0, 1, ... by first occurrence: equal results mean that the roots are equal up to renaming."""
    return rename(roots, {term.index: k for k, term in enumerate(inputs(roots))})


# ---- printing and graphs ---------------------------------------------------------------------------------------


def show_attribute(value: Any) -> str:
    """An attribute's value as text."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(show_attribute, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def show(term: Term) -> str:
    """`matmul(x0, transpose(x1, perm=[1, 0]))`; output 1 of an application ends in `.1`."""
    if not term.item:
        return f"x{term.index}"
    named = [f"{name}={show_attribute(value)}" for name, value in term.item.attrs]
    text = f"{term.item.short}({', '.join([*(show(arg) for arg in term.args), *named])})"
    return text if term.item.cut is None and term.output == 0 else f"{text}.{term.output}"


def values(rules: Rules, roots: Sequence[Term], feeds: Mapping[Term, Value]) -> Values:
    """The terms as graphs over the given values of their inputs (of the inputs' shapes).

    Raises:
        Mismatch: shapes that do not fit (the shapes of the values differ from those of the inputs).
    """
    done: dict[Term, Value] = dict(feeds)
    for term in subterms(roots):
        if term in done:
            continue
        assert term.item
        attrs = attributes(term.item, [arg.type for arg in term.args])
        done[term] = apply(rules, term.item.op, [done[arg] for arg in term.args], attrs)[term.output]
    return tuple(done[root] for root in roots)


# ---- Types of applications: shapes by the operators' declarations, split trees by how sizes go through them --------

Place = tuple[int, int]
_SIZE = dimension("size")


@record
class Flow:
    """The flow of sizes: for each output and dimension the groups of places (argument, axis) whose sizes it is the sum of.

    The places of a group have one size. An empty list: the size is computed in another way.
    """

    outputs: tuple[tuple[tuple[frozenset[Place], ...], ...], ...]
    #: the groups of places whose size may be changed while all others stay
    groups: tuple[frozenset[Place], ...] = field(default=())


def shapes(rules: Rules, item: Item, types: Sequence[TermType]) -> tuple[TensorType, ...] | None:
    """The types of the results; None where the item does not apply."""
    if item.cut is not None and (
        item.axis is None or item.axis >= len(types[0].dims) or isinstance(types[0].dims[item.axis], int)
    ):
        return None
    return _shapes(rules, item, tuple(type.tensor for type in types), attributes(item, types))


def _shapes(
    rules: Rules, item: Item, types: tuple[TensorType, ...], attrs: dict[str, Any]
) -> tuple[TensorType, ...] | None:
    cache: dict[Any, tuple[TensorType, ...] | None] = rules_cache(rules, "generate.shapes")
    key = (item, types, attrs.get(item.cut) if item.cut is not None else None)
    if key not in cache:
        found = _applied(rules, item, types, attrs)
        whole = found is not None and all(type.is_static and 0 not in type.shape for type in found)
        cache[key] = found if whole else None
    return cache[key]


def _applied(
    rules: Rules, item: Item, types: Iterable[TensorType], attrs: dict[str, Any]
) -> tuple[TensorType, ...] | None:
    args = [input_value(f"a{k}", type) for k, type in enumerate(types)]
    try:
        return tuple(value.type for value in apply(rules, item.op, args, attrs))
    except (Mismatch, EvalError, TypeError, ValueError):
        return None


def output_types(rules: Rules, item: Item, types: Sequence[TermType]) -> tuple[TermType, ...] | None:
    """The types of the results with their split trees; None where the item does not apply."""
    cache: dict[Any, tuple[TermType, ...] | None] = rules_cache(rules, "generate.types")
    key = (item, tuple(types))
    if key not in cache:
        cache[key] = _output_types(rules, item, types)
    return cache[key]


def _output_types(rules: Rules, item: Item, types: Sequence[TermType]) -> tuple[TermType, ...] | None:
    found = shapes(rules, item, types)
    if found is None:
        return None
    where = flow(rules, item, types)
    out = []
    for k, type in enumerate(found):
        dims = []
        for axis, size in enumerate(type.shape):
            assert isinstance(size, int)
            tree = _tree(where.outputs[k][axis], types) if axis < len(where.outputs[k]) else None
            if item.cut is not None and axis == item.axis:
                whole = types[0].dims[axis]
                tree = whole[k] if isinstance(whole, tuple) and k < 2 else None
            dims.append(tree if tree is not None and total(tree) == size else size)
        out.append(TermType(type.dtype, tuple(dims)))
    return tuple(out)


def _tree(groups: tuple[frozenset[Place], ...], types: Sequence[TermType]) -> Tree | None:
    joined: Tree | None = None
    for group in groups:
        tree: Tree | None = None
        for k, axis in sorted(group):
            here = types[k].dims[axis]
            tree = here if tree is None else meet(tree, here) if total(tree) == total(here) else total(tree)
        assert tree is not None
        joined = tree if joined is None else (joined, tree)
    return joined


def flow(rules: Rules, item: Item, types: Sequence[TermType]) -> Flow:
    """The flow of sizes through an application; found once for each item, ranks and places of size 1 (which may broadcast)."""
    cache: dict[Any, Flow] = rules_cache(rules, "generate.flow")
    key = (item, tuple(tuple(size == 1 for size in type.shape) for type in types))
    if key not in cache:
        cache[key] = _flow(rules, item, tuple(type.tensor for type in types), attributes(item, types))
    return cache[key]


def _flow(rules: Rules, item: Item, types: tuple[TensorType, ...], attrs: dict[str, Any]) -> Flow:
    results = _shapes(rules, item, types, attrs)
    assert results is not None
    arriving: list[list[list[tuple[frozenset[Place], int]]]] = [[[] for _ in type.shape] for type in results]

    def unknown(group: frozenset[Place]) -> tuple[TensorType, ...] | None:
        """The results' types where the sizes at some places are one unknown."""
        return _applied(
            rules,
            item,
            (
                TensorType(type.dtype, tuple(_SIZE if (k, axis) in group else n for axis, n in enumerate(type.shape)))
                for k, type in enumerate(types)
            ),
            attrs,
        )

    groups = _groups(types, unknown)
    for group in groups:
        changed = unknown(group)
        if changed is None or any(a.rank != b.rank for a, b in zip(changed, results, strict=True)):
            continue
        for k, type in enumerate(changed):
            for axis, size in enumerate(type.shape):
                rest = _beside(size)
                if rest is not None:
                    arriving[k][axis].append((group, rest))

    def sources(found: list[tuple[frozenset[Place], int]]) -> tuple[frozenset[Place], ...]:
        own = [group for group, rest in found if rest == 0]
        if own:
            return tuple(own[:1])
        ordered = sorted(found, key=lambda entry: min(entry[0]))
        sizes = [types[k].shape[axis] for k, axis in (min(group) for group, _ in ordered)]
        known = [size for size in sizes if isinstance(size, int)]
        whole = len(known) == len(sizes) and all(
            rest + size == sum(known) for (_, rest), size in zip(ordered, known, strict=True)
        )
        return tuple(group for group, _ in ordered) if whole else ()

    return Flow(tuple(tuple(map(sources, axes)) for axes in arriving), groups)


def _beside(size: Dim) -> int | None:
    """C where the size is the unknown plus c; None where it is something else."""
    if size is _SIZE:
        return 0
    if isinstance(size, Apply) and size.name == "+" and len(size.args) == 2 and _SIZE in size.args:
        (other,) = (arg for arg in size.args if arg is not _SIZE) if size.args[0] is not size.args[1] else (None,)
        if isinstance(other, Num) and isinstance(other.value, int):
            return other.value
    return None


def _groups(
    types: tuple[TensorType, ...], unknown: Callable[[frozenset[Place]], object]
) -> tuple[frozenset[Place], ...]:
    """The groups of places whose size may be changed while all others stay."""
    places = [(k, axis) for k, type in enumerate(types) for axis in range(type.rank)]
    found: list[frozenset[Place]] = []
    for place in places:
        if any(place in group for group in found):
            continue
        partners = [p for p in places if p[0] > place[0] and types[p[0]].shape[p[1]] == types[place[0]].shape[place[1]]]
        # the same axis of another argument first
        partners.sort(key=lambda p: (p[1] != place[1], p))
        options = [frozenset({place})]
        options += [frozenset({place, p}) for p in partners]
        by_axis = frozenset({place, *(p for p in partners if p[1] == place[1])})
        if len(by_axis) > 2:
            options.append(by_axis)
        found += islice((group for group in options if unknown(group) is not None), 1)
    return tuple(found)


def outputs(rules: Rules, item: Item, args: Terms) -> Terms:
    """All outputs of an application.

    Raises:
        Mismatch: the item does not apply to these arguments.
    """
    types = output_types(rules, item, [arg.type for arg in args])
    if types is None:
        raise Mismatch(f"{item} does not apply to {', '.join(str(arg.type) for arg in args)}")
    return tuple(applied(item, args, k, type) for k, type in enumerate(types))
