"""Symbolic instances of whole rules: a few pairs of programs that together stand for every use of a rule.

Some of their sizes may be numbers: this remains where a rule is too hard at sizes that are all unknown. A place in a merged dimension
`(G, F)` is `g * F + f`: with both factors unknown this is no longer affine, with one of them a number it is. Group counts and the
sizes of small blocks are such numbers; the verdict's scope names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any

from dslc.analysis.conditions import unknowns
from dslc.analysis.reads import computed
from dslc.ir.graph import Value, Values
from dslc.ir.scalar import Num, Scalar, Sym, num, rebuild, scalars
from dslc.ir.sizes import with_sizes
from dslc.prove.verdict import Verdict
from dslc.records import record
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.values import far_sizes, numbers_of
from dslc.syntax import tree as t

NUMBERS: tuple[int, ...] = (1, 2, 3)  #: values of a size, in turn
#: values of each of several sizes, in turn; different ones differ
COMBINATIONS: tuple[tuple[int, ...], ...] = ((1, 1), (2, 1), (1, 2), (2, 3))
FAR = 9  #: least number of a rule's text for which there are sizes besides
MOST_FAR = 4  #: how many of these there are: each takes as long as the small ones

#: by axis the names of the packs, with the position in the pack, of which it is an axis
Labels = Mapping[int, frozenset[str]]


class Uncovered(Exception):
    """No finite number of symbolic instances was found; the reason is the text. `vacant`: there is none, as guards refuse them all."""

    def __init__(self, reason: str, vacant: bool = False) -> None:
        super().__init__(reason)
        self.vacant = vacant


@dataclass(frozen=True, eq=False)
class SymbolicInstance:
    """Both sides of a rule for one choice of ranks, axes and flags.

    `left` and `right` consist of inputs, constants and scopes, in the order of the rule's outputs. `conditions` hold.
    `undischarged`: demands of the right side on its arguments that are not proved to follow (they are among the conditions, as a rule
    is only used where its right side has a meaning), and equalities of the sides' shapes that are not proved.
    """

    inputs: Values
    left: Values
    right: Values
    outputs: tuple[str, ...]
    conditions: tuple[Scalar, ...]
    text: str
    undischarged: tuple[Scalar, ...]
    #: both sides as the rule writes them, with calls of operators
    graphs: tuple[Values, Values]
    #: values of its names, but for unknowns
    drawn: Mapping[str, Any]
    #: the axes of each input that are a pack's
    axes: Mapping[Value, Labels]
    #: an attribute was enumerated by rank
    listed: bool
    #: a permutation or a list of sizes was enumerated
    mixing: bool
    same_shape: bool
    ranks: Mapping[str, int]
    #: the unknowns that are entries of lists
    entries: frozenset[str]
    #: numbers of entries of lists that may have any
    lengths: Mapping[str, int]
    #: the values of the rule's names, in every case that gives these sides
    names: tuple[Mapping[str, Any], ...]

    @property
    def sizes(self) -> tuple[Sym, ...]:
        """The unknown sizes of the inputs."""
        return _unknowns(self.inputs)

    @property
    def values(self) -> tuple[Value, ...]:
        """The results of both sides."""
        return (*self.left, *self.right)


def _unknowns(values: Sequence[Value]) -> tuple[Sym, ...]:
    """The unknowns in the shapes of values."""
    dims = (size for value in values for size in value.type.shape if isinstance(size, Scalar))
    return tuple(dict.fromkeys(node for size in dims for node in scalars(Sym, size)))


@record
class InstanceSet:
    """Instances that together stand for every use of a rule within `scope` (empty: all shapes, ranks and attributes)."""

    instances: tuple[SymbolicInstance, ...]
    scope: str = ""
    #: positions are multiplied with unknown attributes, or guards are about unknown numbers: they are numbers at the next level
    unknown_steps: bool = False
    #: guards are about unknown numbers, which are not among the conditions: a difference may be one only where they do not hold
    assumed: bool = False
    #: other integer attributes, or numbers, are unknown, which are numbers at the third level
    unknown_integers: bool = False


# ---- sizes as numbers -------------------------------------------------------------------------------------------------


def choices_of(sub: SubstitutionDef, count: int) -> tuple[tuple[int, ...], ...]:
    """Values of `count` sizes, in turn: small numbers, and those that tell a number that the rule names from others."""
    far = far_sizes(replace(numbers_of(sub), reached=()), FAR)[:MOST_FAR]
    if count == 1:
        return tuple((number,) for number in (*NUMBERS, *far))
    return (*COMBINATIONS, *((number, 2) for number in far), *((2, number) for number in far))


def with_numbers(sub: SubstitutionDef, instance_set: InstanceSet, prove: Callable[[InstanceSet], Verdict]) -> Verdict:
    """The verdict on the cover, with as few of its sizes as numbers as were found to suffice where it is a matter of places.

    First the outer factors of merged dimensions, then each size alone by which positions are divided, then all of these, of which
    those that are not needed become unknown again.
    """
    whole = prove(instance_set)
    if not whole.places:
        return whole

    @cache
    def attempt(names: tuple[str, ...]) -> Verdict | None:
        numbered = at_combinations(instance_set, names, choices_of(sub, len(names))) if names else None
        found = prove(numbered) if numbered else None
        return found if found and found.answer != "unknown" else None

    instances = instance_set.instances
    # the unknown sizes by which positions are divided, those of later parameters first: kernels are small, images are not
    dividing = {
        one.name
        for part in computed(value for each in instances for value in each.values)
        if part.op in {"//", "%"} and part.args[0].free
        for one in unknowns(part.args[1])
    }
    place = {
        size.name: k
        for each in instances
        for k, value in reversed(list(enumerate(each.inputs)))
        for size in _unknowns((value,))
    }
    divisors = tuple(sorted(dividing & place.keys(), key=lambda name: (-place[name], name)))
    for names in (_outer(sub, instance_set), *((one,) for one in divisors)):
        found = attempt(names)
        if found:
            return found
    found, needed = attempt(divisors), divisors
    for name in divisors if found and found.answer == "equal" else ():
        fewer = tuple(one for one in needed if one != name)
        again = attempt(fewer)
        if again:
            found, needed = again, fewer
    return found or whole


def at_combinations(
    instance_set: InstanceSet, names: Sequence[str], choices: Sequence[Sequence[int]]
) -> InstanceSet | None:
    """The cover with these sizes at each combination of numbers; None where the conditions exclude all of them."""
    made: dict[tuple[object, ...], SymbolicInstance] = {}
    for instance in instance_set.instances:
        for values in choices:
            found = at_numbers(instance, {name: values[k % len(values)] for k, name in enumerate(names)})
            if found:
                made.setdefault((found.left, found.right, found.conditions), found)
    numbers = ", ".join(map(str, sorted({number for values in choices for number in values})))
    shown = f"{', '.join(names)} in {f'{len(choices)} combinations of ' if len(names) > 1 else ''}{numbers}"
    scope = "; ".join(part for part in (instance_set.scope, shown) if part)
    return replace(instance_set, instances=tuple(made.values()), scope=scope) if made else None


def _outer(sub: SubstitutionDef, instance_set: InstanceSet) -> tuple[str, ...]:
    """The names of unknown sizes that come first in a merged dimension of the rule's types."""
    known = {size.name for instance in instance_set.instances for size in instance.sizes}
    names = [
        slot.bare
        for param in sub.params
        if param.type
        for dim in param.type.dims or ()
        if isinstance(dim, t.TupleExpr)
        for slot in dim.slots[:-1]
        if slot.bare in known
    ]
    return tuple(dict.fromkeys(names))


