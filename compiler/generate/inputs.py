"""The tensors that graphs are built over: families of operators whose tensors fit together, and the shapes of their inputs.

Both follow from the declarations of the operators that take two tensors or more. A dimension of theirs is *shared* if another tensor must have
the same size there, *passing* if it is a dimension of the result whatever the attributes are, and *sliding* otherwise. Shared and
passing sizes are `size` (4), so that results fit where arguments did; in an operator with sliding dimensions the first tensor has
`spatial` (5) positions in each of them, the others have `windows` (3 and 1), and the first dimension of the first tensor, which only
passes, is 1. So products of matrices are enumerated over 4x4, convolutions over [1, 4, 5, 5], [4, 4, 3, 3] and [4, 4, 1, 1].

`count` tensors of the first type are taken in a family of one type; in a family of several, `count - 1` of each (one of each type that
has the smaller windows). A tensor of rank 0 is among the inputs where an operator takes one, say a factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from dslc.generate.menu import InPlay, items, menu
from dslc.generate.term import Item, TermType
from dslc.generate.trees import flow, output_types
from dslc.ir.dtype import DTYPES, DType
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.library import Rules
from dslc.syntax import tree as t


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the inputs are and how many there are; see the module."""

    count: int = 3
    size: int = 4
    spatial: int = 5
    windows: tuple[int, ...] = (3, 1)
    dtype: DType = DType.F32


@dataclass(frozen=True, slots=True)
class Family:
    """One enumeration: its inputs, the menu (operators that fit no tensor left out) and the constants, which are leaves too."""

    name: str
    inputs: tuple[TermType, ...]
    items: tuple[Item, ...]
    constants: tuple[tuple[Item, TermType], ...]


def families(rules: Rules, operators: Sequence[OperatorDef], sizes: Sizes = Sizes()) -> tuple[Family, ...]:  # noqa: B008
    """The families of some operators, one for each number of axes that an operator of several tensors asks for.

    Operators that take tensors of any rank are in each; where no operator asks for a rank, there is one family of matrices.
    """
    shaping = {op.name: found for op in operators if (found := _shaping(rules, op, sizes)) is not None}
    ranks = sorted({max(len(shape) for shape in shapes) for shapes in shaping.values()}) or [2]
    out = []
    covered: set[str] = set()
    for rank in ranks:
        mine = {name: shapes for name, shapes in shaping.items() if max(len(shape) for shape in shapes) == rank}
        shapes = tuple(dict.fromkeys(shape for found in mine.values() for shape in found)) or ((sizes.size,) * 2,)
        fitting = [op for op in operators if op.name in mine or op.name not in shaping]
        family = family_over(rules, fitting, shapes, sizes, frozenset(mine))
        covered |= {item.op for item in family.items}
        out.append(family)
    left = [op for op in operators if op.syntax.params and op.name not in covered]
    for op in left:
        alone = _alone(rules, op, sizes)
        if alone is not None and op.name not in covered:
            fitting = [other for other in operators if other.name not in shaping]
            family = family_over(rules, fitting, (alone,), sizes, frozenset())
            covered |= {item.op for item in family.items}
            out.append(family)
    return tuple(out)


def family_over(
    rules: Rules, operators: Sequence[OperatorDef], shapes: Sequence[tuple[int, ...]], sizes: Sizes, shaping: frozenset[str]
) -> Family:
    """The family over inputs of some shapes: what fits them of the menu, and the constants that an operator of `shaping` takes."""
    types = [TermType(sizes.dtype, shape) for shape in shapes]
    inputs: list[TermType] = []
    for type in types:
        small = len(types) > 1 and any(_smaller(type, other) for other in types)
        inputs += [type] * (sizes.count if len(types) == 1 else 1 if small else max(1, sizes.count - 1))
    scalar = TermType(sizes.dtype, ())
    if any(param.type is not None and param.type.dims == () for op in operators for param in op.syntax.params):
        inputs.append(scalar)
    windows = sizes.windows if any(len(shape) > 2 for shape in shapes) else ()
    play = InPlay(tuple(shapes), windows, (sizes.dtype,))
    tensors = menu(rules, (op for op in operators if op.syntax.params), play)
    leaves = menu(rules, (op for op in operators if not op.syntax.params), play)
    fitting = tuple(item for item in tensors if item.cut is not None or _fits(rules, item, tuple(dict.fromkeys(inputs))))
    shapers = [item for item in fitting if item.op in shaping]
    constants = []
    for item in leaves:
        found = output_types(rules, item, ())
        if found is not None and (found[0] in types or any(_takes(rules, shaper, found[0], types) for shaper in shapers)):
            constants.append((item, found[0]))
    rank = max(len(shape) for shape in shapes)
    return Family(f"rank {rank}", tuple(inputs), fitting, tuple(constants))


