"""Terms over the operators of a generation, hash-consed: equal terms are one object.

A term is an input, or one output of an application of a menu item. Its type carries a split tree for every dimension (TASO, section
2.1 and Figure 3): the size of a dimension together with the points where tensors were joined, so that cutting a tensor needs no
position: it is cut where it was joined last.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Attrs, Value
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules

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


@dataclass(frozen=True, slots=True)
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
        return f"{self.dtype}[{', '.join(_show_tree(tree) for tree in self.dims)}]"


@functools.cache
def _sizes(dims: tuple[Tree, ...]) -> tuple[int, ...]:
    return tuple(total(tree) for tree in dims)


@functools.cache
def _tensor(dtype: DType, dims: tuple[Tree, ...]) -> TensorType:
    return TensorType(dtype, _sizes(dims))


def _show_tree(tree: Tree) -> str:
    return str(tree) if isinstance(tree, int) else f"({_show_tree(tree[0])} + {_show_tree(tree[1])})"


@dataclass(frozen=True, slots=True)
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
        if self.item is None:
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
        found = self._below
        if found is None:
            listed: dict[Term, None] = {}
            for arg in self.args:
                listed.update(dict.fromkeys(arg.below))
                listed[arg] = None
            found = self._below = tuple(listed)
        return found

    @property
    def node(self) -> tuple[Item, Terms]:
        """The application: the outputs of one application are the same computation."""
        assert self.item is not None
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
    if found is None:
        found = Term.__new__(Term)
        found.item, found.args, found.output, found.index, found.type = item, args, output, index, type
        found._below = None
        Term._pool[key] = found
    return found


def input_term(index: int, type: TermType) -> Term:
    """The input of a number."""
    return _intern(None, (), 0, index, type)


def applied(item: Item, args: Terms, output: int, type: TermType) -> Term:
    """One output of an application. Callers that don't know its type use `dslc.generate.terms.trees.outputs`."""
    return _intern(item, args, output, -1, type)


@dataclass(frozen=True, slots=True)
class Equation:
    """Two terms that have the same value for all inputs that were tried."""

    left: Term
    right: Term

    @property
    def roots(self) -> tuple[Term, Term]:
        return self.left, self.right

    def __str__(self) -> str:
        return f"{self.left} == {self.right}"


@dataclass(frozen=True, slots=True)
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

#: makes all outputs of an application, of the right types: `functools.partial(dslc.generate.terms.trees.outputs, rules)`
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
        if found is not None:
            return found
        args = tuple(visit(arg) for arg in root.args)
        if args == root.args:
            new = root
        elif all(a.type == b.type for a, b in zip(args, root.args, strict=True)):
            assert root.item is not None
            new = applied(root.item, args, root.output, root.type)
        elif build is not None:
            assert root.item is not None
            new = build(root.item, args)[root.output]
        else:
            raise ValueError(f"the type of an argument of {root} changes")
        done[root] = new
        return new

    return tuple(visit(root) for root in roots)


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
        return f"[{', '.join(show_attribute(entry) for entry in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def show(term: Term) -> str:
    """`matmul(x0, transpose(x1, perm=[1, 0]))`; output 1 of an application ends in `.1`."""
    if term.item is None:
        return f"x{term.index}"
    named = [f"{name}={show_attribute(value)}" for name, value in term.item.attrs]
    text = f"{term.item.short}({', '.join([*(show(arg) for arg in term.args), *named])})"
    return text if term.item.cut is None and term.output == 0 else f"{text}.{term.output}"


def values(rules: Rules, roots: Sequence[Term], feeds: Mapping[Term, Value]) -> tuple[Value, ...]:
    """The terms as graphs over the given values of their inputs (of the inputs' shapes).

    Raises:
        Mismatch: shapes that do not fit (the shapes of the values differ from those of the inputs).
    """
    done: dict[Term, Value] = dict(feeds)
    for term in subterms(roots):
        if term in done:
            continue
        assert term.item is not None
        attrs = attributes(term.item, [arg.type for arg in term.args])
        done[term] = apply(rules, term.item.op, [done[arg] for arg in term.args], attrs)[term.output]
    return tuple(done[root] for root in roots)
