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

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

from dslc.generate.terms.term import Item, TermType, flow, output_types
from dslc.ir.dtype import DTYPES, DType
from dslc.records import record
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.env import Env, EvalError, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.semantics.operator_env import outward
from dslc.semantics.values import OTHER_TEXT, texts, values
from dslc.semantics.walk import nodes
from dslc.syntax import tree as t

# ---- The menu of an enumeration: operators, each with every choice of its attributes that their declarations--------

PERMUTED = 3  #: axes; permutations of more are too many to be tried


@record
class MenuValues:
    """The values that attributes are taken from: shapes of the inputs, sizes of windows that slide over them, element types."""

    shapes: tuple[tuple[int, ...], ...]
    windows: tuple[int, ...] = ()
    dtypes: tuple[DType, ...] = (DType.F32,)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(set(map(len, self.shapes))))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted({size for shape in self.shapes for size in shape}))


def items(rules: Rules, op: OperatorDef, play: MenuValues) -> tuple[Item, ...]:
    """One operator's items; those that no tensor fits are among them."""
    cut = cut_attribute(rules, op)
    axis = next((attr.name for attr in op.attrs if attr.type.name == "axis"), None)
    named = [attr for attr in op.attrs if attr.name != cut]
    choices = [_values(rules, op, attr, play) for attr in named]
    sized = tuple(attr.name for attr in named if not attr.default and attr.type.name in {"int", "ints"})
    out: dict[Item, None] = {}
    for chosen in product(*choices):
        if sum(varied for _, varied in chosen) > 1:
            continue
        attrs = tuple((attr.name, value) for attr, (value, _) in zip(named, chosen, strict=True))
        where = dict(attrs).get(axis) if cut is not None and axis is not None else None
        out[Item(op.name, attrs, cut, (0 if where is None else int(where)) if cut is not None else None, sized)] = None
    return tuple(out)


def cut_attribute(rules: Rules, op: OperatorDef) -> str | None:
    """The attribute of the sizes of the parts, in an operator of one tensor that `is inverse` of one of two."""
    if rules.traits_of(op.name).inverse is None or len(op.params) != 1:
        return None
    for attr in op.attrs:
        match attr.type.dims:
            case (t.Int(value=count),) if count == len(op.outputs):
                return attr.name
    return None


def _values(rules: Rules, op: OperatorDef, attr: t.Attr, play: MenuValues) -> list[tuple[Any, bool]]:
    """The values of an attribute, each with whether it varies a default number."""
    kind = attr.type.name
    if kind in {"bool", "axis", "axes"}:
        # a list of no axes does nothing
        return [(value, False) for value in values(kind, max(play.ranks, default=0)) if value != ()]
    if kind == "permutation":
        ranks = [rank for rank in play.ranks if 1 < rank <= PERMUTED]
        return [(p, False) for rank in ranks for p in values(kind, rank) if p != tuple(range(rank))]
    if kind == "string":
        return [(text, False) for text in texts(op, attr) if text != OTHER_TEXT]
    if kind == "dtype":
        return [(dtype, False) for dtype in play.dtypes]
    default = _default(rules, op, attr)
    if attr.default is not None and default is None:
        return []
    if kind in {"float", "floats"}:
        value = default if default is not None else (2.0,) if kind == "floats" else 2.0
        return [(outward(attr, value), False)]
    windows = play.windows if not op.params else tuple(w for w in play.windows if w > 1) or play.windows
    return [*_integers(attr, default, play, windows)]


def _integers(attr: t.Attr, default: Any, play: MenuValues, windows: tuple[int, ...]) -> Iterable[tuple[Any, bool]]:
    count = _entries(attr)
    if attr.type.dims is not None:
        if default is None:
            for window in windows:
                for n in count:
                    yield (window,) * n, False
            return
        for n in count:
            base = default if isinstance(default, tuple) else (default,) * n
            yield base, False
            yield tuple(entry + 1 for entry in base), True
    elif attr.type.name == "ints":
        if default is not None:
            yield default if isinstance(default, tuple) else (default,), False
        else:
            yield from ((shape, False) for shape in dict.fromkeys(play.shapes))
    elif default is not None:
        yield default, False
        yield default + 1, True
    else:
        yield from ((size, False) for size in play.sizes)


