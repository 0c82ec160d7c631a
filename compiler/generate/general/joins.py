"""Rules with several results (TASO, Figure 2b).

`split_0(matmul(x, concat(a, b))) == matmul(x, a)` holds for every b, but read from right to left nothing says what b is. Its sister
for `split_1` binds it: both together are one rule with two results, `matmul(x, a)` and `matmul(x, b)` on one side, the halves of the
merged product on the other. So equations whose inputs differ are joined where they share the application that brings the inputs in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from dslc.generate.general.text import choice
from dslc.generate.terms.term import Conjecture, Equation, Item, Term, Terms, inputs, outputs, size, subterms
from dslc.ir.graph import Attrs
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules


def joined(rules: Rules, equations: Iterable[Equation], most: int) -> Iterator[Conjecture]:
    """Substitutions with several results, sources first that are to be looked for; at most `most` operators on either side.

    All outputs of an application that has several are one rule; else two equations that share the application of which one of them
    alone does not bind all inputs.
    """
    halves: dict[tuple[Item, Terms], dict[int, Term]] = defaultdict(dict)
    loose: dict[Term, list[Equation]] = defaultdict(list)
    for equation in equations:
        for term, other in (equation.roots, equation.roots[::-1]):
            if not term.item:
                continue
            if len(rules.operators[term.item.op].syntax.outputs) > 1:
                known = halves[term.node].get(term.output)
                if not known or size((other,)) < size((known,)):
                    halves[term.node][term.output] = other
            elif (less := set(inputs((other,)))) < (more := set(inputs((term,)))):
                # the proper parts that hold all inputs which the other term lacks
                for part in subterms(term.args):
                    if part.args and more - less <= set(inputs((part,))):
                        loose[part].append(Equation(term, other))
    for (item, args), found in halves.items():
        count = len(rules.operators[item.op].syntax.outputs)
        if len(found) == count:
            yield from _checked(tuple(found[k] for k in range(count)), outputs(rules, item, args), most)
    for group in loose.values():
        for first, second in combinations(group, 2):
            yield from _checked((first.right, second.right), (first.left, second.left), most)


def taken_apart(rules: Rules, items: Iterable[Item], candidate: Conjecture, most: int) -> Iterator[Conjecture]:
    """`concat(u, v) == s` as a rule with the results u and v, the parts of s: for operators that are inverse of the one on top."""
    if len(candidate.sources) != 1:
        return
    (one,), (other,) = candidate.sources, candidate.targets
    for joint, whole in ((one, other), (other, one)):
        for item in items:
            if joint.item is None or item.cut is None or rules.traits_of(item.op).inverse != joint.item.op:
                continue
            if not set(dict(item.attrs).items()) <= set(dict(joint.item.attrs).items()):
                continue
            try:
                targets = outputs(rules, item, (whole,))
            except Mismatch:
                continue
            if len(targets) == len(joint.args):
                yield from _checked(joint.args, targets, most)


def along_axes(rules: Rules, items: Sequence[Item], candidate: Conjecture) -> Iterator[Conjecture]:
    """A candidate whose operators all work on one axis, on each axis in turn for which there are items."""
    named = {(item.op, item.attrs): item for item in items}
    for axis in sorted({item.axis for item in items if item.axis is not None}):
        try:
            sources, targets = (_along(rules, named, axis, roots) for roots in (candidate.sources, candidate.targets))
        except (KeyError, Mismatch):
            continue
        yield Conjecture(sources, targets)


def _along(rules: Rules, items: Mapping[tuple[str, Attrs], Item], axis: int, roots: Terms) -> Terms:
    """Terms with all their axes replaced by another one; KeyError where there is no such item."""
    done: dict[Term, Term] = {}
    for part in subterms(roots):
        if not part.item:
            done[part] = part
            continue
        item = part.item
        attrs = tuple(
            (name, axis if name not in item.sized and choice(rules, item, name, value)[2] == "axis" else value)
            for name, value in item.attrs
        )
        done[part] = outputs(rules, items[item.op, attrs], tuple(done[arg] for arg in part.args))[part.output]
    return tuple(done[root] for root in roots)


def _checked(sources: Terms, targets: Terms, most: int) -> Iterator[Conjecture]:
    """A conjecture that can be matched: every source is computed, and together they have all inputs of the targets."""
    found = Conjecture(sources, targets)
    if len(set(sources)) == len(sources) and found.binds and found.size <= most:
        yield found
