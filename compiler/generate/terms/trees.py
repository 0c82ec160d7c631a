"""Types of applications: shapes by the operators' declarations, split trees by how sizes go through them (TASO, section 2.1).

Which dimension of the result is which dimension of an argument is asked of the declaration itself: one size is made unknown, and
the result's shape says where it arrives. A dimension that is the sum of two is a joint, in the order of the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dslc.generate.terms.term import Item, Terms, TermType, Tree, applied, attributes, meet, total
from dslc.ir.dtype import Dim, TensorType
from dslc.ir.graph import input_value
from dslc.ir.scalar import Apply, Num, dimension
from dslc.semantics.apply import apply
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules, rules_cache

Place = tuple[int, int]
_SIZE = dimension("size")


@dataclass(frozen=True, slots=True)
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
    cache = rules_cache(rules, "generate.shapes")
    key = (item, types, attrs.get(item.cut) if item.cut is not None else None)
    if key not in cache:
        found = _applied(rules, item, types, attrs)
        whole = found is not None and all(type.is_static and 0 not in type.shape for type in found)
        cache[key] = found if whole else None
    result: tuple[TensorType, ...] | None = cache[key]
    return result


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
    cache = rules_cache(rules, "generate.types")
    key = (item, tuple(types))
    if key not in cache:
        cache[key] = _output_types(rules, item, types)
    result: tuple[TermType, ...] | None = cache[key]
    return result


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
    cache = rules_cache(rules, "generate.flow")
    key = (item, tuple(tuple(size == 1 for size in type.shape) for type in types))
    if key not in cache:
        cache[key] = _flow(rules, item, tuple(type.tensor for type in types), attributes(item, types))
    result: Flow = cache[key]
    return result


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

    return Flow(tuple(tuple(sources(found) for found in axes) for axes in arriving), groups)


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
