"""Einsum as the operators that compute it: transposes, sums, and a product of matrices or of elements.

    Einsum("bihd,bjhd->bhij", Q, K)   Transpose(Q, b h i d)   Transpose(K, b h d j)   MatMul: b h i j

What has dots, a letter twice in an operand, more than two operands, or sizes that would have to be multiplied is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dslc.ir.graph import Value, product
from dslc.onnx.protos import whole_numbers

#: a node of ONNX's operators as values of the graph; None where no clause reads it
Make = Callable[..., Value | None]


class _NotWritten(Exception):
    """There are no such operators."""


def written(equation: str, operands: Sequence[Value], make: Make, listed: bool) -> Value | None:
    """The result of an Einsum, or None; `listed`: whether axes are inputs (since opset 13)."""
    terms, arrow, result = equation.replace(" ", "").partition("->")
    letters = terms.split(",")
    if (
        len(letters) != len(operands)
        or not 1 <= len(letters) <= 2
        or any(not term.isalpha() for term in letters if term)
    ):
        return None
    if not arrow:
        everything = "".join(letters)
        result = "".join(sorted(letter for letter in set(everything) if everything.count(letter) == 1))
    fits = all(len(set(term)) == len(term) for term in (*letters, result)) and set(result) <= set("".join(letters))
    if not fits or any(len(term) != operand.type.rank for term, operand in zip(letters, operands, strict=True)):
        return None
    sizes: dict[str, Any] = {}
    for term, operand in zip(letters, operands, strict=True):
        for letter, size in zip(term, operand.type.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                return None
    try:
        return _Writing(make, listed, sizes).result(letters, operands, result)
    except _NotWritten:
        return None


@dataclass(eq=False)
class _Writing:
    make: Make
    listed: bool
    sizes: dict[str, Any]

    def result(self, letters: Sequence[str], operands: Sequence[Value], result: str) -> Value:
        found = []
        for k, (term, operand) in enumerate(zip(letters, operands, strict=True)):
            others = {*result, *"".join(letters[:k]), *"".join(letters[k + 1 :])}
            kept = "".join(letter for letter in term if letter in others)
            axes = [axis for axis, letter in enumerate(term) if letter not in kept]
            found.append((self.along("ReduceSum", operand, axes, keepdims=0) if axes else operand, kept))
        if len(found) == 1:
            ((value, term),) = found
            return self.turned(value, term, result)
        (left, a), (right, b) = found
        if set(a) & set(b) <= set(result):
            return self.elements(left, a, right, b, result)
        return self.product(left, a, right, b, result)

    def product(self, left: Value, a: str, right: Value, b: str, result: str) -> Value:
        """Batches in front, what is summed between."""
        batch = "".join(letter for letter in result if letter in a and letter in b)
        inner = "".join(letter for letter in a if letter in b and letter not in result)
        rows = "".join(letter for letter in result if letter in a and letter not in b)
        columns = "".join(letter for letter in result if letter in b and letter not in a)
        # without batches the left operand keeps its rows apart
        x = self.merged(
            self.turned(left, a, batch + rows + inner), *((batch, rows, inner) if batch or not rows else (rows, inner))
        )
        y = self.merged(self.turned(right, b, batch + inner + columns), batch, inner, columns)
        found = self.call("MatMul", x, y)
        kept = batch + rows + columns
        if len(columns) != 1 or not rows or (batch and len(rows) > 1):
            found = self.reshaped(found, [self.sizes[letter] for letter in kept])
        return self.turned(found, kept, result)

    def merged(self, value: Value, apart: str, *groups: str) -> Value:
        """The axes of each group as one."""
        if all(len(group) == 1 for group in groups):
            return value
        merged = [product(tuple(self.sizes[letter] for letter in group)) for group in groups]
        return self.reshaped(value, [*(self.sizes[letter] for letter in apart), *merged])

    def elements(self, left: Value, a: str, right: Value, b: str, result: str) -> Value:
        """A product of elements, each operand with axes of 1 for what it has not."""
        operands = []
        for value, term in ((left, a), (right, b)):
            own = self.turned(value, term, "".join(one for one in result if one in term))
            missing = [k for k, letter in enumerate(result) if letter not in term]
            operands.append(self.along("Unsqueeze", own, missing) if missing else own)
        return self.call("Mul", *operands)

    def turned(self, value: Value, term: str, wanted: str) -> Value:
        if term == wanted:
            return value
        return self.call("Transpose", value, perm=[term.index(letter) for letter in wanted])

    def reshaped(self, value: Value, shape: Sequence[Any]) -> Value:
        """By numbers, with one unknown size at most."""
        if sum(not isinstance(size, int) for size in shape) > 1 or 0 in shape:
            raise _NotWritten
        sizes = [size if isinstance(size, int) else -1 for size in shape]
        return self.call("Reshape", value, whole_numbers(sizes))

    def along(self, op: str, value: Value, axes: list[int], **attributes: Any) -> Value:
        if self.listed:
            return self.call(op, value, whole_numbers(axes), **attributes)
        return self.call(op, value, axes=axes, **attributes)

    def call(self, op: str, *values: Value, **attributes: Any) -> Value:
        found = self.make(op, *values, **attributes)
        if not found:
            raise _NotWritten
        return found
