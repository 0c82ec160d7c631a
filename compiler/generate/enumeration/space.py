"""The terms of an enumeration as arrays: one row for each term, its operators as numbers, so that shared ones count once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dslc.generate.terms.inputs import Family
from dslc.generate.terms.term import Item, Term, TermType, applied, input_term
from dslc.interpret.domain import Array
from dslc.ir.dtype import TensorType

#: item number of an input
INPUT = -1
#: input sequences hold numbers below this, in one int64
_BASE = 32
_PLACES = 12  #: numbers of a sequence, at most


@dataclass
class TypeNumbers:
    """Numbers for types with split trees and roles, and for shapes with roles (a role: see `dslc.generate.terms.inputs`)."""

    types: list[TermType] = field(default_factory=list)
    shapes: list[TensorType] = field(default_factory=list)
    #: the role of each shape
    roles: list[int] = field(default_factory=list)
    shape_of: list[int] = field(default_factory=list)
    _types: dict[tuple[TermType, int], int] = field(default_factory=dict)
    _shapes: dict[tuple[TensorType, int], int] = field(default_factory=dict)

    def number(self, type: TermType, role: int) -> int:
        if (type, role) not in self._types:
            self._types[type, role] = len(self.types)
            self.types.append(type)
            self.shape_of.append(self._shape(type.tensor, role))
        return self._types[type, role]

    def _shape(self, type: TensorType, role: int) -> int:
        if (type, role) not in self._shapes:
            self._shapes[type, role] = len(self.shapes)
            self.shapes.append(type)
            self.roles.append(role)
        return self._shapes[type, role]


@dataclass
class TermTable:
    """Terms, one in each row.

    `item` (INPUT, or an index of the menu followed by the constants), `output`, `args` (-1 where there are fewer), `type`, `size`
    (operators), `ops` (the numbers of its operators, -1 after the last), `order` (its inputs by first occurrence, encoded), `varied`
    (an operator has an attribute off its default), `constant` (a constant is among its leaves).
    """

    item: Array
    output: Array
    args: Array
    type: Array
    size: Array
    ops: Array
    order: Array
    varied: Array
    constant: Array

    def __len__(self) -> int:
        return len(self.item)

    def plus(self, *others: TermTable) -> TermTable:
        tables = (self, *others)
        return TermTable(
            *(np.concatenate([getattr(one, name) for one in tables]) for name in self.__dataclass_fields__)
        )

    def rows(self, chosen: Array) -> TermTable:
        return TermTable(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


def leaves(family: Family, types: TypeNumbers, arity: int, operators: int) -> TermTable:
    """The inputs, then the constants."""
    count = len(family.inputs) + len(family.constants)
    own = np.array(
        [INPUT] * len(family.inputs) + [len(family.items) + k for k in range(len(family.constants))], np.int32
    )
    own_types = (*family.inputs, *(type for _, type in family.constants))
    kinds = [types.number(type, role) for type, role in zip(own_types, family.roles, strict=True)]
    places = np.arange(count)
    return TermTable(
        own,
        np.where(own == INPUT, places, 0).astype(np.int32),
        np.full((count, arity), -1, np.int32),
        np.array(kinds, np.int32),
        np.zeros(count, np.int32),
        np.full((count, operators), -1, np.int32),
        np.where(own == INPUT, places + 1, 0),
        np.zeros(count, bool),
        own != INPUT,
    )


def item_of(family: Family, number: int) -> Item:
    """The menu item, or the constant behind the items, of a number."""
    return family.items[number] if number < len(family.items) else family.constants[number - len(family.items)][0]


class Reader:
    """Rows of a table as terms; made once each."""

    def __init__(self, family: Family, types: TypeNumbers, table: TermTable) -> None:
        self._family, self._types, self._table = family, types, table
        self._made: dict[int, Term] = {}

    def term(self, row: int) -> Term:
        found = self._made.get(row)
        if not found:
            table = self._table
            type = self._types.types[int(table.type[row])]
            number = int(table.item[row])
            if number == INPUT:
                found = input_term(int(table.output[row]), type)
            else:
                found = self.applied(number, table.args[row], int(table.output[row]), type)
            self._made[row] = found
        return found

    def applied(self, number: int, args: Any, output: int, type: TermType) -> Term:
        return applied(
            item_of(self._family, number), tuple(self.term(int(arg)) for arg in args if arg >= 0), output, type
        )


# ---- the order of inputs ----------------------------------------------------------------------------------------


def joined_orders(orders: list[Array]) -> Array:
    """Encoded sequences one after the other, without repetitions. A sequence is a number in base 32, its first entry lowest."""
    total = orders[0].copy()
    for later in orders[1:]:
        rest = later.copy()
        for _ in range(_PLACES):
            digit = rest % _BASE
            if not digit.any():
                break
            rest //= _BASE
            seen = total.copy()
            place = np.ones_like(total)
            found = digit == 0
            for _ in range(_PLACES):
                here = seen % _BASE
                found |= here == digit
                place = np.where(here == 0, place, place * _BASE)
                seen //= _BASE
                if not seen.any():
                    break
            total = np.where(found, total, total + digit * place)
    return total


def in_first_order(order: Array, family: Family) -> Array:
    """Return whether the inputs of each type occur first in the order of their numbers: one of all renamings of a term does."""
    good = np.ones(len(order), dtype=bool)
    kinds: dict[TermType, list[int]] = {}
    for k, type in enumerate(family.inputs):
        kinds.setdefault(type, []).append(k + 1)
    for numbers in kinds.values():
        if len(numbers) < 2:
            continue
        expected = np.zeros(len(order), dtype=np.int64)
        rest = order.copy()
        for _ in range(_PLACES):
            digit = rest % _BASE
            if not rest.any():
                break
            rest //= _BASE
            mine = np.isin(digit, numbers)
            good &= ~mine | (digit == np.array([*numbers, 0])[expected])
            expected += mine
            np.minimum(expected, len(numbers), out=expected)
    return good
