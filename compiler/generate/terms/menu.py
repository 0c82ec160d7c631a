"""The menu of an enumeration: operators, each with every choice of its attributes that their declarations and the shapes in play allow.

| attribute | its values |
|---|---|
| `bool` | both |
| `axis` | every axis of the ranks in play |
| `axes` | every set of axes |
| `permutation` | every one but the identity, of the ranks in play up to 3 |
| `string` | what the operator compares it with |
| `dtype` | the element types in play |
| `int`, `int[n]`, with a default d | d and d + 1, one attribute at a time |
| `int[n]` without a default | the windows in play, the same in every direction; for an operator on tensors those above 1 |
| `int` without a default | the sizes in play |
| `ints` without a default | the shapes in play |
| `float` | its default, else 2 |
| the sizes of the parts, where the operator `is inverse` of a joining one | never chosen: a tensor is cut where it was joined last |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from dslc.generate.terms.term import Item
from dslc.ir.dtype import DType
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.env import Env, EvalError, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.semantics.operator_env import outward
from dslc.semantics.values import OTHER_TEXT, texts, values
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t

PERMUTED = 3  #: axes; permutations of more are too many to be tried


@dataclass(frozen=True, slots=True)
class MenuValues:
    """The values that attributes are taken from: shapes of the inputs, sizes of windows that slide over them, element types."""

    shapes: tuple[tuple[int, ...], ...]
    windows: tuple[int, ...] = ()
    dtypes: tuple[DType, ...] = (DType.F32,)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({len(shape) for shape in self.shapes}))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted({size for shape in self.shapes for size in shape}))


def items(rules: Rules, op: OperatorDef, play: MenuValues) -> tuple[Item, ...]:
    """One operator's items; those that no tensor fits are among them."""
    cut = cut_attribute(rules, op)
    axis = next((attr.name for attr in op.attrs if attr.type.name == "axis"), None)
    named = [attr for attr in op.attrs if attr.name != cut]
    choices = [_values(rules, op, attr, play) for attr in named]
    sized = tuple(attr.name for attr in named if attr.default is None and attr.type.name in {"int", "ints"})
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
    if rules.traits_of(op.name).inverse is None or len(op.syntax.params) != 1:
        return None
    for attr in op.attrs:
        match attr.type.dims:
            case (t.Int(value=count),) if count == len(op.syntax.outputs):
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
    windows = play.windows if not op.syntax.params else tuple(w for w in play.windows if w > 1) or play.windows
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
    doubled = any(isinstance(node, t.Int) and node.value == 2 for node in walk_expr(count))
    return (4,) if doubled else (2,)


def _default(rules: Rules, op: OperatorDef, attr: t.Attr) -> Any:
    """The value of a declared default; None where there is none, or where it depends on the arguments."""
    if attr.default is None:
        return None
    try:
        return evaluate(attr.default, Env(op.module, rules))
    except (Unbound, EvalError, Mismatch):
        return None
