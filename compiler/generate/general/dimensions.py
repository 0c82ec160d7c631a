"""The most general types of a rule's tensors: which sizes have to be equal, and which are free.

Every axis of every tensor of a rule gets a size of its own, a large number that is told from all others. Where an operator refuses
them, it is asked which of its arguments' axes have to change together; those become one size, or the sum of the sizes that were joined
there. What is left are the sizes that are free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations, islice, pairwise

from dslc.errors import DslcError
from dslc.generate.terms.term import (
    Conjecture,
    Item,
    Term,
    Terms,
    TermType,
    Tree,
    applied,
    entries,
    input_term,
    inputs,
    outputs,
    subterms,
    total,
)
from dslc.ir.dtype import TensorType
from dslc.ir.graph import input_value
from dslc.records import record
from dslc.semantics.apply import apply
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules, rules_cache

_SCALE = 1 << 20  #: trees of slots begin here


ROUNDS = 60  #: rounds of setting sizes equal
TOGETHER = 4  #: sizes that are changed together, at most, to see which are free


class NotGeneral(Exception):
    """No general type exists, with the reason."""


Application = tuple[Item, Terms]


@record
class GeneralTypes:
    """General types, as text of the language.

    `tensors` has the sizes of each input as expressions over free sizes; `cuts`, for each application that cuts, the two sizes;
    `sized` the values of the attributes that depend on sizes; `sizes` the free sizes with their values in the candidate itself.
    """

    tensors: dict[Term, tuple[str, ...]]
    cuts: dict[Application, tuple[str, str]]
    sized: dict[Application, dict[str, str]]
    sizes: dict[str, int]


@record
class Slot:
    """An axis of an input, or an entry of an attribute that is given by sizes."""

    owner: Term
    attr: str
    at: int


class _Unifier:
    """Sizes as numbers that are told apart: a slot's size is a number of its own, that of another slot, or a sum."""

    def __init__(self, slots: dict[Slot, int]) -> None:
        self.base = slots
        #: numbers that stay as they are
        self.fixed: set[int] = set()
        # the parity of sizes matters to odd kernels, and their order to paddings
        self.tree: dict[Slot, Tree] = {s: n * _SCALE + 14 * (k + 1) + n % 2 for k, (s, n) in enumerate(slots.items())}

    def slot_of(self, number: int) -> Slot | None:
        return next((slot for slot, tree in self.tree.items() if tree == number), None)

    def equal(self, a: Tree, b: Tree) -> bool:
        """Makes two sizes equal; False where nothing changed."""
        if a == b:
            return False
        for one, other in ((a, b), (b, a)):
            free = isinstance(one, int) and one not in self.fixed and self.slot_of(one) is not None
            if free and isinstance(one, int) and not _holds(other, one):
                self.tree = {slot: _replaced(tree, one, other) for slot, tree in self.tree.items()}
                return True
        if isinstance(a, int) or isinstance(b, int):
            return False
        return self.equal(a[0], b[0]) or self.equal(a[1], b[1])

    def pin(self, tree: Tree) -> bool:
        """Gives a free size back its original number."""
        slot = self.slot_of(tree) if isinstance(tree, int) else None
        if not slot or tree == self.base[slot]:
            return False
        assert isinstance(tree, int)
        self.tree = {s: _replaced(old, tree, self.base[slot]) for s, old in self.tree.items()}
        return True


def _holds(tree: Tree, number: int) -> bool:
    return tree == number if isinstance(tree, int) else _holds(tree[0], number) or _holds(tree[1], number)


def _replaced(tree: Tree, old: int, new: Tree) -> Tree:
    if isinstance(tree, int):
        return new if tree == old else tree
    return (_replaced(tree[0], old, new), _replaced(tree[1], old, new))


Tie = tuple["Slot", "Slot"]


def general_types(
    rules: Rules, candidate: Conjecture, ties: Iterable[Tie] = (), fixed: Iterable[Slot] = ()
) -> GeneralTypes:
    """The most general sizes for which both sides of a rule are well typed and have equal types.

    Args:
        ties: what has one size from the start.
        fixed: what keeps the size that it has in the candidate.

    Raises:
        NotGeneral: where none were found.
    """
    roots = candidate.roots
    unifier = _Unifier(slots_of(candidate))
    for slot in fixed:
        unifier.pin(unifier.tree[slot])
        unifier.fixed.add(unifier.base[slot])
    for a, b in ties:
        unifier.equal(unifier.tree[a], unifier.tree[b])
    for _ in range(ROUNDS):
        try:
            terms = _retyped(rules, roots, unifier)
        except _Refusal as refusal:
            if not _repair(rules, refusal, unifier):
                raise NotGeneral(f"`{refusal.item}` fits no other sizes: {refusal.reason}") from None
            continue
        apart: list[tuple[Tree, Tree]] = []
        for left, right in zip(candidate.sources, candidate.targets, strict=True):
            one, other = terms[left].type, terms[right].type
            if not apart and (len(one.dims) != len(other.dims) or one.dtype is not other.dtype):
                raise NotGeneral("the sides have different ranks")
            apart += [each for each in zip(one.dims, other.dims, strict=False) if total(each[0]) != total(each[1])]
        if not apart:
            return _named(roots, terms, unifier)
        x, y = apart[0]
        if not unifier.equal(x, y):
            raise NotGeneral(f"the sides have sizes {total(x)} and {total(y)}")
    raise NotGeneral("the sizes do not settle")


