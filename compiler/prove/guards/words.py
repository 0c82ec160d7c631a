"""The vocabulary of the guards that dslc proposes: conditions about the names of a rule, by what random instances say of them.

Sizes that are equal, 1, even or divide one another; groups and strides that are 1; pads that are 0, those of SAME padding, or larger
by what a kernel grows; flags; numbers in order; relations between axes and ranks; what a reduction leaves; lists that are equal, that
continue one another or that broadcast; permutations that move nothing, or only axes of one element; terms that are pointwise or linear.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dslc.prove.instances.batches import packs_of
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.env import AttrSet, OperatorRef
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t

_SIZE = ("== 1", "> 1", "== 2", "% 2 == 0")
_INTEGER = ("== 1", "> 1", "== 2", "== 0", ">= 0", ">= 1", "!= 0")
_NUMBER = ("== 0", "== 1", ">= 0", "<= 0", "> 0", ">= 1", "<= 1")
_PACK = ("== 1", "% 2 == 1", "% 2 == 0")
_RANK = ("== 0", "== 1", "> 0", "<= 1", "<= 2")
_LIST = ("== 1", "== 0", ">= 0", ">= 1", "% 2 == 1")


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of a rule by what they stand for; `packs` are the lists of sizes among its types, `orders` permutations."""

    flags: tuple[str, ...]
    sizes: tuple[str, ...]
    integers: tuple[str, ...]
    numbers: tuple[str, ...]
    packs: tuple[str, ...]
    lists: tuple[str, ...]
    orders: tuple[str, ...]
    terms: tuple[str, ...]


def vocabulary(sub: SubstitutionDef, samples: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The conditions that are tried for a rule, as text for its `where`, without duplicates."""
    names = _names(sub, samples)
    return tuple(
        dict.fromkeys(itertools.chain(_alone(names), _of_numbers(names), _of_lists(names), _of_kernels(names)))
    )


def _alone(names: _Names) -> Iterator[str]:
    for flag in names.flags:
        yield from (flag, f"not {flag}")
    for term in names.terms:
        yield from (f"pointwise({term})", f"linear({term})")
    yield from (f"{name} {test}" for name in names.sizes for test in _SIZE)
    yield from (f"{name} {test}" for name in names.integers for test in _INTEGER)
    yield from (f"{name} {test}" for name in names.numbers for test in _NUMBER)
    yield from (f"all({name} {test})" for name in names.packs for test in _PACK)
    yield from (f"all({name} {test})" for name in names.lists for test in _LIST)


def _of_numbers(names: _Names) -> Iterator[str]:
    ints = (*names.sizes, *names.integers)
    yield from (
        f"{name} == rank({pack}){after}" for name in names.integers for pack in names.packs for after in ("", " - 1")
    )
    yield from (f"{a} == {b}" for a, b in itertools.combinations(ints, 2))
    yield from (f"{a} % {b} == 0" for a, b in itertools.permutations(ints, 2) if "." not in a)
    yield from (f"{a} <= {b}" for group in (names.integers, names.numbers) for a, b in itertools.permutations(group, 2))
    yield from (f"{a} == {b} + {c}" for a, b, c in itertools.permutations(ints, 3) if a in names.integers and b < c)


def _of_lists(names: _Names) -> Iterator[str]:
    every = (*names.packs, *names.lists)
    yield from (f"{a} == {b}" for a, b in itertools.combinations(every, 2))
    yield from (f"rank({pack}) {test}" for pack in names.packs for test in _RANK)
    yield from (f"rank({a}) == rank({b})" for a, b in itertools.combinations(names.packs, 2))
    yield from (f"{a} == {b} + {c}" for a, b, c in itertools.permutations(every, 3) if a in names.lists and b < c)
    yield from (f"broadcast({a}, {pack}) == {pack}" for pack in names.packs for a in every if a != pack)
    for (a, b), c in itertools.product(itertools.combinations(names.packs, 2), every):
        if c not in {a, b}:
            yield f"broadcast({a}, {b}) == broadcast({a}, {b}, {c})"
    for axes, pack in itertools.product(names.lists, names.packs):
        yield f"all(only({pack}, {axes}) == 1)"
        yield from (f"{a} == kept({pack}, {axes}, true)" for a in every if a not in {axes, pack})
        yield from (f"{a} == kept({pack}, {axes}, false)" for a in every if a not in {axes, pack})
    for order, pack in itertools.product(names.orders, names.packs):
        yield f"{order} == range(rank({pack}))"
        yield f"{{[k: rank({pack}) where {pack}[k] != 1] k}} == {{[k: rank({pack}) where {pack}[{order}[k]] != 1] {order}[k]}}"


def _of_kernels(names: _Names) -> Iterator[str]:
    """SAME padding, and pads that grow as a kernel does."""
    every = (*names.packs, *names.lists)
    yield from (f"{p} == [*(({k} - 1) // 2), *({k} // 2)]" for p in names.lists for k in every if k != p)
    for large, small in itertools.permutations(names.packs, 2):
        yield f"all(({large} - {small}) % 2 == 0)"
        grown = f"[*(({large} - {small}) // 2), *(({large} - {small}) // 2)]"
        yield from (f"{q} == {p} + {grown}" for q, p in itertools.permutations(names.lists, 2))


def _names(sub: SubstitutionDef, samples: Sequence[Mapping[str, Any]]) -> _Names:
    kinds: dict[str, str] = {}
    unordered: set[str] = set()
    for drawn in samples:
        for name, value in drawn.items():
            for full, kind, part in _parts(name, value):
                kinds[full] = _joined(kinds.get(full, kind), kind)
                if kind == "list" and sorted(part) != list(range(len(part))):
                    unordered.add(full)
    packs = packs_of(sub)
    sizes = {node.id for param in sub.syntax.params for node in walk_expr(param.type) if isinstance(node, t.Name)}

    def of(kind: str) -> tuple[str, ...]:
        return tuple(name for name in kinds if kinds[name] == kind)

    ints, lists = of("int"), of("list")
    return _Names(
        of("bool"),
        tuple(name for name in ints if name in sizes),
        tuple(name for name in ints if name not in sizes),
        of("number"),
        tuple(name for name in lists if name in packs),
        tuple(name for name in lists if name not in packs),
        tuple(name for name in lists if name not in packs and name not in unordered),
        of("term"),
    )


def _joined(one: str, other: str) -> str:
    """What a name is that was seen as both: a number may be whole, and one number stands for every entry of a list."""
    if one == other:
        return one
    return "number" if {one, other} == {"int", "number"} else "list"


def _parts(name: str, value: Any) -> Iterator[tuple[str, str, Any]]:
    if isinstance(value, AttrSet):
        for key, part in value.values.items():
            yield from _parts(f"{name}.{key}", part)
    elif isinstance(value, OperatorRef):
        yield name, "term", value
    elif isinstance(value, bool):
        yield name, "bool", value
    elif isinstance(value, int):
        yield name, "int", value
    elif isinstance(value, Fraction | float):
        yield name, "number", value
    elif isinstance(value, tuple) and all(isinstance(part, int) and not isinstance(part, bool) for part in value):
        yield name, "list", value
