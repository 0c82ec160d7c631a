"""The operators that mutants are made of, each with the attributes that the shapes and the attributes at hand allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import prod
from typing import Any

from dslc.ir.graph import Call, ScopeNode, Value
from dslc.ir.scalar import Read, Reduce, Scalar, walk
from dslc.mutate.problem import MutationProblem, applied, digits, extents_of, is_linear_call
from dslc.records import record
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules
from dslc.semantics.walk import nodes
from dslc.syntax import tree as t

DERIVED_AT_ONCE = 1  #: attributes that may be off what the region has, and off their defaults
FACTORS: tuple[int, ...] = (2, 4)  #: factors of what does not divide, beside those of the attributes
WINDOW = 7  #: sizes up to this are windows, from which paddings are taken
REPEATED = 16  #: how often a tensor is repeated, at most


@record
class Core:
    """An operator with its attributes, and the number of tensors that it takes."""

    op: str
    attrs: tuple[tuple[str, Any], ...]
    count: int

    def on(self, rules: Rules, args: Sequence[Value]) -> Value | None:
        """The operator on tensors; None where they do not fit."""
        made = applied(rules, self.op, args, dict(self.attrs))
        return None if made is None else made[0]


@dataclass(frozen=True)
class CoreNumbers:
    """The sources of attributes: the numbers of a region's attributes, and the sizes of its tensors."""

    problem: MutationProblem

    @cached_property
    def own(self) -> dict[str, list[Any]]:
        """The values of each attribute by its name."""
        found: dict[str, list[Any]] = {}
        for node in self.problem.calls:
            for name, value in node.attrs:
                if value not in found.setdefault(name, []):
                    found[name].append(value)
        return found

    @cached_property
    def numbers(self) -> frozenset[int]:
        """The numbers in attributes, of lists those that are in them."""
        return frozenset(n for values in self.own.values() for value in values for n in _integers(value))

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """The numbers of attributes that may be what windows step by."""
        return tuple(sorted({n for n in self.numbers if 1 < n <= WINDOW}))

    @cached_property
    def factors(self) -> tuple[int, ...]:
        """Numbers that dimensions are cut by whether or not they divide them."""
        return tuple(sorted({*self.steps, *FACTORS}))

    @cached_property
    def lists(self) -> tuple[tuple[int, ...], ...]:
        """Lists of integers, and their quotients by factors."""
        found: dict[tuple[int, ...], None] = {}
        for values in self.own.values():
            for value in values:
                if isinstance(value, tuple) and all(type(n) is int for n in value):
                    found[value] = None
                    for f in self.factors if any(value) else ():
                        found[tuple(n // f for n in value)] = None
                        found[tuple(-(-n // f) for n in value)] = None
        return tuple(found)

    @cached_property
    def windows(self) -> tuple[tuple[int, ...], ...]:
        """Ends of shapes that may be windows: those of the tensors, and lists that attributes have."""
        found = dict.fromkeys(shape[2:] for shape in self.problem.inputs if len(shape) > 2 and max(shape[2:]) <= WINDOW)
        for value in self.lists:
            if value and min(value) >= 1 and max(value) <= WINDOW and prod(value) > 1:
                found[value] = None
        # what is left of a window of which every so manyeth position is taken
        for window in tuple(found):
            for step in self.lists:
                if len(step) != len(window) or min(step) < 2:
                    continue
                left = tuple(-(-n // f) for n, f in zip(window, step, strict=True))
                if prod(left) > 1:
                    found[left] = None
        return tuple(found)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Numbers of repetitions of a tensor: the first sizes of tensors, which are the images of a batch."""
        return tuple(
            sorted({shape[0] for shape in self.problem.small_inputs if len(shape) > 2 and 1 < shape[0] <= REPEATED})
        )

    @cached_property
    def integers(self) -> tuple[int, ...]:
        sizes = {size for shape in self.problem.small_inputs for size in shape if size > 1}
        return tuple(sorted({1, 2} | self.numbers | sizes))


def _integers(value: Any) -> list[int]:
    if isinstance(value, tuple):
        return [n for each in value for n in _integers(each)]
    return [value] if type(value) is int else []


def operators(rules: Rules) -> tuple[OperatorDef, ...]:
    """Candidates for a mutant: operators of one result that ONNX has a node for; linearity is asked of instances."""
    return tuple(
        op for op in rules.operators.values()
        if op.params and len(op.outputs) == 1 and any(isinstance(one, t.OnnxMap) for one in op.statements)
    )  # fmt: skip


def arity(op: OperatorDef) -> int:
    """The tensors that an operator needs: those with a default are left out."""
    return sum(param.default is None for param in op.params)


def choices(op: OperatorDef, numbers: CoreNumbers, most: int = DERIVED_AT_ONCE) -> Iterator[Core]:
    """An operator with each choice of attributes: as in the region, by default, and a few others, `most` of them at once."""
    options = []
    for attr in op.attrs:
        usual = _usual(attr, numbers)
        known = {_plain(value) for value, _ in usual} | {_plain(_default(attr))}
        others = [(value, off) for value, off in _derived(attr, numbers) if not off or _plain(value) not in known]
        options.append([*usual, *others])
    made: dict[tuple[tuple[str, Any], ...], int] = {}
    for chosen in product(*options):
        derived = sum(other for _, other in chosen)
        if derived > most:
            continue
        attrs = tuple(
            (attr.name, value) for attr, (value, _) in zip(op.attrs, chosen, strict=True) if value is not None
        )
        made.setdefault(attrs, derived)
    for attrs in sorted(made, key=made.__getitem__):
        yield Core(op.name, attrs, arity(op))


def _default(attr: t.Attr) -> Any:
    return attr.default.value if isinstance(attr.default, t.Int | t.Float) else None


def _plain(value: Any) -> Any:
    """A list of equal numbers as that number: what an attribute of a list may be given as."""
    return value[0] if isinstance(value, tuple) and len(set(value)) == 1 else value


def _usual(attr: t.Attr, numbers: CoreNumbers) -> list[tuple[Any, bool]]:
    found: list[tuple[Any, bool]] = [(None, False)] if attr.default else []
    return found + [(value, False) for value in numbers.own.get(attr.name, []) if _plain(value) != _default(attr)]


def _derived(attr: t.Attr, numbers: CoreNumbers) -> list[tuple[Any, bool]]:
    """Other values, and True for those that are off what is usual."""
    off = attr.default is not None or attr.type.name == "bool"
    return [(value, off) for value in _others(attr, numbers)]


def _others(attr: t.Attr, numbers: CoreNumbers) -> Iterable[Any]:
    """Other values: of two numbers for each dimension (begins and ends) or of one, as the attribute has them."""
    kind = attr.type.name
    ranks = max(len(shape) for shape in numbers.problem.inputs)
    if kind == "bool":
        return (False, True)
    if kind == "axis":
        return range(ranks)
    if kind == "axes":
        return [(k,) for k in range(ranks)] + [(k, k + 1) for k in range(ranks - 1)]
    if kind != "int":
        return ()
    if attr.type.dims is None:
        return numbers.integers
    doubled = any(node.value == 2 for node in nodes(t.Int, attr.type.dims))
    windows = numbers.windows
    if not doubled:
        least = (
            1
            if not attr.default or attr.name not in numbers.own
            else min(min(value, default=1) for value in numbers.own[attr.name])
        )
        spread = {len(value) for value in windows} | {ranks - 2}
        found = [value for value in numbers.lists if len(value) in spread and min(value, default=0) >= min(least, 1)]
        return dict.fromkeys([*found, *windows])
    ends = dict.fromkeys(value for value in numbers.lists if len(value) == 2 * (ranks - 2))
    for window in windows:
        for side in (tuple(n // 2 for n in window), tuple(n - 1 for n in window)):
            ends[(*side, *side)] = None
        # what keeps the size: an even window has one position more on one side
        low, high = tuple((n - 1) // 2 for n in window), tuple(n // 2 for n in window)
        ends[(*high, *low)] = ends[(*low, *high)] = None
    return ends


def is_linear(rules: Rules, core: Core, args: Sequence[Value]) -> bool:
    """Return whether a call is linear in its tensors, and more than a change of layout, which is a step of its own."""
    made = core.on(rules, args)
    if not made or not isinstance(made.node, Call) or not is_linear_call(rules, made.node):
        return False
    if len(made.node.args) > 1:
        return True
    (scope,) = expand(rules, (made,))
    return isinstance(scope.node, ScopeNode) and any(isinstance(part, Reduce) for part in walk(scope.node.scope.body))


def instance(rules: Rules, core: Core, args: Sequence[Value]) -> Value | None:
    """An operator's result on tensors of some types; None where they do not fit, or where it is none of floats of known sizes."""
    made = core.on(rules, args)
    return made if made and made.known and made.type.is_static and made.type.dtype.is_float else None


Place = tuple[int, int]


def together(rules: Rules, core: Core, holes: Sequence[Value]) -> tuple[tuple[Place, Place], ...]:
    """Dimensions of two tensors of which one size must divide the other, as one iterator counts through both: (tensor, axis) twice.

    Read off an instance that fits: an iterator of its own or a digit of a merged dimension, wherever attributes move the rest.
    """
    made = core.on(rules, holes)
    if not made:
        return ()
    (value,) = expand(rules, (made,))
    if not isinstance(value.node, ScopeNode) or any(arg not in holes for arg in value.node.args):
        return ()
    scope = value.node.scope
    extents = extents_of(scope)
    where: dict[Scalar, list[Place]] = {}
    for part in walk(scope.body):
        if isinstance(part, Read):
            for axis, at in enumerate(part.index):
                for it in digits(at, extents):
                    where.setdefault(it, []).append((holes.index(value.node.args[part.operand]), axis))
    pairs = {
        pair for places in where.values() for pair in combinations(sorted(set(places)), 2) if pair[0][0] != pair[1][0]
    }
    return tuple(sorted(pairs))