def attribute_ties(candidate: Conjecture) -> list[Tie]:
    """Entries of one attribute that have one size, wherever it occurs (the windows of two poolings)."""
    return [
        tie for tie in equal_ties(candidate) if tie[0].attr and (tie[0].attr, tie[0].at) == (tie[1].attr, tie[1].at)
    ]


def alike_ties(candidate: Conjecture) -> list[Tie]:
    """The same axes of inputs of one type."""
    return [
        (a, b)
        for a, b in combinations(slots_of(candidate), 2)
        if not a.attr and not b.attr and a.owner.type == b.owner.type and a.at == b.at
    ]


def equal_ties(candidate: Conjecture) -> list[Tie]:
    """All pairs of one size."""
    return [(a, b) for (a, m), (b, n) in combinations(slots_of(candidate).items(), 2) if m == n]


def axis_groups(candidate: Conjecture) -> list[list[tuple[Slot, ...]]]:
    """The groups that `equal_ties` makes one size each, by axes of inputs of one type and entries of attributes."""
    sizes: dict[int, dict[object, tuple[Slot, ...]]] = {}
    for slot, number in slots_of(candidate).items():
        place = (slot.attr, slot.at) if slot.attr else (slot.owner.type, slot.at)
        groups = sizes.setdefault(number, {})
        groups[place] = (*groups.get(place, ()), slot)
    return [[*groups.values()] for groups in sizes.values()]


def slots_of(candidate: Conjecture) -> dict[Slot, int]:
    """The axes of inputs, then the entries of attributes that are given by sizes, with their sizes."""
    out = {Slot(term, "", at): n for term in inputs(candidate.roots) for at, n in enumerate(term.type.shape)}
    for term in subterms(candidate.roots):
        if term.item:
            for name in term.item.sized:
                for at, entry in enumerate(entries(dict(term.item.attrs)[name])):
                    out[Slot(_key(term), name, at)] = int(str(entry))
    return out


def _key(term: Term) -> Term:
    """Output 0 of an application: what its attributes belong to."""
    assert term.item
    return term if term.output == 0 else applied(term.item, term.args, 0, term.type)


class _Refusal(Exception):
    def __init__(self, item: Item, args: Terms, original: Term, reason: str) -> None:
        super().__init__(reason)
        self.item, self.args, self.original, self.reason = item, args, original, reason


def _sized_item(term: Term, unifier: _Unifier) -> Item:
    item = term.item
    assert item
    if not item.sized:
        return item
    attrs = []
    for name, value in item.attrs:
        if name in item.sized:
            numbers = tuple(total(unifier.tree[Slot(_key(term), name, at)]) for at in range(len(entries(value))))
            value = numbers if isinstance(value, tuple) else numbers[0]
        attrs.append((name, value))
    return Item(item.op, tuple(attrs), item.cut, item.axis, item.sized)


def _retyped(rules: Rules, roots: Sequence[Term], unifier: _Unifier) -> dict[Term, Term]:
    """The terms at the unifier's sizes."""
    done: dict[Term, Term] = {}
    for term in subterms(roots):
        if not term.item:
            dims = tuple(unifier.tree[Slot(term, "", at)] for at in range(len(term.type.dims)))
            done[term] = input_term(term.index, TermType(term.type.dtype, dims))
            continue
        args = tuple(done[arg] for arg in term.args)
        item = _sized_item(term, unifier)
        try:
            done[term] = outputs(rules, item, args)[term.output]
        except (Mismatch, DslcError) as problem:
            raise _Refusal(item, args, term, str(problem)) from None
    return done


# ---- what an operator wants ------------------------------------------------------------------------------------


def _repair(rules: Rules, refusal: _Refusal, unifier: _Unifier) -> bool:
    """Ties what the operator that refused wants to be tied; False where nothing changed."""
    original = refusal.original
    assert original.item
    positions: list[Tree] = [tree for arg in refusal.args for tree in arg.type.dims]
    for name in original.item.sized:
        count = len(entries(dict(original.item.attrs)[name]))
        positions += [unifier.tree[Slot(_key(original), name, at)] for at in range(count)]
    key = original.item, tuple(arg.type.tensor for arg in original.args)
    known = rules_cache(rules, "wants")
    if key not in known:
        known[key] = _wants(rules, *key)
    tied, pinned = known[key]
    if any(unifier.equal(positions[a], positions[b]) for a, b in tied):
        return True
    changed = [unifier.pin(positions[at]) for at in pinned]
    return any(changed)