def at_numbers(instance: SymbolicInstance, sizes: Mapping[str, int]) -> SymbolicInstance | None:
    """The instance with numbers for these sizes; None where a size or the conditions exclude them."""
    memo: dict[Scalar, Scalar] = {}

    def leaf(node: Scalar) -> Scalar | None:
        return num(sizes[node.name]) if isinstance(node, Sym) and node.name in sizes else None

    def bound(scalar: Scalar) -> Scalar:
        return rebuild(scalar, leaf, memo)

    conditions = tuple(map(bound, instance.conditions))
    too_small = any(size.name in sizes and sizes[size.name] < (size.least or 0) for size in instance.sizes)
    if too_small or any(isinstance(each, Num) and each.value is False for each in conditions):
        return None
    values = iter(with_sizes((*instance.inputs, *instance.left, *instance.right), bound))
    return replace(
        instance,
        inputs=tuple(islice(values, len(instance.inputs))),
        left=tuple(islice(values, len(instance.left))),
        right=tuple(values),
        conditions=tuple(each for each in conditions if not isinstance(each, Num)),
        text=", ".join(part for part in (instance.text, *(f"{name} = {size}" for name, size in sizes.items())) if part),
        undischarged=tuple(each for each in map(bound, instance.undischarged) if not isinstance(each, Num)),
        graphs=((), ()),
        drawn={**instance.drawn, **sizes},
    )
