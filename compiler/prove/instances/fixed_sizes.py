"""Instances with some of their sizes as numbers: what remains where a rule is too hard at sizes that are all unknown.

A place in a merged dimension `(G, F)` is `g * F + f`: with both factors unknown that is no longer affine, with one of them a number
it is. Group counts and the sizes of small blocks are such numbers; the verdict's scope names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dslc.ir.graph import ScopeNode, topological
from dslc.ir.scalar import Apply, Num, Scalar, Sym, num, rebuild, walk
from dslc.ir.sizes import with_sizes
from dslc.prove.instances.instances import InstanceSet, SymbolicInstance
from dslc.prove.verdict import Verdict
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.values import far_sizes, numbers_of
from dslc.syntax import tree as t

NUMBERS: tuple[int, ...] = (1, 2, 3)  #: what a size is in turn
#: what each of several sizes is in turn; different ones differ
COMBINATIONS: tuple[tuple[int, ...], ...] = ((1, 1), (2, 1), (1, 2), (2, 3))
FAR = 9  #: least number of a rule's text for which there are sizes besides
MOST_FAR = 4  #: how many of these there are: each takes as long as the small ones


def choices_of(sub: SubstitutionDef, count: int) -> tuple[tuple[int, ...], ...]:
    """What `count` sizes are in turn: small numbers, and those that tell a number that the rule names from others."""
    far = far_sizes(replace(numbers_of(sub), reached=()), FAR)[:MOST_FAR]
    if count == 1:
        return tuple((number,) for number in (*NUMBERS, *far))
    return (*COMBINATIONS, *((number, 2) for number in far), *((2, number) for number in far))


def with_numbers(
    sub: SubstitutionDef, instance_set: InstanceSet, prove: Callable[[InstanceSet], Verdict]
) -> Verdict | None:
    """The verdict on the cover with as few of its sizes as numbers as were found to suffice; None where none does.

    First the outer factors of merged dimensions, then each size alone by which positions are divided, then all of these, of which
    those that are not needed become unknown again.
    """
    tried: dict[tuple[str, ...], Verdict | None] = {}

    def attempt(names: tuple[str, ...]) -> Verdict | None:
        if names not in tried:
            numbered = at_combinations(instance_set, names, choices_of(sub, len(names))) if names else None
            found = None if numbered is None else prove(numbered)
            tried[names] = found if found is not None and found.answer != "unknown" else None
        return tried[names]

    divisors = _divisors(instance_set)
    for names in (_outer(sub, instance_set), *((one,) for one in divisors)):
        found = attempt(names)
        if found is not None:
            return found
    found, needed = attempt(divisors), divisors
    for name in divisors if found is not None and found.answer == "equal" else ():
        fewer = tuple(one for one in needed if one != name)
        again = attempt(fewer)
        if again is not None:
            found, needed = again, fewer
    return found


def at_combinations(
    instance_set: InstanceSet, names: Sequence[str], choices: Sequence[Sequence[int]]
) -> InstanceSet | None:
    """The cover with these sizes at each combination of numbers; None where the conditions exclude all of them."""
    made: dict[tuple[object, ...], SymbolicInstance] = {}
    for instance in instance_set.instances:
        for values in choices:
            found = at_numbers(instance, {name: values[k % len(values)] for k, name in enumerate(names)})
            if found is not None:
                made.setdefault((found.left, found.right, found.conditions), found)
    numbers = ", ".join(map(str, sorted({number for values in choices for number in values})))
    shown = f"{', '.join(names)} in {f'{len(choices)} combinations of ' if len(names) > 1 else ''}{numbers}"
    scope = "; ".join(part for part in (instance_set.scope, shown) if part)
    return replace(instance_set, instances=tuple(made.values()), scope=scope) if made else None


def _outer(sub: SubstitutionDef, instance_set: InstanceSet) -> tuple[str, ...]:
    """The names of unknown sizes that come first in a merged dimension of the rule's types."""
    known = {size.name for instance in instance_set.instances for size in instance.sizes}
    names = [
        slot.id
        for param in sub.syntax.params
        if param.type is not None
        for dim in param.type.dims or ()
        if isinstance(dim, t.TupleExpr)
        for slot in dim.slots[:-1]
        if isinstance(slot, t.Name) and slot.id in known
    ]
    return tuple(dict.fromkeys(names))


def _divisors(instance_set: InstanceSet) -> tuple[str, ...]:
    """The unknown sizes by which positions are divided."""
    found: set[str] = set()
    for instance in instance_set.instances:
        for node in topological(value.node for value in (*instance.left, *instance.right)):
            if not isinstance(node, ScopeNode):
                continue
            for part in walk(node.scope.body):
                if isinstance(part, Apply) and part.name in {"//", "%"} and part.args[0].free:
                    found.update(one.name for one in walk(part.args[1]) if isinstance(one, Sym))
    # sizes of later parameters first: kernels are small, images are not
    place = {
        size.name: k
        for instance in instance_set.instances
        for k, value in reversed(list(enumerate(instance.inputs)))
        for dim in value.type.shape
        if isinstance(dim, Scalar)
        for size in walk(dim)
        if isinstance(size, Sym)
    }
    return tuple(sorted((name for name in found if name in place), key=lambda name: (-place[name], name)))


def at_numbers(instance: SymbolicInstance, sizes: Mapping[str, int]) -> SymbolicInstance | None:
    """The instance with numbers for these sizes; None where a size or the conditions exclude them."""
    memo: dict[Scalar, Scalar] = {}

    def leaf(node: Scalar) -> Scalar | None:
        return num(sizes[node.name]) if isinstance(node, Sym) and node.name in sizes else None

    def bound(scalar: Scalar) -> Scalar:
        return rebuild(scalar, leaf, memo)

    if any(size.name in sizes and sizes[size.name] < (size.least or 0) for size in instance.sizes):
        return None
    conditions = tuple(bound(each) for each in instance.conditions)
    if any(isinstance(each, Num) and each.value is False for each in conditions):
        return None
    groups = (instance.inputs, instance.left, instance.right)
    values = with_sizes([value for group in groups for value in group], bound)
    ends = [sum(len(group) for group in groups[:k]) for k in range(4)]
    inputs, left, right = (values[ends[k] : ends[k + 1]] for k in range(3))
    return replace(
        instance,
        inputs=inputs,
        left=left,
        right=right,
        conditions=tuple(each for each in conditions if not isinstance(each, Num)),
        sizes=tuple(size for size in instance.sizes if size.name not in sizes),
        text=", ".join(part for part in (instance.text, *(f"{name} = {size}" for name, size in sizes.items())) if part),
        undischarged=tuple(each for each in map(bound, instance.undischarged) if not isinstance(each, Num)),
        graphs=((), ()),
        drawn={**instance.drawn, **sizes},
    )
