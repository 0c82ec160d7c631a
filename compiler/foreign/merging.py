"""A proved rule and its reverse, which files hold one by one, as one rule with `<=>`; so too a rule that is its own reverse.

Two rules are joined only where the one is the other read from right to left, with the same types and guards, and where an export of the
joint rule gives both again, each as it is exported alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dslc.foreign.attributes import InexpressibleCall
from dslc.foreign.define import definition, operators
from dslc.foreign.duplicates import Seen
from dslc.foreign.exporting import directions_of, untagged
from dslc.foreign.numbering import documented_both, reverse_tags, reversed_rule
from dslc.foreign.outcome import LIVE, ImportedRule
from dslc.foreign.rule import ForeignRule
from dslc.foreign.translate import Translation
from dslc.prove.verdict import RuleVerdict
from dslc.semantics.definitions import SubstitutionDef
from dslc.syntax import tree as t

_ARROW, _BOTH = "\n  =>\n", "\n  <=>\n"


MOST_INPUTS = 5  #: inputs; a rule with more is joined only with a reverse that calls them alike


def merged(found: Sequence[ImportedRule], rules: Sequence[ForeignRule], form: str) -> list[ImportedRule]:
    """What became of the rules of a file, in order, once reverses are joined.

    The earlier one of two stands for both, with the weaker verdict; the later one is `merged`, its reason the earlier one's name.

    Args:
        rules: by number.
        form: the format in which the rules are compared.
    """
    out = {rule.number: rule for rule in found}
    live = [rule for rule in found if rule.outcome in LIVE and rule.translation is not None]
    seen = Seen()
    by_form: dict[object, list[ImportedRule]] = {}
    for rule in live:
        by_form.setdefault(seen.form(rules[rule.number]), []).append(rule)
    for rule in live:
        if out[rule.number].outcome == "merged":
            continue
        for other in by_form.get(seen.form(reversed_rule(rules[rule.number], "")), ()):
            if other.number < rule.number or out[other.number] is not other:
                continue
            text = _joined(rule, other, form)
            if text is not None:
                out[rule.number] = replace(rule, translation=text, verdict=_weaker(rule.verdict, other.verdict))
                if other is not rule:
                    out[other.number] = replace(other, outcome="merged", reason=rule.name)
                break
    return [out[rule.number] for rule in found]


def _weaker(one: RuleVerdict | None, other: RuleVerdict | None) -> RuleVerdict | None:
    """Of two proofs the one that is bounded."""
    return other if other is not None and other.status == "bounded" else one


def _joined(rule: ImportedRule, other: ImportedRule, form: str) -> Translation | None:
    """The reading of a rule for both directions, where `other` is exactly its reverse; None where it is not."""
    first, second = rule.translation, other.translation
    if first is None or second is None or rule.outcome != other.outcome or first.guard != second.guard:
        return None
    both = replace(first, text=first.text.replace(_ARROW, _BOTH, 1))
    known = operators()
    one, two = definition(known, first), definition(known, second)
    try:
        ((forward, inputs),), ((backward, others),) = directions_of(one, form), directions_of(two, form)
        for order in _orders(inputs, others):
            wanted = _renumbered(backward, {others[name]: inputs[name] for name in inputs})
            numbers = [*inputs.values()]
            renamed = {number: numbers[at] for number, at in zip(numbers, order, strict=True)}
            if replace(reversed_rule(forward, other.name, renamed), names=()) != wanted or not _is_reverse(
                one, two, order
            ):
                continue
            joint = both if other is rule else _tagged(both, reverse_tags(other.name, order), other.number)
            back = [each for each, _ in directions_of(definition(known, joint), form)]
            if [forward, wanted][: 1 if other is rule else 2] == [
                back[0],
                *(replace(each, names=()) for each in back[1:]),
            ]:
                return joint
    except InexpressibleCall:
        # what cannot be written cannot be compared either
        return None
    return None


def _orders(inputs: Mapping[str, int], others: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
    """Which input of a rule each one is in its reverse, by place; first that nothing is called otherwise."""
    if {*inputs} != {*others}:
        return
    same = tuple(range(len(inputs)))
    yield same
    if len(inputs) <= MOST_INPUTS:
        yield from (order for order in itertools.permutations(same) if order != same)


def _renumbered(rule: ForeignRule, inputs: dict[int, int]) -> ForeignRule:
    """With other numbers for its free inputs, and without names."""
    return replace(reversed_rule(reversed_rule(rule, rule.name, inputs), rule.name), names=())


def _is_reverse(one: SubstitutionDef, other: SubstitutionDef, order: Sequence[int]) -> bool:
    """Whether types, guards and sides are those of the other rule, read from right to left."""
    syntax = one.syntax
    names = [param.name for param in syntax.params]
    place = {names[at]: param for param, at in zip(syntax.params, order, strict=True)}
    shared = tuple(each for each in syntax.left if isinstance(each, t.Where))
    left, right = (*syntax.right, *shared), tuple(each for each in syntax.left if not isinstance(each, t.Where))
    params = tuple(place[param.name] for param in other.syntax.params)
    turned = replace(one, syntax=replace(syntax, params=params, left=left, right=right, doc=other.syntax.doc))
    return untagged(turned) == untagged(other)


def _tagged(reading: Translation, tags: Sequence[str], number: int) -> Translation:
    """With what is kept of the reverse in its tags and its documentation."""
    lines = reading.text.splitlines()[:-1]
    lines = [f'  """{documented_both(line[5:], number)}' if line.startswith('  """') else line for line in lines]
    if lines[-1].startswith("  tags "):
        lines[-1] += f", {', '.join(tags)}"
    else:
        lines.append(f"  tags {', '.join(tags)}")
    return replace(reading, text="\n".join([*lines, "}"]))
