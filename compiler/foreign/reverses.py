"""A proved rule and its reverse, which files hold one by one, as one rule with `<=>`; so too a rule that is its own reverse.

Two rules are joined only where the one is the other read from right to left, with the same types and guards, and where the
parameters of their operators are the same, so that an export of the joint rule gives both again.
The documentation of the joint rule has both numbers, the tag `reverse_NAME` the name of the one that is read from right to left, and
`reverse_inputs_1_0` which input that one has in the place of each, where it calls them otherwise.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from dslc.foreign.decisions import LIVE, ImportedRule
from dslc.foreign.duplicates import Seen
from dslc.foreign.rule import ForeignRule, Operator, Output, Parameter, RuleTensor
from dslc.foreign.translation import Translation, definition, operators
from dslc.semantics.checks.duplicates import canonical
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.walk import tags_in
from dslc.syntax import tree as t

MOST_INPUTS = 5  #: inputs; a rule with more is joined only with a reverse that calls them alike


def merged(found: Sequence[ImportedRule], rules: Sequence[ForeignRule]) -> list[ImportedRule]:
    """The outcomes of the rules of a file, in order, once reverses are joined.

    The earlier one of two stands for both, with the weaker verdict; the later one is `merged`, its reason the earlier one's name.

    Args:
        rules: by number.
    """
    out = {rule.number: rule for rule in found}
    live = [rule for rule in found if rule.outcome in LIVE and rule.translation]
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
            text = _joined(rule, other, rules)
            if text:
                bounded = other.verdict is not None and other.verdict.status == "bounded"
                verdict = other.verdict if bounded else rule.verdict
                out[rule.number] = replace(rule, translation=text, verdict=verdict)
                if other is not rule:
                    out[other.number] = replace(other, outcome="merged", reason=rule.name)
                break
    return [out[rule.number] for rule in found]


def _joined(rule: ImportedRule, other: ImportedRule, rules: Sequence[ForeignRule]) -> Translation | None:
    """The reading of a rule for both directions, where `other` is exactly its reverse; None where it is not."""
    first, second = rule.translation, other.translation
    if not first or not second or rule.outcome != other.outcome or first.guard != second.guard:
        return None
    there, back = rules[rule.number], rules[other.number]
    if _parameters(there.source) != _parameters(back.target) or _parameters(there.target) != _parameters(back.source):
        return None
    one, two = definition(operators(), first), definition(operators(), second)
    both = replace(first, text=first.text.replace("\n  =>\n", "\n  <=>\n", 1))
    names = [param.name for param in one.syntax.params]
    if {*names} != {param.name for param in two.syntax.params}:
        return None
    same = tuple(range(len(names)))
    # the first of the permutations is that nothing is called otherwise
    for order in itertools.permutations(same) if len(names) <= MOST_INPUTS else [same]:
        if _is_reverse(one, two, order):
            return both if other is rule else _tagged(both, reverse_tags(other.name, order), other.number)
    return None


def _parameters(side: Sequence[Operator]) -> list[tuple[tuple[str, Parameter], ...]]:
    """In the file's order; the language has no place for some of them, and an export writes them again."""
    return [op.parameters for op in side]


def _is_reverse(one: SubstitutionDef, other: SubstitutionDef, order: Sequence[int]) -> bool:
    """Return whether types, guards and sides are those of the other rule, read from right to left."""
    names = [param.name for param in one.syntax.params]
    place = {names[at]: param for param, at in zip(one.syntax.params, order, strict=True)}
    turned = reversed_syntax(one, tuple(place[param.name] for param in other.syntax.params))
    return untagged(replace(turned, syntax=replace(turned.syntax, doc=other.syntax.doc))) == untagged(other)


def reversed_syntax(sub: SubstitutionDef, params: tuple[t.Param, ...]) -> SubstitutionDef:
    """The sides of a substitution exchanged; conditions stay on the left."""
    syntax = sub.syntax
    shared = tuple(each for each in syntax.left if isinstance(each, t.Where))
    left, right = (*syntax.right, *shared), tuple(each for each in syntax.left if not isinstance(each, t.Where))
    return replace(sub, syntax=replace(syntax, params=params, left=left, right=right, arrow="=>"))


