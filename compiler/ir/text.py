"""Programs over holes as text: an operator definition of the language, which reads back as the same objects.

`dslc.semantics.written` reads it. Every scope becomes an operator with one equation, and a program of several nodes an operator that
calls them. Holes are `h0`, `h1`, ... and `w0`, ... where they stand for weights; unknown sizes keep their names where the language
allows them, and are attributes where no type says what they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from dslc.ir.constants import FillRef
from dslc.ir.dtype import DType, TensorType
from dslc.ir.element import element_type, scalar_dtype
from dslc.ir.graph import Call, Constant, Graph, Input, Kernel, Node, ScopeNode, Value, with_args
from dslc.ir.holes import hole, is_hole
from dslc.ir.scalar import Num, Reduce, Scalar, Sym, Table, as_scalar, raw_apply
from dslc.ir.scopes import substitute
from dslc.ir.show import Axes, LanguageText, ReadableText, matrix
from dslc.ir.sizes import unknowns
from dslc.syntax.vocabulary import (
    CONSTANTS,
    CONVERT,
    DTYPE_NAMES,
    FUNCTIONS_1,
    INDEX_FUNCTIONS,
    KEYWORDS,
    PREDICATES,
    REDUCTIONS,
)

#: the name of a program that needs none
PROGRAM = "program"


ELEMENTS = 64  #: elements of an array that is written out

#: names of tensors that no part of a program has
_NAME = re.compile(r"(?![chkstvwy][0-9]+$|z_)[A-Za-z]\w*", re.ASCII)
_PLAIN = re.compile(r"[A-Za-y][A-Za-z0-9]*(_[A-Za-z0-9]+)*")
_OWN = re.compile(r"[chiknrstvwy][0-9]+")
_ESCAPE = re.compile(r"__|_([0-9a-f]+)_")
#: words that mean something else in an expression of the language
_TAKEN = (
    KEYWORDS
    | REDUCTIONS
    | CONSTANTS
    | DTYPE_NAMES
    | FUNCTIONS_1
    | INDEX_FUNCTIONS
    | PREDICATES
    | {CONVERT, PROGRAM, "e"}
)


class NotWritten(ValueError):
    """Something of which the language has no text: an opaque node, or a constant that is not one number everywhere."""


def size_name(name: str) -> str:
    """The name of an unknown size as a name of the language: as it is where it is one, else escaped after `z_`.

    `batch` → `batch`; `sequence length` → `z_sequence_20_length`.
    """
    if _PLAIN.fullmatch(name) and not _OWN.fullmatch(name) and name not in _TAKEN:
        return name
    return "z_" + "".join(c if c.isascii() and c.isalnum() else "__" if c == "_" else f"_{ord(c):x}_" for c in name)


def name_of_size(text: str) -> str:
    """Invert `size_name`."""
    if not text.startswith("z_"):
        return text
    return _ESCAPE.sub(lambda found: "_" if found[1] is None else chr(int(found[1], 16)), text[2:])


def number_text(value: Any) -> str:
    """A number as an expression of exactly that value and kind: an integer, a fraction, or a binary floating-point number.

    `1/3` → `(1/3)`; the float 0.1 → `max(-inf, 0.1)`, since `0.1` alone is one tenth.
    """
    if isinstance(value, Fraction) and value.denominator != 1:
        return f"({value})"
    if not isinstance(value, float) or not math.isfinite(value):
        return str(value).lower()
    # a sign before a number is a part of its exact value, where zero has none
    return "(-max(-inf, 0.0))" if repr(value) == "-0.0" else f"max(-inf, {value!r})"


class _Text(LanguageText):
    """A scalar expression in the language; `tables` collects the constant matrices that it reads."""

    def __init__(self, operands: Sequence[str], types: Sequence[DType], tables: dict[Any, str]) -> None:
        super().__init__(tuple(operands))
        self._types, self._tables = tuple(types), tables
        self._kinds: dict[Scalar, Any] = {}

    def fresh(self, node: Scalar) -> str:
        if isinstance(node, Num):
            return number_text(node.value)
        if isinstance(node, Sym):
            return size_name(node.name)
        if isinstance(node, Table):
            name = self._tables.setdefault(node.values, f"t{len(self._tables)}")
            return f"{name}[{', '.join(map(self.go, node.index))}]"
        if isinstance(node, Reduce) and not node.iters:
            raise NotWritten("a reduction over no iterator")
        name, _, suffix = node.op.partition(":")
        if suffix and name != "convert":
            raise NotWritten(f"the function {node.op}")
        if name == "/" and self._of_integers(node):
            raise NotWritten("a quotient of integers that is not cut towards zero")
        if name == "trunc" and (inner := node.args[0]).op == "/" and self._of_integers(inner):
            # `/` of integers is cut towards zero in the language
            return f"({' / '.join(map(self._inner, inner.args))})"
        return super().fresh(node)

    def _inner(self, node: Scalar) -> str:
        text = super()._inner(node)
        return f"({text})" if text.startswith("-") else text

    def _of_integers(self, node: Scalar) -> bool:
        found = element_type(raw_apply("+", *node.args), self._types, self._kinds) if node.reads else None
        return found is not None and found.is_integer


def sizes_of(graph: Graph) -> tuple[Sym, ...]:
    """The unknown sizes that a program speaks of, in the order of its text."""
    return tuple(unknowns(graph))


def program_text(
    graph: Graph, name: str = PROGRAM, inputs: Sequence[str] = (), axes: Mapping[Value, Axes] | None = None
) -> str:
    """A program over holes as a file of the language, whose last operator is the program.

    With `axes`, names of what runs along dimensions of values, it is for people: one operator, in which `inputs` bear these names.

    Constants inside are one number everywhere, or at most 64 elements of int64, f32 or bool.

    ```
    dslc 1
    operator program(h0: f32[N, 3], w1: f32[3]) -> y0: f32[N, 3] {
      y0[i0: N, i1: 3] = h0[i0, i1] + w1[i1]
    }
    ```

    Raises:
        NotWritten: opaque nodes, other constants, inputs that are no holes.
    """
    for number, value in enumerate(graph.inputs):
        if not is_hole(value, number):
            raise NotWritten(f"input {number} is not the hole of that number")
    sizes = {size_name(size.name) for size in sizes_of(graph)}
    inputs = [name if name not in sizes else "" for name in inputs]
    work = _Program(inputs, axes, "y{}" if axes is None or len(graph.outputs) > 1 or "Y" in inputs else "Y")
    work.operator(name, graph)
    return "dslc 1\n\n" + "\n\n".join(work.operators) + "\n"


class _Readable(ReadableText, _Text):
    """A scalar expression in the language, for people."""


class _Program:
    """The operators of a program, those that are called first."""

    def __init__(self, inputs: Sequence[str], axes: Mapping[Value, Axes] | None, result: str) -> None:
        self.operators: list[str] = []
        self._names: dict[Any, str] = {}
        self._inputs, self._axes, self._result = inputs, None if axes is None else dict(axes), result

    def operator(self, name: str, graph: Graph) -> None:
        known = {value: self._hole(k, value) for k, value in enumerate(graph.inputs)}
        params = [f"{own}: {type_text(value.type)}" for value, own in known.items()]
        lines = _size_lines(graph)
        outputs = [self._result.format(k) for k in range(len(graph.outputs))]
        (only,) = {value.node for value in graph.outputs} if len(outputs) == 1 else (None,)
        if isinstance(only, ScopeNode) and only.args == graph.inputs:
            equation, dims = self._equation(outputs[0], only, [*known.values()], {})
            lines += equation
            outputs = [f"{outputs[0]}: {only.scope.dtype}[{', '.join(dims)}]"]
        else:
            self._composite(graph, known, params, lines)
            lines += [f"{each} = {known[value]}" for each, value in zip(outputs, graph.outputs, strict=True)]
        inside = "".join(f"  {line}\n" for line in lines)
        self.operators.append(f"operator {name}({', '.join(params)}) -> {', '.join(outputs)} {{\n{inside}}}")

    def _hole(self, number: int, value: Value) -> str:
        name = self._inputs[number] if self._inputs else ""
        if value.constant:
            return f"w{number}"
        return name if _NAME.fullmatch(name) and name not in _TAKEN else f"h{number}"

    def _equation(
        self, own: str, node: ScopeNode, names: Sequence[str], tables: dict[Any, str]
    ) -> tuple[list[str], list[str]]:
        """The lines of an equation, new constant matrices first; and its declared dimensions."""
        scope, types, before = node.scope, [arg.type.dtype for arg in node.args], len(tables)
        text: LanguageText = _Text(names, types, tables)
        iters = [it.name for it in scope.iters]
        if self._axes is not None:
            (value,) = node.values
            axes = [self._axes.get(arg, ()) for arg in node.args]
            taken = {size_name(size.name) for size in unknowns([*(arg.type for arg in node.args), node])}
            text = readable = _Readable(names, axes, taken=_TAKEN | taken, types=types, tables=tables)
            iters, self._axes[value] = readable.name_scope(scope, self._axes.get(value, ()))
        # reductions are named by how many surround them, as they are read
        body = text.line(substitute(scope.body, {}))
        places, dims = [], []
        for axis in scope.dimensions:
            sizes = [text.go(as_scalar(scope.extents[k])) for k in axis]
            binders = [f"{iters[k]}: {size}" for k, size in zip(axis, sizes, strict=True)] or ["*e: []"]
            places.append(binders[0] if len(axis) == 1 else f"({', '.join(binders)})")
            dims.append(f"({', '.join(sizes)})" if len(axis) > 1 else sizes[0] if axis else "1")
        lines = [f"let {name} = {matrix(values, number_text)}" for values, name in [*tables.items()][before:]]
        return [*lines, f"{own}[{', '.join(places)}] = {body}"], dims

    def _composite(self, graph: Graph, known: dict[Value, str], params: list[str], lines: list[str]) -> None:
        tables: dict[Any, str] = {}
        count = 0
        for node in graph.nodes():
            if isinstance(node, Input):
                if Value(node) not in known:
                    raise NotWritten(f"`{node.name}` is no hole of the program")
                continue
            if isinstance(node, Constant):
                if not isinstance(node.data, FillRef):
                    known[Value(node)] = _array(node)
                    continue
                known[Value(node)] = f"c{len(params)}"
                params.append(f"c{len(params)}: {type_text(Value(node).type)} = {number_text(node.data.value)}")
                continue
            names = [f"v{count + k}" for k in range(len(node.types))]
            count += len(names)
            args = [known[arg] for arg in node.args]
            types = tuple(arg.type.dtype for arg in node.args)
            own = node if self._axes is not None and isinstance(node, ScopeNode) else None
            # a `let` has the element type of its body
            if own and scalar_dtype(own.scope.body, types) is own.scope.dtype:
                *matrices, equation = self._equation(names[0], own, args, tables)[0]
                lines += [*matrices, f"let {equation}"]
            else:
                lines.append(f"let {', '.join(names)} = {self._applied(node, args)}")
            known.update(zip(node.values, names, strict=True))
        if any(isinstance(each.node, Constant) and not isinstance(each.node.data, FillRef) for each in graph.outputs):
            raise NotWritten("an array that is a result")

    def _applied(self, node: Node, args: list[str]) -> str:
        """The call of one node; the operator that it needs is written before."""
        if isinstance(node, Call):
            attrs = [f"{name}={attribute_text(value)}" for name, value in node.attrs]
            return f"{node.op}({', '.join([*args, *attrs])})"
        if isinstance(node, ScopeNode):
            holes = tuple(hole(k, arg.type) for k, arg in enumerate(node.args))
            letter, group = "s", Graph(holes, with_args(node, holes))
        elif isinstance(node, Kernel):
            letter, group = "k", node.group
        else:
            raise NotWritten(f"a node of the kind {type(node).__name__}")
        name = self._names.get((letter, group))
        if name is None:
            name = self._names[letter, group] = f"{letter}{len(self._names)}"
            self.operator(name, group)
        sizes = [f"{own}={own}" for own in (size_name(size.name) for size in _attributes(group))]
        return f"{name}({', '.join([*args, *sizes])})"


def _attributes(graph: Graph) -> list[Sym]:
    """The unknown sizes that are attributes: all but those that stand alone in a type, which says what they are, and at least 1."""
    given = {size for value in graph.inputs for size in value.type.shape if isinstance(size, Sym) and size.least == 1}
    return [size for size in sizes_of(graph) if size not in given]


def _size_lines(graph: Graph) -> list[str]:
    by_name: dict[str, Sym] = {}
    for size in sizes_of(graph):
        if by_name.setdefault(size.name, size) is not size:
            raise NotWritten(f"two unknown sizes are named `{size.name}`")
    unknown = _attributes(graph)
    lines = [f"attr {size_name(size.name)}: int" for size in unknown]
    return lines + [f"where {size_name(size.name)} >= {size.least}" for size in unknown if size.least is not None]


def type_text(type: TensorType) -> str:
    """`f32[N, 2 * M, 3]`."""
    return f"{type.dtype}[{', '.join(attribute_text(size) for size in type.shape)}]"


def attribute_text(value: Any) -> str:
    """An attribute's value as an expression: a number, a text, an element type, an expression of sizes, or a list of them."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(attribute_text, value))}]"
    if isinstance(value, str):
        if '"' in value or "\n" in value:
            raise NotWritten("a text with quotation marks or line ends")
        return f'"{value}"'
    if isinstance(value, Scalar):
        return _Text((), (), {}).go(value)
    if isinstance(value, float):
        # a decimal, also where it is whole: attributes are declared to be floats
        return number_text(value) if repr(value) == "-0.0" else repr(value)
    return number_text(value)


def _array(node: Constant) -> str:
    """A list whose type the language gives by its elements: integers, decimals or truth values."""
    type = Value(node).type
    if type.dtype not in {DType.I64, DType.F32, DType.BOOL} or not type.is_static or not 0 < type.elements <= ELEMENTS:
        raise NotWritten("a constant that is not one number everywhere, and large or of a type without literals")
    return attribute_text(node.data.load().tolist())
