"""The tensors that graphs are built over: families of operators whose tensors fit together, and the shapes of their inputs.

Both follow from the declarations of the operators that take two tensors or more. A dimension of theirs is *shared* if another tensor
must have the same size there, *passing* if it is a dimension of the result whatever the attributes are, and *sliding* otherwise.
Shared and passing sizes are `size` (4), so that results fit where arguments did; in an operator with sliding dimensions the first
tensor has `spatial` (5) positions in each of them, the others have `windows` (3 and 1), and the first dimension of the first tensor,
which only passes, is 1. So products of matrices are enumerated over 4x4, convolutions over [1, 4, 5, 5], [4, 4, 3, 3] and [4, 4, 1, 1].

Each input has a *role*, the place of the operator with sliding dimensions that it was made for (0 where there is none). A result has
the role of its first argument. Operators with sliding dimensions take tensors in the places that they were made for, so that kernels
are not convolved or pooled; tensors are joined and cut along the dimensions that do not slide. Rules are written for all tensors
anyway.

`count` tensors of the first type are taken in a family of one type; in a family of several, `count - 1` of each (one of each type that
has the smaller windows). A tensor of rank 0 is among the inputs where an operator takes one, say a factor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from dslc.generate.terms.menu import MenuValues, items
from dslc.generate.terms.term import Item, TermType
from dslc.generate.terms.trees import Flow, flow, output_types
from dslc.ir.dtype import DTYPES, DType
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.library import Rules
from dslc.syntax import tree as t

Shape: TypeAlias = tuple[int, ...]


#: operators of terms in which attributes off their defaults (a stride of 2, another padding) are tried: what holds
#: for the defaults is tried for all values when it becomes a rule
VARIED = 2
#: operators of terms in which constants are leaves: sums and products of them are numbers in many disguises
CONSTANTS = 3
SEVERAL_CONSTANTS = 2  #: the same for graphs with several constants
SLIDING_CONSTANTS = 1  #: the same for these where something slides


@dataclass(frozen=True, slots=True)
class InputSizes:
    """Sizes and number of the inputs; see the module."""

    count: int = 3
    size: int = 4
    spatial: int = 5
    windows: tuple[int, ...] = (3, 1)
    dtype: DType = DType.F32


@dataclass(frozen=True, slots=True)
class Family:
    """One enumeration: its inputs, the menu (operators that fit no tensor left out) and the constants, which are leaves too.

    `roles`: of the inputs, then of the constants; `places`: for each item the role that each argument must have, -1 for any, empty
    for any everywhere; `varied`: which items have an attribute off its default.
    """

    name: str
    inputs: tuple[TermType, ...]
    items: tuple[Item, ...]
    constants: tuple[tuple[Item, TermType], ...]
    roles: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]
    varied: frozenset[int]


def families(rules: Rules, operators: Sequence[OperatorDef], sizes: InputSizes) -> tuple[Family, ...]:
    """The families of some operators, one for each number of axes that an operator of several tensors asks for.

    Operators that take tensors of any rank are in each; where no operator asks for a rank, there is one family of matrices.
    """
    shaping = {op.name: found for op in operators if (found := _shaping(rules, op, sizes)) is not None}
    ranks = sorted({_rank(shapes) for shapes in shaping.values()}) or [2]
    out = []
    covered: set[str] = set()
    for rank in ranks:
        mine = {name: shapes for name, shapes in shaping.items() if _rank(shapes) == rank}
        shapes = tuple(dict.fromkeys(shape for found in mine.values() for shape in found)) or ((sizes.size,) * 2,)
        fitting = [op for op in operators if op.name in mine or op.name not in shaping]
        family = family_over(rules, fitting, shapes, sizes, mine)
        covered |= {item.op for item in family.items}
        out.append(family)
    for op in operators:
        if op.syntax.params and op.name not in covered and (alone := _alone(rules, op, sizes)) is not None:
            family = family_over(
                rules, [other for other in operators if other.name not in shaping], (alone,), sizes, {}
            )
            covered |= {item.op for item in family.items}
            out.append(family)
    return tuple(out)


def family_over(
    rules: Rules,
    operators: Sequence[OperatorDef],
    shapes: Sequence[Shape],
    sizes: InputSizes,
    shaping: Mapping[str, Sequence[Shape]],
) -> Family:
    """The family over inputs of some shapes: what fits them of the menu, and of each constant the first that fits.

    `shaping`: for the operators that the shapes come from, the shapes of their tensors, place after place (and again for each window).
    """
    slides = {op.name: sliding for op in operators if (sliding := _sliding(rules, op, sizes))}
    made_for = {
        shape: k % _tensors(rules, name)
        for name, found in shaping.items()
        if name in slides
        for k, shape in enumerate(found)
    }
    types = [TermType(sizes.dtype, shape) for shape in shapes]
    inputs: list[TermType] = []
    for type in types:
        small = len(types) > 1 and any(_smaller(type, other) for other in types)
        inputs += [type] * (sizes.count if len(types) == 1 else 1 if small else max(1, sizes.count - 1))
    if any(param.type is not None and param.type.dims == () for op in operators for param in op.syntax.params):
        inputs.append(TermType(sizes.dtype, ()))
    play = MenuValues(tuple(shapes), sizes.windows if slides else (), (sizes.dtype,))
    still = {axis for name, along in slides.items() if name in shaping for _, axis in along}
    fitting: list[Item] = []
    places: list[tuple[int, ...]] = []
    for op in (op for op in operators if op.syntax.params):
        apart = op.name in slides and "operand_of" not in rules.traits_of(op.name).named
        for item in items(rules, op, play):
            if _joins(rules, operators, op) and dict(item.attrs).get("axis") in still:
                continue
            if item.cut is not None or _fits(rules, item, tuple(dict.fromkeys(inputs))):
                fitting.append(item)
                places.append(tuple(range(arity(rules, item))) if apart and made_for else ())
    constants: list[tuple[Item, TermType]] = []
    roles = [made_for.get(type.shape, 0) for type in inputs]
    for op in (op for op in operators if not op.syntax.params):
        for item in items(rules, op, play):
            place = _place(rules, item, types, made_for, [shaper for shaper in fitting if shaper.op in shaping])
            if place is not None:
                made = output_types(rules, item, ())
                assert made is not None
                constants.append((item, made[0]))
                roles.append(place)
                break
    defaults = {op.name: items(rules, op, play)[:1] for op in operators}
    varied = frozenset(k for k, item in enumerate(fitting) if is_varied(rules, item, defaults[item.op][0]))
    return Family(
        f"rank {_rank(shapes)}", tuple(inputs), tuple(fitting), tuple(constants), tuple(roles), tuple(places), varied
    )


def is_varied(rules: Rules, item: Item, usual: Item) -> bool:
    """Return whether an attribute that has a default is off it."""
    with_default = {attr.name for attr in rules.operators[item.op].attrs if attr.default is not None}
    kinds = {attr.name: attr.type.name for attr in rules.operators[item.op].attrs}
    expected = dict(usual.attrs)
    free = {name for name in with_default if kinds[name] not in {"axis", "permutation"}}
    return any(name in free and value != expected[name] for name, value in item.attrs)


def _place(
    rules: Rules, item: Item, types: Sequence[TermType], made_for: Mapping[Shape, int], shapers: Sequence[Item]
) -> int | None:
    """The role of a constant: that of the inputs of its type, else of the place where an operator takes it; None: it fits nowhere."""
    found = output_types(rules, item, ())
    if found is None:
        return None
    if found[0] in types:
        return made_for.get(found[0].shape, 0)
    for shaper in shapers:
        count = arity(rules, shaper)
        for k in range(count):
            for others in product(types, repeat=count - 1):
                args = (*others[:k], found[0], *others[k:])
                fitting = all(made_for.get(arg.shape, at) == at for at, arg in enumerate(args) if at != k)
                if fitting and output_types(rules, shaper, args) is not None:
                    return k if made_for else 0
    return None


def _joins(rules: Rules, operators: Sequence[OperatorDef], op: OperatorDef) -> bool:
    """Return whether the operator joins tensors, or cuts what was joined."""
    return rules.traits_of(op.name).inverse is not None or any(
        rules.traits_of(other.name).inverse == op.name for other in operators
    )


def _rank(shapes: Sequence[Shape]) -> int:
    return max(len(shape) for shape in shapes)


def _tensors(rules: Rules, name: str) -> int:
    return sum(param.default is None for param in rules.operators[name].syntax.params)


def _smaller(type: TermType, other: TermType) -> bool:
    a, b = type.shape, other.shape
    return len(a) == len(b) and a != b and all(x <= y for x, y in zip(a, b, strict=True)) and a[:2] == b[:2]


def arity(rules: Rules, item: Item) -> int:
    """The number of tensors that an item takes; one that has a default is left out."""
    params = rules.operators[item.op].syntax.params
    return sum(param.default is None for param in params)


def _fits(rules: Rules, item: Item, types: tuple[TermType, ...]) -> bool:
    """Return whether the item applies to some of the inputs (arguments may repeat)."""
    return any(output_types(rules, item, args) is not None for args in product(types, repeat=arity(rules, item)))


# ---- shapes from declarations ----------------------------------------------------------------------------------


def _trial(op: OperatorDef, size: int) -> list[Shape] | None:
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
    """Return whether packs make up the operator's tensors but for one or two dimensions (`T[*S]`, `T[*L, P, *R]`)."""
    listed = {name for attr in op.attrs for dim in attr.type.dims or () for name in _names(dim)}
    for param in op.syntax.params:
        dims = (param.type.dims if param.type is not None else None) or ()
        packs = [dim for dim in dims if isinstance(dim, t.Pack) and not set(_names(dim.value)) & listed]
        if dims and not packs:
            return False
        if dims and len(dims) - len(packs) > 1:
            return False
    return True