def untagged(sub: SubstitutionDef) -> object:
    """Canonical form for comparison: without tags for kernels and words about floats, which only an import writes."""
    left, right = (
        tuple(each for each in side if not isinstance(each, t.Tags | t.Verify)) for side in (sub.left, sub.right)
    )
    return canonical(replace(sub, syntax=replace(sub.syntax, left=left, right=right)))


def _tagged(reading: Translation, tags: Sequence[str], number: int) -> Translation:
    """With what is kept of the reverse in its tags and its documentation."""
    lines = reading.text.splitlines()[:-1]
    lines = [f'  """{documented_both(line[5:], number)}' if line.startswith('  """') else line for line in lines]
    if lines[-1].startswith("  tags "):
        lines[-1] += f", {', '.join(tags)}"
    else:
        lines.append(f"  tags {', '.join(tags)}")
    return replace(reading, text="\n".join([*lines, "}"]))


_NUMBERS = re.compile(r"\s*(?:Rule (\d{1,9})|Rules (\d{1,9}) and, from right to left, (\d{1,9})) of ")
_INPUTS = re.compile(r"reverse_inputs((?:_\d{1,3})+)")
_NAME = re.compile(r"reverse_(?!inputs_)(\w+)")


def documented(number: int, origin: str) -> str:
    """The beginning of the documentation of an imported rule."""
    return f"Rule {number} of {origin}"


def documented_both(doc: str, other: int) -> str:
    """The documentation of a rule that stands for another one too, read from right to left."""
    return re.sub(r"^(\s*)Rule (\d+) of ", rf"\1Rules \2 and, from right to left, {other} of ", doc, count=1)


def numbers_in(doc: str | None) -> tuple[int, ...]:
    """The numbers that a rule had in its source, that of the reverse last; none where the documentation does not say."""
    found = _NUMBERS.match(doc or "")
    return tuple(int(number) for number in found.groups() if number is not None) if found is not None else ()


def reverse_tags(name: str, order: Sequence[int]) -> list[str]:
    """Tags that keep a reverse: its name, and its inputs by their place among those of the rule."""
    same = list(order) == sorted(order)
    return [f"reverse_{name}"] + ([] if same else [f"reverse_inputs_{'_'.join(map(str, order))}"])


def reverse_of(sub: SubstitutionDef) -> tuple[str, tuple[int, ...]] | None:
    """The name of the reverse, and which input it has in the place of each; None where no tag names one, or they are damaged."""
    syntax = sub.syntax
    tags = tags_in(syntax.statements)
    name = next((found[1] for tag in tags if (found := _NAME.fullmatch(tag))), None)
    inputs = next((found[1] for tag in tags if (found := _INPUTS.fullmatch(tag))), None)
    everything = tuple(range(len(syntax.params)))
    order = everything if inputs is None else tuple(map(int, inputs[1:].split("_")))
    return None if name is None or tuple(sorted(order)) != everything else (name, order)


def reversed_rule(rule: ForeignRule, name: str, inputs: dict[int, int] | None = None) -> ForeignRule:
    """Target and source exchanged. `inputs`: the number for each free input, where it is another one."""
    renamed = inputs or {}

    def tensor(each: RuleTensor) -> RuleTensor:
        return replace(each, operator=renamed.get(each.operator, each.operator))

    def side(operators: Sequence[Operator]) -> tuple[Operator, ...]:
        return tuple(replace(op, inputs=tuple(map(tensor, op.inputs))) for op in operators)

    outputs = tuple(Output(tensor(each.target), tensor(each.source)) for each in rule.outputs)
    return ForeignRule(name, side(rule.target), side(rule.source), outputs, rule.names)


def in_source_order(
    found: Sequence[tuple[SubstitutionDef, Sequence[ForeignRule]]],
) -> list[ForeignRule]:
    """The rules of a file in the order of their source, where the documentation still says it; else as they stand.

    Args:
        found: each substitution with its rule, and with the reverse behind it.
    """
    numbered = [(numbers_in(sub.syntax.doc), rules) for sub, rules in found]
    first = [numbers[0] for numbers, _ in numbered if numbers]
    if first != sorted(set(first)):
        return [rule for _, rules in found for rule in rules]
    placed: list[tuple[int, ForeignRule]] = []
    last = -1
    for numbers, rules in numbered:
        last = numbers[0] if numbers else last
        known = numbers if len(numbers) == len(rules) else (last,) * len(rules)
        placed += zip(known, rules, strict=True)
    return [rule for _, rule in sorted(placed, key=lambda pair: pair[0])]
