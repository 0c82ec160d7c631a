"""Counterexamples: a difference replayed on numbers that a reader can follow, with every intermediate of both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from dslc.analysis.counts import known_flops
from dslc.analysis.reads import reads_at_data
from dslc.interpret.adversary import WrongInstance, differing, smallest
from dslc.interpret.check_rule import draw
from dslc.interpret.differ import READ_OUTSIDE, Way
from dslc.interpret.domain import Array, Domain, Redraw
from dslc.interpret.exact import Exact
from dslc.interpret.field import Field
from dslc.interpret.floats import Floats
from dslc.interpret.instantiate import Instance, show
from dslc.interpret.run import InterpretError, InterpretKind, run
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType, float_digits
from dslc.ir.graph import Call, Constant, Input, Value, Values, nodes_of
from dslc.prove.verdict import Counterexample, Types
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.elaborate import expand
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules

TRIES = 6  #: draws of inputs in one domain
TOLERANCE = 1e-7  #: difference below which numbers are the same
OUTSIDE = 16  #: draws of positions, of which the left side can read some
PRINTED = 256  #: elements of an array that is printed
LINES = 200  #: lines that are printed, at most
EXACT = 1e6  #: operations, up to which fractions are computed with


def types_differ(instance: Instance, drawn: Mapping[str, str]) -> Counterexample | None:
    """A counterexample where an output has another type on the right."""
    for name, left in instance.left.items():
        right = instance.right[name]
        if left.type != right.type:
            return Counterexample(drawn, name, (), str(left.type), str(right.type))
    return None


def smaller_counterexample(
    rules: Rules, sub: SubstitutionDef, instance: Instance, way: Way | None = None
) -> Counterexample | None:
    """The smallest sizes, attributes and inputs at which the sides still differ; None where the interpreter shows no difference."""
    found = smallest(rules, sub, instance, way)
    return _of_instance(rules, found) if found else None


def _of_instance(rules: Rules, found: WrongInstance) -> Counterexample | None:
    one, instance = found.difference, found.instance
    drawn = {name: show(value) for name, value in instance.drawn.items()}
    if one.way == "types":
        return types_differ(instance, drawn)
    names, (left, right) = tuple(instance.left), instance.sides
    try:
        steps = trace(rules, left, right, names, one.feeds, Floats(rounded=False))
    except (InterpretError, Redraw) as problem:
        steps = "\n".join([*_inputs(one.feeds), str(problem)])
    return Counterexample(drawn, names[one.output], one.position, one.left, one.right, trace=steps)


def replayed(
    rules: Rules,
    left: Sequence[Value],
    right: Sequence[Value],
    names: Sequence[str],
    inputs: Sequence[Value],
    rng: np.random.Generator,
    drawn: Mapping[str, str],
    over_field: bool = True,
    monomial: str = "",
    exactly: bool = False,
) -> Counterexample | None:
    """The first element that differs, with every intermediate; None where no numbers show a difference.

    Tried are small integers (where that does not take long), then floats, then (`over_field`) numbers modulo p; with `exactly` exact
    numbers alone, which show what conversions round.
    """
    domains: list[Domain] = [Exact()] * TRIES if (over_field or exactly) and _brief(rules, (*left, *right)) else []
    domains += [Floats(rounded=False)] * (0 if exactly else 2 * TRIES)
    domains += [Field(seed) for seed in range(TRIES)] if over_field and not exactly else []
    for attempt, domain in enumerate(domains):
        feeds = {value: _small(value, domain, rng, attempt) for value in inputs}
        try:
            results = run(rules, (*left, *right), feeds, domain)
        except (Redraw, InterpretError):
            continue
        for name, value, a, b in zip(names, left, results[: len(left)], results[len(left) :], strict=True):
            found = _first(value, a, b, domain)
            if found is not None:
                steps = trace(rules, left, right, names, feeds, domain)
                return Counterexample(drawn, name, found, _item(a[found]), _item(b[found]), monomial, steps)
    return None


def outside(
    rules: Rules, left: Sequence[Value], right: Sequence[Value], names: Sequence[str], inputs: Sequence[Value],
    rng: np.random.Generator, drawn: Mapping[str, str],
) -> Counterexample | None:  # fmt: skip
    """Positions (data) that the left side can read and the right side cannot, of expanded sides; None where none are found.

    They are anywhere in some axis, counted from its end too, or just behind it.
    """
    sizes = [size for value in inputs for size in value.type.sizes]
    if not sizes or not reads_at_data(right):
        return None
    domain = Floats(rounded=False)
    for attempt in range(OUTSIDE):
        feeds = {value: _position(value, domain, rng, attempt, sizes) for value in inputs}
        try:
            results = run(rules, left, feeds, domain)
        except (Redraw, InterpretError):
            continue
        try:
            run(rules, right, feeds, domain)
        except Redraw:
            continue
        except InterpretError as problem:
            if problem.kind is not InterpretKind.OUT_OF_BOUNDS:
                return None
            left_lines = [f"  {name} = {_array(found)}" for name, found in zip(names, results, strict=True)]
            trace = "\n".join([*_inputs(feeds), "left:", *left_lines, "right:", f"  {problem}"])
            return Counterexample(drawn, names[0], (), _array(results[0]), READ_OUTSIDE, "", trace)
    return None


def _position(value: Value, domain: Domain, rng: np.random.Generator, attempt: int, sizes: Sequence[int]) -> Any:
    dtype = value.type.dtype
    if not dtype.is_integer:
        return draw(value.type, domain, rng)
    most = max(1, int(rng.choice(sizes)) + int(rng.integers(4) == 0))
    signed = attempt % 2 and np.dtype(NUMPY[dtype]).kind == "i"
    return rng.integers(-most if signed else 0, most, value.type.sizes)


def _brief(rules: Rules, values: Values) -> bool:
    """Return whether fractions are quick enough: a thousand times slower than numbers of the machine."""
    try:
        operations = known_flops(expand(rules, values))
    except Mismatch:
        return False  # `run` says so
    return operations is not None and operations <= EXACT


def _small(value: Value, domain: Domain, rng: np.random.Generator, attempt: int) -> Any:
    """Small integers where the domain is exact, numbers with all digits of their type at later attempts; as `draw` otherwise."""
    dtype = value.type.dtype
    if not dtype.is_float:
        return draw(value.type, domain, rng, attempt % 4 if attempt % 3 == 2 else 0)
    if not isinstance(domain, Exact):
        return draw(value.type, domain, rng, attempt % 4, positive=bool(attempt % 2))
    items = rng.integers(-3 - attempt, 5 + attempt, value.type.sizes).astype(object)
    if attempt % 3 < 2:
        return np.frompyfunc(Fraction, 1, 1)(items)
    last = Fraction(2) ** (1 - float_digits(dtype))
    return np.frompyfunc(lambda item: (1 if item >= 0 else -1) * (1 + last * abs(item)), 1, 1)(items)


def _first(value: Value, a: Array, b: Array, domain: Domain) -> tuple[int, ...] | None:
    if value.type.dtype.is_float:
        equal = np.asarray(domain.close(a, b, TOLERANCE))
        if a.dtype.kind == "f":
            equal = equal | np.isnan(a)
    else:
        equal = np.asarray(a == b)
    return None if bool(equal.all()) else tuple(int(k) for k in np.argwhere(~equal)[0])


def trace(
    rules: Rules,
    left: Sequence[Value],
    right: Sequence[Value],
    names: Sequence[str],
    feeds: Mapping[Value, Any],
    domain: Domain,
) -> str:
    """Inputs, then the applications of either side in order, each with its value."""
    known = {value: getattr(value.node, "name", "?") for value in feeds}
    lines = _inputs(feeds)
    for title, side in (("left", left), ("right", right)):
        lines.append(f"{title}:")
        outputs = dict(zip(side, names, strict=True))
        for node in nodes_of(side):
            if isinstance(node, Input) or all(value in known for value in node.values):
                continue
            for value in node.values:
                known[value] = outputs.get(value, f"%{len(known)}")
            results = run(rules, node.values, feeds, domain)
            text = ", ".join(known[value] for value in node.values)
            lines.append(f"  {text} = {_application(value, known)} = {'; '.join(_array(each) for each in results)}")
        lines.extend(f"  {name} = {known[value]}" for value, name in outputs.items() if known[value] != name)
    return "\n".join(lines[:LINES] + [f"... {len(lines) - LINES} more lines"] * (len(lines) > LINES))


def _inputs(feeds: Mapping[Value, Any]) -> list[str]:
    return [f"{getattr(v.node, 'name', '?')}: {v.type} = {_array(array)}" for v, array in feeds.items()]


def _application(value: Value, known: Mapping[Value, str]) -> str:
    node = value.node
    args = [known[arg] for arg in node.args]
    if isinstance(node, Call):
        attrs = [f"{name}={show(item)}" for name, item in node.attrs]
        return f"{node.op.rpartition('.')[2]}({', '.join((*args, *attrs))})"
    return "a constant" if isinstance(node, Constant) else f"an expression over ({', '.join(args)})"


def _array(array: Any) -> str:
    data = np.asarray(array)
    if data.size > PRINTED:
        return f"({' x '.join(map(str, data.shape))} elements)"
    return _nested(data.tolist())


def _nested(item: Any) -> str:
    return f"[{', '.join(map(_nested, item))}]" if isinstance(item, list) else _item(item)


def _item(item: Any) -> str:
    item = item.item() if isinstance(item, np.generic) else item
    return f"{item:.7g}" if isinstance(item, float) else str(item)


def text_of(found: Counterexample) -> str:
    """The counterexample of a diagnostic: what names stand for, the trace, and the first element that differs."""
    lines = []
    if found.drawn:
        lines.append(", ".join(f"{name} = {value}" for name, value in found.drawn.items()))
    if found.trace:
        lines.append(found.trace)
    if found.monomial:
        lines.append(f"the coefficients of {found.monomial} differ")
    place = f"{found.output}{list(found.position)}" if found.position else found.output
    lines.append(f"{place} is {found.left} on the left and {found.right} on the right")
    return "\n".join(lines)


INSTANCES = 16  #: instances of one rule


def refutation(
    rules: Rules,
    sub: SubstitutionDef,
    types: Types,
    seed: int = 0,
    share: float = 1.0,
    small: bool = True,
    near: Mapping[str, Any] | None = None,
) -> Counterexample | None:
    """The first difference between the sides that some instances show, with all intermediates; None where they show none.

    `share`: of the usual number of instances; `small`: whether a smaller one is looked for; `near`: what names stand for in the first
    instances, those that a prover left open.
    """
    rng, count = np.random.default_rng(seed), ceil(share * INSTANCES)
    wrong = differing(rules, sub, rng, count, types.dtypes[:1] or (DType.F32,), types.at, near)
    if not wrong:
        return None
    found = smaller_counterexample(rules, sub, wrong.instance, wrong.difference.way) if small else None
    return found or _of_instance(rules, wrong)
