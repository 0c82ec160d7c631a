"""Small example arguments of an operator: shapes and attributes that its types and guards accept, found by search."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import islice, product
from typing import Any

from dslc.ir.dtype import DTYPES, DType, TensorType
from dslc.ir.graph import Call, Value, Values, input_value
from dslc.ir.graph import product as product_of
from dslc.semantics.apply import apply
from dslc.semantics.assume import bind_equalities, dtype_choices, size_names
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.elaborate import elaborate, expand
from dslc.semantics.env import Env, EvalError, Mismatch, Unbound
from dslc.semantics.library import Rules
from dslc.semantics.operator_env import entries
from dslc.semantics.types import shape_of, solve
from dslc.syntax import tree as t

TRIES = 3000  #: choices of sizes and attributes that are tried
#: ranks that lists of sizes have, in turn: of a single list, of two, and of more
RANKS: tuple[tuple[int, ...], ...] = ((2, 1, 3, 0, 4), (1, 2, 0), (1, 0, 2))


def sample(
    rules: Rules,
    op: OperatorDef,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    attrs: Mapping[str, Any] | None = None,
    dtypes: Mapping[str, DType] | None = None,
) -> Values:
    """One application of an operator to inputs that bear its parameters' names.

    Args:
        shapes: of the parameters that are given; the others are searched.
        attrs: values of attributes; others take their default, or are searched where they have none.
        dtypes: element types by type variable.

    Raises:
        Mismatch: nothing small was found that fits.
        EvalError: an attribute that the operator does not have, or a value of the wrong type.
    """
    last: Mismatch | EvalError | None = None
    for values, found in islice(_candidates(rules, op, shapes or {}, attrs or {}, dtypes or {}), TRIES):
        try:
            outputs = apply(rules, op, values, found)
            node = outputs[0].node
            if isinstance(node, Call):
                expand(rules, elaborate(rules, op, tuple(arg.type for arg in node.args), node.attrs).outputs)
            if all(all(size != 0 for size in value.type.shape) for value in outputs):
                return outputs
            last = last or Mismatch("every result is empty")
        except EvalError as problem:
            if attrs:
                raise
            last = last or problem
        except Mismatch as problem:
            last = last or problem
    raise last or Mismatch("no shapes of small sizes fit")


def _candidates(
    rules: Rules, op: OperatorDef, shapes: Mapping[str, tuple[int, ...]], attrs: Mapping[str, Any], dtypes: Mapping[str, DType]
) -> Iterator[tuple[list[Value | None], dict[str, Any]]]:  # fmt: skip
    params = op.syntax.params
    # defaults that fix sizes, such as one group
    numbers = {
        a.name: a.default.value for a in op.attrs if a.type.name == "int" and isinstance(a.default, t.Int) and not a.type.dims
    }  # fmt: skip
    for types in dtype_choices(rules, op):
        if any(types.get(name, dtype) is not dtype for name, dtype in dtypes.items()):
            continue
        if all(p.name in shapes or p.default is not None for p in params):
            values = [_input(p, types, shapes[p.name]) if p.name in shapes else None for p in params]
            for chosen in _attributes(op, dict(attrs), Env(op.module, rules), values):
                yield values, chosen
            continue
        for sizes in _sizes(op):
            env = Env(op.module, rules)
            for name, value in {**numbers, **types, **attrs}.items():
                env.bind(name, value)
            bind_equalities(op, env)
            for name, size in sizes.items():
                if name not in env.values:
                    env.bind(name, size)
            _fix(op, env, shapes, types)
            bind_equalities(op, env)
            given: list[Value | None] = []
            try:
                for p in params:
                    assert p.type
                    given.append(_input(p, types, shapes.get(p.name) or shape_of(p.type, env).shape))
            except (Mismatch, Unbound, EvalError):
                continue
            yield from ((given, chosen) for chosen in _attributes(op, dict(attrs), env, given))


def _fix(op: OperatorDef, env: Env, shapes: Mapping[str, tuple[int, ...]], types: Mapping[str, DType]) -> None:
    """Sizes that given shapes determine replace the proposed ones."""
    for param in op.syntax.params:
        if param.name in shapes and param.type:
            own = Env(op.module, env.rules)
            try:
                dtype = DTYPES.get(param.type.name) or types[param.type.name]
                solve([(param.type, TensorType(dtype, shapes[param.name]))], (), own)
            except (Mismatch, EvalError):
                continue
            for name, value in own.values.items():
                env.bind(name, value)


def _input(param: t.Param, types: Mapping[str, DType], shape: tuple[Any, ...]) -> Value:
    assert param.type
    dtype = DTYPES.get(param.type.name) or types[param.type.name]
    return input_value(param.name, TensorType(dtype, tuple(shape)))


def _sizes(op: OperatorDef) -> Iterator[dict[str, Any]]:
    """Ranks and sizes: first distinct small ones, then equal ones, then random ones."""
    packs, names = size_names(op)
    seeded = random.Random(0)
    for ranks in product(RANKS[min(len(packs), 3) - 1], repeat=len(packs)):
        count = len(names) + sum(ranks)
        drawn = ([seeded.randint(1, 6) for _ in range(count)] for _ in range(6))
        for sizes in (range(2, 2 + count), [4] * count, *drawn):
            left = iter(sizes)
            values: dict[str, Any] = {name: next(left) for name in names}
            values |= {pack: tuple(islice(left, rank)) for pack, rank in zip(packs, ranks, strict=True)}
            yield values
            yield {**values, **{pack: (3, 4, 5)[3 - rank :] for pack, rank in zip(packs, ranks, strict=True)}}


def _attributes(
    op: OperatorDef, chosen: dict[str, Any], env: Env, values: list[Value | None]
) -> Iterator[dict[str, Any]]:
    missing = []
    for attr in op.attrs:
        if attr.name not in chosen and env.has(attr.name):
            chosen[attr.name] = env.get(attr.name)
        elif attr.name not in chosen and not attr.default:
            missing.append(attr)
    first = next((value for value in values if value), None)
    shape: tuple[Any, ...] = first.type.shape if first else (2, 2)
    for found in islice(product(*(_options(attr, shape, env) for attr in missing)), 60):
        yield {**chosen, **{attr.name: value for attr, value in zip(missing, found, strict=True)}}


def _options(attr: t.Attr, shape: tuple[Any, ...], env: Env) -> list[Any]:
    kind, rank = attr.type.name, len(shape)
    if attr.type.dims is not None:
        try:
            count = entries(attr.type, env)
        except (Unbound, EvalError, Mismatch):
            count = rank
        return [(2,) * count, (1,) * count, (3,) * count, (0,) * count, (4,) * count, *_lists(shape)]
    if kind in {"ints", "axes"}:
        return _lists(shape) if kind == "ints" else [(k,) for k in range(rank)] or [()]
    options: dict[str, list[Any]] = {
        "int": [2, 1, 3, 0, 4], "axis": list(range(rank)) or [0], "permutation": [tuple(reversed(range(rank)))],
        "dtype": [DType.F32, DType.I64], "float": [0.5, 1.0, 2.0], "floats": [(0.5,) * rank], "bool": [False, True], "string": [""],
    }  # fmt: skip
    return options.get(kind, [])


def _lists(shape: tuple[Any, ...]) -> list[Any]:
    doubled = tuple(2 * size for size in shape)
    return [shape[::-1], shape, (product_of(shape),), (0,), (1,), (), (0, 1), doubled]
