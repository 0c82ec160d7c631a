"""Where imported rules stood in their source, and what a rule for both directions keeps of the one that it stands for too.

A rule and its reverse become one rule with `<=>`. Its documentation has both numbers, the tag `reverse_NAME` the name of the
one that is read from right to left, and `reverse_inputs_1_0` which input that one has in the place of each, where it calls
them otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from dslc.foreign.rule import ForeignRule, Operator, Output, RuleTensor
from dslc.semantics.definitions import SubstitutionDef
from dslc.syntax import tree as t

_NUMBERS = re.compile(r"\s*(?:Rule (\d{1,9})|Rules (\d{1,9}) and, from right to left, (\d{1,9})) of ")
_INPUTS = re.compile(r"reverse_inputs((?:_\d{1,3})+)")
_NAME = re.compile(r"reverse_(?!inputs_)(\w+)")


def documented(number: int, origin: str) -> str:
    """How the documentation of an imported rule begins."""
    return f"Rule {number} of {origin}"


def documented_both(doc: str, other: int) -> str:
    """The documentation of a rule that stands for another one too, read from right to left."""
    return re.sub(r"^(\s*)Rule (\d+) of ", rf"\1Rules \2 and, from right to left, {other} of ", doc, count=1)


def numbers_in(doc: str | None) -> tuple[int, ...]:
    """The numbers that a rule had in its source, that of the reverse last; none where the documentation does not say."""
    found = _NUMBERS.match(doc or "")
    return tuple(int(number) for number in found.groups() if number is not None) if found is not None else ()


def reverse_tags(name: str, order: Sequence[int]) -> list[str]:
    """What is kept of a reverse: its name, and its inputs by their place among those of the rule."""
    same = list(order) == sorted(order)
    return [f"reverse_{name}"] + ([] if same else [f"reverse_inputs_{'_'.join(map(str, order))}"])


def reverse_of(sub: SubstitutionDef) -> tuple[str, tuple[int, ...]] | None:
    """The name of the reverse, and which input it has in the place of each; None where no tag names one, or they are damaged."""
    syntax = sub.syntax
    tags = [name for s in (*syntax.left, *syntax.right) if isinstance(s, t.Tags) for name in s.names]
    name = next((found[1] for tag in tags if (found := _NAME.fullmatch(tag))), None)
    inputs = next((found[1] for tag in tags if (found := _INPUTS.fullmatch(tag))), None)
    everything = tuple(range(len(syntax.params)))
    order = everything if inputs is None else tuple(int(each) for each in inputs[1:].split("_"))
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