def _entries(attr: t.Attr) -> Sequence[int]:
    """The numbers of entries of a list attribute: as written, else (a rank of windows) 2, twice that for begins and ends."""
    dims = attr.type.dims
    if dims is None:
        return ()
    (count,) = dims
    if isinstance(count, t.Int):
        return (count.value,)
    doubled = any(node.value == 2 for node in nodes(t.Int, count))
    return (4,) if doubled else (2,)


def _default(rules: Rules, op: OperatorDef, attr: t.Attr) -> Any:
    """The value of a declared default; None where there is none, or where it depends on the arguments."""
    if not attr.default:
        return None
    try:
        return evaluate(attr.default, Env(op.module, rules))
    except (Unbound, EvalError, Mismatch):
        return None


# ---- The tensors that graphs are built over: families of operators whose tensors fit together, and the shape--------

Shape: TypeAlias = tuple[int, ...]


#: operators of terms in which attributes off their defaults (a stride of 2, another padding) are tried: what holds
#: for the defaults is tried for all values when it becomes a rule
VARIED = 2
#: operators of terms in which constants are leaves: sums and products of them are numbers in many disguises
CONSTANTS = 3
SEVERAL_CONSTANTS = 2  #: the same for graphs with several constants
SLIDING_CONSTANTS = 1  #: the same for these where something slides


@record
class InputSizes:
    """Sizes and number of the inputs; see the module."""

    count: int = 3
    size: int = 4
    spatial: int = 5
    windows: tuple[int, ...] = (3, 1)
    dtype: DType = DType.F32


@record
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
    shaped = {op.name: _shaped(rules, op, sizes)[0] for op in operators}
    # operators that take two tensors or more of a rank of their own
    shaping = {
        op.name: shaped[op.name]
        for op in operators
        if sum(map(bool, shaped[op.name][: _tensors(rules, op.name)])) > 1 and not _of_any_rank(op)
    }
    ranks = sorted(set(map(_rank, shaping.values()))) or [2]
    out = []
    for rank in ranks:
        mine = {name: shapes for name, shapes in shaping.items() if _rank(shapes) == rank}
        shapes = tuple(dict.fromkeys(shape for found in mine.values() for shape in found)) or ((sizes.size,) * 2,)
        fitting = [op for op in operators if op.name in mine or op.name not in shaping]
        out.append(family_over(rules, fitting, shapes, sizes, mine))
    for op in operators:
        covered = any(item.op == op.name for family in out for item in family.items)
        if op.params and not covered and shaped[op.name]:
            others = [other for other in operators if other.name not in shaping]
            out.append(family_over(rules, others, (max(shaped[op.name], key=len),), sizes, {}))
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
    slides = {op.name: sliding for op in operators if (sliding := _shaped(rules, op, sizes)[1])}
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
    if any(param.type is not None and param.type.dims == () for op in operators for param in op.params):
        inputs.append(TermType(sizes.dtype, ()))
    play = MenuValues(tuple(shapes), sizes.windows if slides else (), (sizes.dtype,))
    still = {axis for name, along in slides.items() if name in shaping for _, axis in along}
    fitting: list[Item] = []
    places: list[tuple[int, ...]] = []
    for op in (op for op in operators if op.params):
        apart = op.name in slides and "operand_of" not in rules.traits_of(op.name).named
        for item in items(rules, op, play):
            if _joins(rules, operators, op) and dict(item.attrs).get("axis") in still:
                continue
            if item.cut is not None or _fits(rules, item, tuple(dict.fromkeys(inputs))):
                fitting.append(item)
                places.append(tuple(range(arity(rules, item))) if apart and made_for else ())
    constants: list[tuple[Item, TermType]] = []
    roles = [made_for.get(type.shape, 0) for type in inputs]
    for op in (op for op in operators if not op.params):
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
    own, expected = dict(item.attrs), dict(usual.attrs)
    return any(
        attr.name in own and own[attr.name] != expected[attr.name]
        for attr in rules.operators[item.op].attrs
        if attr.default and attr.type.name not in {"axis", "permutation"}
    )


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
    return max(map(len, shapes))