def _shaping(rules: Rules, op: OperatorDef, sizes: InputSizes) -> list[Shape] | None:
    """The shapes of the tensors of an operator that takes two or more of a rank of its own; None for others."""
    trial = _trial(op, 3)
    if trial is None or sum(len(shape) > 0 for shape in trial) < 2 or _of_any_rank(op):
        return None
    return _shapes(rules, op, trial, sizes)


def _alone(rules: Rules, op: OperatorDef, sizes: InputSizes) -> tuple[int, ...] | None:
    trial = _trial(op, 3)
    found = None if trial is None else _shapes(rules, op, trial, sizes)
    return None if not found else max(found, key=len)


def _flows(rules: Rules, op: OperatorDef, trial: list[Shape], sizes: InputSizes) -> list[Flow]:
    types = [TermType(sizes.dtype, shape) for shape in trial]
    play = MenuValues(tuple(trial), (3,), (sizes.dtype,))
    return [flow(rules, item, types) for item in items(rules, op, play) if output_types(rules, item, types) is not None]


def _sliding(rules: Rules, op: OperatorDef, sizes: InputSizes) -> tuple[tuple[int, int], ...]:
    """The places (argument, axis) of the operator's dimensions that are neither shared nor passing; none if its rank is free."""
    trial = None if _of_any_rank(op) else _trial(op, 3)
    if not trial:
        return ()
    flows = _flows(rules, op, trial, sizes)
    if not flows:
        return ()
    places = [(k, axis) for k, shape in enumerate(trial) for axis in range(len(shape))]
    shared = {p for f in flows for group in f.groups if len(group) > 1 for p in group}
    return tuple(p for p in places if p not in shared and not all(_passes(f.outputs, p) for f in flows))


def _shapes(rules: Rules, op: OperatorDef, trial: list[Shape], sizes: InputSizes) -> list[Shape] | None:
    flows = _flows(rules, op, trial, sizes)
    if not flows:
        return None
    shared = {p for f in flows for group in f.groups if len(group) > 1 for p in group}
    slides = _sliding(rules, op, sizes)
    out: list[Shape] = []
    for window in sizes.windows if slides else (1,):
        for k, shape in enumerate(trial):
            dims = []
            for axis in range(len(shape)):
                if (k, axis) in slides:
                    dims.append(sizes.spatial if k == 0 else window)
                elif slides and (k, axis) == (0, 0) and (0, 0) not in shared:
                    dims.append(1)
                else:
                    dims.append(sizes.size)
            out.append(tuple(dims))
    return out


def _passes(outputs: tuple[tuple[tuple[frozenset[tuple[int, int]], ...], ...], ...], place: tuple[int, int]) -> bool:
    return any(place in group for dims in outputs for groups in dims for group in groups)
