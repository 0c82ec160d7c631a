"""Rules of a file that say the same: up to names, up to the order of operands that commute, or read the other way."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from dslc.foreign.rule import ForeignRule, Operator, Parameter, RuleTensor
from dslc.foreign.translation import Translation

# TASO's element-wise sum and product: `taso` has the laws, and a rule matches both orders of their operands
_COMMUTE = frozenset({"ew_add", "ew_mul"})


MOST_INPUTS = 5  #: inputs that are renamed in every way


@dataclass
class Seen:
    """The rules of a file so far, by what they say; terms are numbered, equal ones alike."""

    names: dict[object, str] = field(default_factory=dict)
    _terms: dict[tuple[object, ...], int] = field(default_factory=dict)

    def other(self, name: str, rule: ForeignRule, reading: Translation) -> str | None:
        """An earlier rule that says the same, or None; then this one is remembered under its `name`."""
        keys = (_text_key(reading), self.form(rule))
        found = next((self.names[key] for key in keys if key in self.names), None)
        if found is None:
            self.names.update(dict.fromkeys(keys, name))
        return found

    def one_graph(self, rule: ForeignRule, reading: Translation) -> bool:
        """Return whether both sides are the same up to the order of operands that commute."""
        numbers = {number: k for k, number in enumerate(rule.inputs())}
        sides = self._side(rule.source, numbers), self._side(rule.target, numbers)
        if len(equation(reading)[1]) == 1:
            return True
        return all(_at(sides[0], each.source, numbers) == _at(sides[1], each.target, numbers) for each in rule.outputs)

    def form(self, rule: ForeignRule) -> tuple[object, ...]:
        """The smallest form over all numberings of the inputs: equal for rules that differ in names and order of operands."""
        inputs = rule.inputs()
        many = len(inputs) > MOST_INPUTS
        inputs = tuple(sorted(inputs)) if many else inputs
        orders = [tuple(range(len(inputs)))] if many else itertools.permutations(range(len(inputs)))
        return ("graph", min(self._form(rule, dict(zip(inputs, order, strict=True))) for order in orders))

    def _form(self, rule: ForeignRule, numbers: dict[int, int]) -> tuple[tuple[int, int], ...]:
        left, right = self._side(rule.source, numbers), self._side(rule.target, numbers)
        pairs = [(_at(left, each.source, numbers), _at(right, each.target, numbers)) for each in rule.outputs]
        return tuple(sorted((self._number("pair", *a), self._number("pair", *b)) for a, b in pairs))

    def _side(self, side: Sequence[Operator], numbers: dict[int, int]) -> list[int]:
        out: list[int] = []
        for op in side:
            args = [_at(out, tensor, numbers) for tensor in op.inputs]
            parameters: tuple[tuple[str, Parameter], ...] = op.parameters
            out.append(self._number(op.kind, parameters, tuple(sorted(args) if op.kind in _COMMUTE else args)))
        return out

    def _number(self, *term: object) -> int:
        return self._terms.setdefault(term, len(self._terms))


def _at(known: Sequence[int], tensor: RuleTensor, numbers: dict[int, int]) -> tuple[int, int]:
    """A tensor of a side: an operator's number and which of its outputs, or an input's number."""
    return (known[tensor.operator], tensor.output) if tensor.operator >= 0 else (-1, numbers[tensor.operator])


def _text_key(reading: Translation) -> str:
    """The text without its name, documentation and tags, tensors numbered in order."""
    lines = [line.strip() for line in reading.text.splitlines()]
    lines[0] = lines[0].removeprefix(f"substitution {reading.name}")
    kept = [line for line in lines[:-1] if not line.startswith(('"""', "tags "))]
    order: dict[str, str] = {}
    return re.sub(r"\b[ABX]\d+\b", lambda found: order.setdefault(found[0], f"X{len(order)}"), "\n".join(kept))


def equation(reading: Translation) -> tuple[str, frozenset[str]]:
    """The types of a rule and its two sides, whichever is which; a rule with a condition is for itself."""
    head, *lines = [
        line.strip() for line in reading.text.splitlines()[:-1] if not line.strip().startswith(('"""', "tags "))
    ]
    if any(line.startswith("where ") for line in lines):
        return reading.text, frozenset()
    names, _, outputs = head.removeprefix(f"substitution {reading.name}").partition(" -> ")
    params = ", ".join(sorted(names.strip("()").split(", X")))
    sides = "\n".join(lines).partition("\n=>\n")
    return f"{params} -> {outputs}", frozenset((_local(sides[0]), _local(sides[2])))


def _local(side: str) -> str:
    """A side with its own names in order."""
    order: dict[str, str] = {}
    return re.sub(r"\b[AB]\d+\b", lambda found: order.setdefault(found[0], f"_{len(order)}"), side)
