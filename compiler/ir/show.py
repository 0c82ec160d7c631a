"""Scalar expressions as text, in the notation of the language."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from fractions import Fraction
from itertools import count
from typing import Any

from dslc.ir.fold import shorter
from dslc.ir.scalar import Iter, Num, Read, Reduce, Scalar, Sym, Table, exactly, num, raw_apply, scalars

_INFIX = {"+", "*", "/", "//", "%", "^", "==", "!=", "<", "<=", ">", ">=", "and", "or"}
#: of each dimension of a tensor the names of what runs along it, the best ones first
Axes = Sequence[Sequence[str]]
LETTERS = "ijklmnpquvwxyzabcdfgh"  #: names of iterators that have none


def show_scalar(node: Scalar) -> str:
    """One line; operands are `$0`, `$1`, ... Deterministic, so it also orders terms; kept with the node."""
    return ScalarText(None).go(node)


class ScalarText:
    """Expressions as text, with names for the operands or `$0`, `$1`, ...; other notations override `fresh`."""

    tight = frozenset({"*"})  #: functions that need no parentheses in a sum

    def __init__(self, operands: tuple[str, ...] | None) -> None:
        self._operands = operands
        self._memo: dict[Scalar, str] = {}

    def go(self, node: Scalar) -> str:
        if self._operands is None:
            node._text = node._text or self.fresh(node)
            return node._text
        if node not in self._memo:
            self._memo[node] = self.fresh(node)
        return self._memo[node]

    def fresh(self, node: Scalar) -> str:
        if isinstance(node, Num):
            return str(node.value).lower()
        if isinstance(node, Sym | Iter):
            return node.name
        if isinstance(node, Read):
            name = f"${node.operand}" if self._operands is None else self._operands[node.operand]
            inside = [self.go(part) for part in node.index]
            if node.other:
                inside.append(f"other={self.go(node.other)}")
            return f"{name}[{', '.join(inside)}]"
        if isinstance(node, Table):
            return f"{matrix(node.values)}[{', '.join(self.go(part) for part in node.index)}]"
        if isinstance(node, Reduce):
            inner, names = self._below(node)
            binders = ", ".join(f"{name}: {inner.go(e)}" for name, e in zip(names, node.extents, strict=True))
            where = f" where {inner.go(node.where)}" if node.where else ""
            return f"({node.kind}[{binders}{where}] {inner._inner(node.body)})"
        if node.op == "select":
            condition, then, otherwise = node.args
            return f"({self.go(then)} if {self.go(condition)} else {self.go(otherwise)})"
        if node.op == "+":
            return self._sum(node)
        if node.op in _INFIX:
            return f" {node.op} ".join(map(self._inner, node.args))
        return f"{node.op}({', '.join(map(self.line, node.args))})"

    def line(self, node: Scalar) -> str:
        """An expression that stands by itself."""
        return self.go(node)

    def _below(self, node: Reduce) -> tuple[ScalarText, Sequence[str]]:
        """The text of what a reduction holds, and the names of its iterators."""
        return self, [it.name for it in node.iters]

    def _sum(self, node: Scalar) -> str:
        text = ""
        for arg in node.args:
            part = self.go(arg) if arg.op in self.tight else self._inner(arg)
            if part.startswith("-1 * "):
                part = "-" + part[5:]
            if not text:
                text = part
            elif part.startswith("-"):
                text += f" - {part[1:]}"
            else:
                text += f" + {part}"
        return text

    def _inner(self, node: Scalar) -> str:
        text = self.go(node)
        wrap = (node.op in _INFIX) or (isinstance(node, Num) and "/" in text)
        return f"({text})" if wrap else text


class LanguageText(ScalarText):
    """Functions as the language writes them."""

    def fresh(self, node: Scalar) -> str:
        name, _, suffix = node.op.partition(":")
        if name == "convert":
            return f"convert({self.line(node.args[0])}, {suffix})"
        if name == "not":
            return f"(not ({self.line(node.args[0])}))"
        return super().fresh(node)


class ReadableText(LanguageText):
    """Expressions as a person writes them: iterators have names, numbers are decimals, indices are short.

    `axes`: names of what runs along the dimensions of operands; `numbers`: texts by value; `taken`: other names.
    """

    tight = frozenset({"", "*", "/", "//", "%", "^"})
    spare: Sequence[str] = ()  #: names for iterators that run along nothing by themselves

    def __init__(
        self, operands: Sequence[str], axes: Sequence[Axes], numbers: Mapping[Any, str] = {}, taken: Iterable[str] = (),
        **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(tuple(operands), **more)
        self._axes, self._numbers, self._taken = axes, numbers, {*operands, *taken}
        self._iters: dict[Scalar, str] = {}
        #: names of the iterators of reductions by their own name, extent and kind
        self.rows: dict[tuple[str, Scalar, str], dict[str, None]] = {}

    def name(self, iters: Sequence[Iter], part: Scalar, first: Mapping[Iter, str] = {}) -> list[str]:
        """Name iterators by what they run along in an expression, by letters else; none twice."""
        for it in iters:
            wanted = [first.get(it, "")]
            for read in scalars(Read, part):
                for index, names in zip(read.index, self._axes[read.operand], strict=False):
                    wanted += names if index is it else ()
            taken = {"", *self._taken, *self._iters.values()}
            self._iters[it] = next((each for each in (*wanted, *self.spare, *LETTERS) if each not in taken), it.name)
        return [self._iters[it] for it in iters]

    def name_scope(self, scope: Any, known: Axes) -> tuple[list[str], Axes]:
        """Name the iterators of a scope, those by names of its dimensions that are known; and what runs along these."""
        last = [axis[-1:] for axis in scope.dimensions]
        named = zip(last, known, strict=False)
        iters = self.name(
            scope.iters, scope.body, {scope.iters[k]: names[0] for at, names in named for k in at if names}
        )
        return iters, [[iters[k] for k in at] for at in last]

    def line(self, node: Scalar) -> str:
        text = self.go(node)
        return text[1:-1] if isinstance(node, Reduce) else text

    def go(self, node: Scalar) -> str:
        return super().go(shorter(node))

    def fresh(self, node: Scalar) -> str:
        if node in self._iters:
            return self._iters[node]
        if node.op == "*" and isinstance(head := node.args[0], Num) and head.value < 0:
            return "-" + " * ".join(map(self._inner, (num(-head.value), *node.args[1:]))).removeprefix("1 * ")
        if isinstance(node, Num):
            value = node.value
            short = repr(float(value)) if isinstance(value, Fraction) and abs(value) < 1e300 else ""
            decimal = short if short and Fraction(short) == value else ""
            return self._numbers.get(exactly(value)) or decimal or super().fresh(node)
        text = super().fresh(node)
        return text.removesuffix("[]") if isinstance(node, Read) else text

    def _below(self, node: Reduce) -> tuple[ScalarText, Sequence[str]]:
        inner = copy(self)
        inner._iters, inner._memo = dict(self._iters), {}
        names = inner.name(node.iters, node.body)
        for (it, extent), name in zip(node.ranges, names, strict=True):
            self.rows.setdefault((it.name, extent, node.kind), {})[name] = None
        return inner, names

    def _sum(self, node: Scalar) -> str:
        # what is subtracted stands behind what is added, and numbers behind the rest
        late = sorted(node.args, key=lambda part: (self.go(part).startswith("-"), isinstance(part, Num)))
        return super()._sum(raw_apply("+", *late))


def unlike(name: str, taken: Collection[str]) -> str:
    """A name that none of these is: with a number behind it where it is taken."""
    return next(each for k in count(1) if (each := name + f"_{k}" * (k > 1)) not in taken)


def matrix(values: Any, number: Callable[[Any], str] = str) -> str:
    """Nested tuples of numbers as nested lists."""
    return f"[{', '.join(matrix(each, number) for each in values)}]" if isinstance(values, tuple) else number(values)