def _wants(rules: Rules, item: Item, types: tuple[TensorType, ...]) -> tuple[list[tuple[int, int]], list[int]]:
    """The positions (axes of the arguments, then entries of sized attributes) that change together, and those that cannot."""
    sizes = [size for type in types for size in type.sizes]
    sized = dict(item.attrs)
    for name in item.sized:
        sizes += [int(str(v)) for v in entries(sized[name])]

    def fits(numbers: Sequence[int]) -> bool:
        if item.cut is not None:
            return True
        left, args, attrs = iter(numbers), [], dict(item.attrs)
        for k, type in enumerate(types):
            args.append(input_value(f"p{k}", TensorType(type.dtype, tuple(islice(left, type.rank)))))
        for name in item.sized:
            value = attrs[name]
            attrs[name] = tuple(islice(left, len(value))) if isinstance(value, tuple) else next(left)
        try:
            apply(rules, item.op, args, attrs)
        except (Mismatch, DslcError):
            return False
        return True

    base = [size * 64 if size > 1 and size % 2 == 0 else size * 65 if size > 1 else size for size in sizes]
    if not fits(base):
        base = sizes
    free: set[int] = set()
    tied: list[tuple[int, int]] = []
    for count in range(1, TOGETHER + 1):
        for group in combinations([k for k in range(len(base)) if k not in free], count):
            if len({sizes[k] for k in group}) > 1:
                continue
            if fits([size + 2 if k in group else size for k, size in enumerate(base)]):
                free |= set(group)
                tied += list(pairwise(group))
    return tied, [k for k in range(len(base)) if k not in free]


# ---- names -----------------------------------------------------------------------------------------------------

_LETTERS = ("M", "K", "N", "P", "Q", "U", "V", "I", "J", "O")


def _named(roots: Sequence[Term], terms: dict[Term, Term], unifier: _Unifier) -> GeneralTypes:
    names: dict[int, str] = {}
    sizes: dict[str, int] = {}

    def dim(tree: Tree) -> str:
        if not isinstance(tree, int):
            return f"{dim(tree[0])} + {dim(tree[1])}"
        if tree < _SCALE:
            return str(tree)
        if tree not in names:
            k = len(sizes)
            name = _LETTERS[k % len(_LETTERS)] + (str(k // len(_LETTERS)) if k >= len(_LETTERS) else "")
            slot = unifier.slot_of(tree)
            if not slot:
                raise NotGeneral("a size is a computed one")
            names[tree], sizes[name] = name, unifier.base[slot]
        return names[tree]

    tensors = {
        term: tuple(dim(unifier.tree[Slot(term, "", at)]) for at in range(len(term.type.dims)))
        for term in inputs(roots)
    }
    cuts: dict[Application, tuple[str, str]] = {}
    sized: dict[Application, dict[str, str]] = {}
    for term in subterms(roots):
        if not term.item:
            continue
        if term.item.cut is not None:
            assert term.item.axis is not None
            tree = terms[term.args[0]].type.dims[term.item.axis]
            if isinstance(tree, int):
                raise NotGeneral("a tensor is cut that was not joined")
            cuts[term.node] = (dim(tree[0]), dim(tree[1]))
        for name in term.item.sized:
            value = dict(term.item.attrs)[name]
            new = [dim(unifier.tree[Slot(_key(term), name, at)]) for at in range(len(entries(value)))]
            sized.setdefault(term.node, {})[name] = f"[{', '.join(new)}]" if isinstance(value, tuple) else new[0]
    return GeneralTypes(tensors, cuts, _whole(sized, sizes, tensors), sizes)


def _whole(
    sized: dict[Application, dict[str, str]], sizes: dict[str, int], tensors: dict[Term, tuple[str, ...]]
) -> dict[Application, dict[str, str]]:
    """An attribute whose sizes are in no tensor is one variable; `sizes` loses its entries."""
    bound = {name for dims in tensors.values() for dim in dims for name in dim.split(" + ")}
    texts = {text for values in sized.values() for text in values.values()}
    places: Counter[str] = Counter(name for text in texts for name in text.strip("[]").split(", "))
    words: dict[str, str] = {}
    for values in sized.values():
        for attr, text in values.items():
            names = text.strip("[]").split(", ")
            if text in words or any(name in bound or name not in sizes or places[name] > 1 for name in names):
                continue
            taken = {*words.values(), *sizes}
            words[text] = next(
                w for w in (attr[:1], attr[:2], attr, *(f"{attr}{k}" for k in range(2, 9))) if w not in taken
            )
    for text in words:
        for name in text.strip("[]").split(", "):
            sizes.pop(name, None)
    return {node: {attr: words.get(text, text) for attr, text in values.items()} for node, values in sized.items()}