def _tensors(rules: Rules, name: str) -> int:
    return sum(param.default is None for param in rules.operators[name].syntax.params)


def _smaller(type: TermType, other: TermType) -> bool:
    a, b = type.shape, other.shape
    return len(a) == len(b) and a != b and all(x <= y for x, y in zip(a, b, strict=True)) and a[:2] == b[:2]


def arity(rules: Rules, item: Item) -> int:
    """The number of tensors that an item takes; one that has a default is left out."""
    return _tensors(rules, item.op)


def _fits(rules: Rules, item: Item, types: tuple[TermType, ...]) -> bool:
    """Return whether the item applies to some of the inputs (arguments may repeat)."""
    return any(output_types(rules, item, args) is not None for args in product(types, repeat=arity(rules, item)))


# ---- shapes from declarations ----------------------------------------------------------------------------------


def _names(node: t.Expr) -> set[str]:
    return {part.id for part in nodes(t.Name, node) if part.id not in DTYPES}


def _listed(op: OperatorDef) -> set[str]:
    """The names over which lists are declared."""
    return set().union(*(_names(dim) for attr in op.attrs for dim in attr.type.dims or ()))


def _of_any_rank(op: OperatorDef) -> bool:
    """Return whether packs make up the operator's tensors but for one or two dimensions (`T[*S]`, `T[*L, P, *R]`)."""
    listed = _listed(op)
    for param in op.params:
        dims = (param.type.dims if param.type else None) or ()
        packs = [dim for dim in dims if isinstance(dim, t.Pack) and not _names(dim.value) & listed]
        if dims and (not packs or len(dims) - len(packs) > 1):
            return False
    return True


def _shaped(rules: Rules, op: OperatorDef, sizes: InputSizes) -> tuple[list[Shape], set[tuple[int, int]]]:
    """The shapes of an operator's tensors, window after window, and its sliding places (argument, axis); none where it applies to none.

    It is asked at tensors of equal sizes: packs are of rank 2 where lists are declared over one, else empty.
    """
    listed, trial = _listed(op), []
    for param in op.params:
        if not param.default:
            if param.type is None or param.type.dims is None:
                return [], set()
            ranks = (1 if not isinstance(dim, t.Pack) else 2 if listed else 0 for dim in param.type.dims)
            trial.append((3,) * sum(ranks))
    types = [TermType(sizes.dtype, shape) for shape in trial]
    fitting = (item for item in items(rules, op, MenuValues(tuple(trial), (3,), (sizes.dtype,))) if trial)
    flows = [flow(rules, item, types) for item in fitting if output_types(rules, item, types) is not None]
    if not flows:
        return [], set()
    shared = {p for f in flows for group in f.groups if len(group) > 1 for p in group}
    # passing ones are dimensions of the result, whatever the attributes are
    passing = [{p for dims in f.outputs for groups in dims for group in groups for p in group} for f in flows]
    places = {(k, axis) for k, shape in enumerate(trial) for axis in range(len(shape))}
    sliding = set() if _of_any_rank(op) else places - shared - passing[0].intersection(*passing)

    def size(k: int, axis: int, window: int) -> int:
        if (k, axis) in sliding:
            return window if k else sizes.spatial
        return 1 if sliding and (k, axis) == (0, 0) and (0, 0) not in shared else sizes.size

    return [
        tuple(size(k, axis, window) for axis in range(len(shape)))
        for window in (sizes.windows if sliding else (1,))
        for k, shape in enumerate(trial)
    ], sliding