def _smaller(type: TermType, other: TermType) -> bool:
    a, b = type.shape, other.shape
    return len(a) == len(b) and a != b and all(x <= y for x, y in zip(a, b, strict=True)) and a[:2] == b[:2]


def arity(rules: Rules, item: Item) -> int:
    """The number of tensors that an item takes; one that has a default is left out."""
    params = rules.operators[item.op].syntax.params
    return sum(param.default is None for param in params)


def _fits(rules: Rules, item: Item, types: tuple[TermType, ...]) -> bool:
    """Whether the item applies to some of the inputs (arguments may repeat)."""
    return any(output_types(rules, item, args) is not None for args in product(types, repeat=arity(rules, item)))


def _takes(rules: Rules, item: Item, type: TermType, types: Sequence[TermType]) -> bool:
    count = arity(rules, item)
    for k in range(count):
        for others in product(types, repeat=count - 1):
            if output_types(rules, item, (*others[:k], type, *others[k:])) is not None:
                return True
    return False


# ---- shapes from declarations ----------------------------------------------------------------------------------


def _trial(op: OperatorDef, size: int) -> list[tuple[int, ...]] | None:
    """Shapes with which an operator may be asked: every size equal; packs of rank 2 where lists are declared over one, else empty."""
    listed = {name for attr in op.attrs for dim in attr.type.dims or () for name in _names(dim)}
    shapes = []
    for param in op.syntax.params:
        if param.default is not None:
            continue
        if param.type is None or param.type.dims is None:
            return None
        shape: list[int] = []
        for dim in param.type.dims:
            if isinstance(dim, t.Pack):
                shape += [size] * (2 if listed else 0)
            else:
                shape.append(size)
        shapes.append(tuple(shape))
    return shapes


def _names(node: t.Expr) -> list[str]:
    from dslc.semantics.walk import walk_expr

    return [part.id for part in walk_expr(node) if isinstance(part, t.Name) and part.id not in DTYPES]


def _of_any_rank(op: OperatorDef) -> bool:
    """Whether packs alone make up the operator's tensors but for one or two dimensions between them (`T[*S]`, `T[*L, P, *R]`)."""
    listed = {name for attr in op.attrs for dim in attr.type.dims or () for name in _names(dim)}
    for param in op.syntax.params:
        dims = (param.type.dims if param.type is not None else None) or ()
        packs = [dim for dim in dims if isinstance(dim, t.Pack) and not set(_names(dim.value)) & listed]
        if dims and not packs:
            return False
        if dims and len(dims) - len(packs) > 1:
            return False
    return True


def _shaping(rules: Rules, op: OperatorDef, sizes: Sizes) -> list[tuple[int, ...]] | None:
    """The shapes of the tensors of an operator that takes two or more of a rank of its own; None for others."""
    trial = _trial(op, 3)
    if trial is None or sum(len(shape) > 0 for shape in trial) < 2 or _of_any_rank(op):
        return None
    return _shapes(rules, op, trial, sizes)


def _alone(rules: Rules, op: OperatorDef, sizes: Sizes) -> tuple[int, ...] | None:
    trial = _trial(op, 3)
    found = None if trial is None else _shapes(rules, op, trial, sizes)
    return None if not found else max(found, key=len)


def _shapes(rules: Rules, op: OperatorDef, trial: list[tuple[int, ...]], sizes: Sizes) -> list[tuple[int, ...]] | None:
    types = [TermType(sizes.dtype, shape) for shape in trial]
    play = InPlay(tuple(trial), (3,), (sizes.dtype,))
    flows = [flow(rules, item, types) for item in items(rules, op, play) if output_types(rules, item, types) is not None]
    if not flows:
        return None
    places = [(k, axis) for k, shape in enumerate(trial) for axis in range(len(shape))]
    shared = {p for f in flows for group in f.groups if len(group) > 1 for p in group}
    passing = {p for p in places if all(_passes(f.outputs, p) for f in flows)}
    sliding = [p for p in places if p not in shared and p not in passing]
    out: list[tuple[int, ...]] = []
    for window in sizes.windows if sliding else (1,):
        for k, shape in enumerate(trial):
            dims = []
            for axis in range(len(shape)):
                if (k, axis) in sliding:
                    dims.append(sizes.spatial if k == 0 else window)
                elif sliding and (k, axis) == (0, 0) and (0, 0) not in shared:
                    dims.append(1)
                else:
                    dims.append(sizes.size)
            if tuple(dims) not in out:
                out.append(tuple(dims))
    return out


def _passes(outputs: tuple[tuple[tuple[frozenset[tuple[int, int]], ...], ...], ...], place: tuple[int, int]) -> bool:
    return any(place in group for dims in outputs for groups in dims for group in groups)
