"""Kernels in models: a node of the domain `dslc` and a function of the same name, which says what it means in plain ONNX nodes.

A runtime that has a kernel of that name runs it; every other one runs the function. The name is a hash of the function's nodes and
of the types that it is applied to, so a library that was built for something else never meets it.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from onnx import FunctionProto, ModelProto, helper

from dslc.errors import DslcError, SourceText, error
from dslc.ir.constants import number_of
from dslc.ir.dtype import Dim, DType, TensorType
from dslc.ir.graph import (
    Call,
    Constant,
    Graph,
    Input,
    Node,
    ScopeNode,
    Value,
    Values,
    input_value,
    nodes_of,
    rebuild,
    replace,
    with_args,
)
from dslc.ir.scalar import Num, Scalar, Sym, apply, as_scalar, dimension, substitute, walk
from dslc.ir.show import show_with
from dslc.ir.text import NotWritten, name_of_size, program_text
from dslc.onnx.context import bind_graph, open_sizes
from dslc.onnx.metadata import DOMAIN, KEY, VERSION, keep_metadata, set_metadata
from dslc.onnx.protos import every_node, opsets
from dslc.semantics.apply import apply as apply_operator
from dslc.semantics.elaborate import expand_node
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules
from dslc.semantics.written import read_program
from dslc.syntax import tree as t
from dslc.syntax.parser import parse

# ---- kernels as functions ------------------------------------------------------------------------------------------

#: the first version of the format that knows functions
IR_VERSION = 8
#: how names are made: of another number where the same function would mean another kernel
_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Function:
    """The meaning of a kernel: its function, its definition in the language, and the group with names of its own for unknown sizes."""

    proto: FunctionProto
    group: Graph
    definition: str

    @property
    def name(self) -> str:
        return str(self.proto.name)


def general_sizes(rules: Rules, group: Graph) -> Graph:
    """The group with a name for each size of an input that is an expression, where the group holds for any such size.

    `h0: f32[(n + 1) // 2] -> relu(h0)` → `h0: f32[m] -> relu(h0)`: a kernel learns its sizes from the shapes of its inputs. The group
    as it is where a part of it needs to know what the expression says.
    """
    sizes = open_sizes(group.inputs)
    table: dict[Scalar, Scalar] = {}
    for size in sizes:
        if not isinstance(size, Sym):
            table.setdefault(size, dimension(f"size of a kernel {len(table)}"))
    if not table:
        return group
    known = {*table.values(), *(size for size in sizes if isinstance(size, Sym))}

    def named(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(named, value))
        if not isinstance(value, Scalar):
            return value
        found = substitute(value, table)
        if any(isinstance(part, Sym) and part not in known for part in walk(found)):
            raise ValueError(str(value))
        return found

    new: dict[Value, Value] = {}
    try:
        for node in group.nodes():
            types = [TensorType(value.type.dtype, named(value.type.shape)) for value in node.values]
            if isinstance(node, Input):
                made: Values = (input_value(node.name, types[0]),)
            elif isinstance(node, Call):
                attrs = {name: named(value) for name, value in node.attrs}
                made = tuple(apply_operator(rules, node.op, [new[arg] for arg in node.args], attrs))
            elif isinstance(node, Constant) and not any(isinstance(size, Scalar) for size in node.values[0].type.shape):
                made = node.values
            else:
                return group
            if [value.type for value in made] != types:
                return group
            new.update(zip(node.values, made, strict=True))
        unread = [
            input_value(f"h{k}", TensorType(v.type.dtype, named(v.type.shape))) for k, v in enumerate(group.inputs)
        ]
        inputs = tuple(new.get(value, hole) for value, hole in zip(group.inputs, unread, strict=True))
    except (DslcError, Mismatch, EvalError, ValueError):
        return group
    return Graph(inputs, tuple(new[value] for value in group.outputs))


def standard_sizes(group: Graph) -> Graph:
    """The group over `h0`, `h1`, ... with its unknown sizes called `s0`, `s1`, ... in the order in which inputs have them."""
    names: dict[str, Dim] = {}
    for size in open_sizes(group.inputs):
        for part in walk(size):
            if isinstance(part, Sym) and part.name not in names:
                names[part.name] = dimension(f"s{len(names)}")
    bound = bind_graph(group, names) if names else group
    holes = tuple(input_value(f"h{k}", value.type) for k, value in enumerate(bound.inputs))
    if holes == bound.inputs:
        return bound
    return Graph(holes, replace(bound.outputs, dict(zip(bound.inputs, holes, strict=True))))


def name_of(function: FunctionProto, types: Sequence[TensorType]) -> str:
    """The name of the kernel that a function is the meaning of.

    It is made of its nodes, and of the types that it is applied to (with sizes named as `standard_sizes` does).
    """
    content = repr((_FORMAT, list(map(str, types)))).encode() + contents_of(function)
    return f"k_{hashlib.sha256(content).hexdigest()[:12]}"


def contents_of(function: FunctionProto) -> bytes:
    """The contents of a function without its name."""
    bare = FunctionProto(domain=DOMAIN)
    for field in ("input", "output", "node", "opset_import"):
        getattr(bare, field).extend(getattr(function, field))
    return bytes(bare.SerializeToString(deterministic=True))


# ---- in models ---------------------------------------------------------------------------------------------------


def add_functions(model: ModelProto, functions: Mapping[str, Function]) -> None:
    """Adds what kernels mean to a model that was just written, and takes out what nothing uses any more."""
    nodes = every_node([*model.graph.node, *(node for f in model.functions for node in f.node)])
    wanted = {node.op_type for node in nodes if node.domain == DOMAIN}
    kept = [f for f in model.functions if f.domain != DOMAIN or f.name in wanted]
    have = {f.name for f in kept if f.domain == DOMAIN}
    new = [function for name, function in functions.items() if name in wanted and name not in have]
    if len(kept) < len(model.functions) or new:
        del model.functions[:]
        model.functions.extend([*kept, *(function.proto for function in new)])
        model.functions.sort(key=lambda f: (f.domain, f.name, f.overload))
    keep_metadata(model, {f.name for f in model.functions if f.domain == DOMAIN})
    for function in new:
        set_metadata(model, f"{KEY}{function.name}", function.definition)
    if not new:
        return
    model.ir_version = max(model.ir_version, IR_VERSION)
    imported = opsets(model)
    for domain, version in ((DOMAIN, VERSION), *((o.domain, o.version) for f in new for o in f.proto.opset_import)):
        if domain not in imported:
            imported = {**imported, domain: version}
            model.opset_import.append(helper.make_opsetid(domain, version))


def inlined(model: ModelProto) -> ModelProto:
    """The model without kernels: their functions in place of them, for runtimes that know no functions."""
    from onnx.inliner import inline_selected_functions

    own = [(f.domain, f.name) for f in model.functions if f.domain == DOMAIN]
    out: ModelProto = inline_selected_functions(model, own) if own else model
    keep_metadata(out, set())
    imported = [entry for entry in out.opset_import if entry.domain != DOMAIN]
    del out.opset_import[:]
    out.opset_import.extend(imported)
    return out


# ---- kernels as text of the language -------------------------------------------------------------------------------

#: the library of every installation
STANDARD = "std"


ELEMENTS = 16  #: elements of a constant that is written out
LONGEST = 1 << 20  #: characters of a definition that is read: one hole takes some twenty
LONGEST_EQUATION = 1 << 15  #: characters of a definition in which equations are read
PARTS = 64  #: names, numbers and operations of a size: what is multiplied out grows much faster
LARGEST = 1 << 62  #: numbers from which on there are none in sizes

#: names that `size_name` escaped
_ESCAPED = re.compile(r"\bz_\w*")
_DTYPES = {str(dtype): dtype for dtype in DType}


def definition_of(rules: Rules, name: str, group: Graph) -> str:
    """A group as an operator of the language; only its types where the language cannot say all of it.

    Equations of its own are written so that `equation_of` reads them again: as operators before it, which it calls.
    """
    exact = _exact(rules, name, group)
    if exact is not None:
        return exact
    head = f"operator {name}({_listed('h', group.inputs)}) -> {_listed('y', group.outputs)}"
    full = f"dslc 1\n\n{head} {{\n{''.join(f'  {line}{chr(10)}' for line in _statements(rules, group))}}}\n"
    with suppress(DslcError):
        if _operator(full):
            return full
    return f"dslc 1\n\n{head} {{\n}}\n"


def _exact(rules: Rules, name: str, group: Graph) -> str | None:
    """A group with equations of its own as the text of a program, as far as there is one."""
    results = _in_standard_words(rules, group.outputs)
    if not any(isinstance(node, ScopeNode) for node in nodes_of(results)):
        return None
    try:
        text = program_text(Graph(group.inputs, results), name)
        return text if types_of(text) == tuple(value.type for value in group.inputs) else None
    except (NotWritten, DslcError):
        return None


def equation_of(rules: Rules, definition: str) -> Graph | None:
    """The group of a definition that has equations; None where it has none, or is no such definition."""
    try:
        items = _operators(definition) if len(definition) <= LONGEST_EQUATION else ()
        statements = [each for item in items for each in item.statements if isinstance(each, t.Equation)]
        return read_program(rules, definition) if any(each.target.places is not None for each in statements) else None
    except (DslcError, Mismatch, RecursionError, ArithmeticError, ValueError, TypeError):
        return None


def types_of(definition: str) -> tuple[TensorType, ...] | None:
    """The types of the inputs that a definition was written for; None where it is no such definition.

    Raises:
        DslcError: E0818 for a size whose name is not plain: no writer of definitions makes one.
    """
    found = _operator(definition)
    if not found:
        return None
    types = []
    for param in found.params:
        if param.default is not None:
            # a number that the kernel has inside
            continue
        if param.type is None or param.type.dims is None or param.type.name not in _DTYPES:
            return None
        dims = [_dim(dim) if sum(1 for _ in t.walk(dim)) <= PARTS else None for dim in param.type.dims]
        if any(dim is None or (isinstance(dim, int) and dim < 0) for dim in dims):
            return None
        types.append(TensorType(_DTYPES[param.type.name], tuple(dim for dim in dims if dim is not None)))
    return tuple(types)


def _operator(text: str) -> t.Operator | None:
    """The operator that a definition defines: the last one."""
    found = _operators(text)
    return found[-1] if found else None


def _operators(text: str) -> tuple[t.Operator, ...]:
    if len(text) > LONGEST:
        return ()
    for name in map(name_of_size, _ESCAPED.findall(text)):
        if not (name.isascii() and name.isidentifier()):
            raise error(
                "E0818",
                f"a definition calls a size `{name}`, which is no plain name",
                hint="its kernel runs as plain nodes",
            )
    try:
        items = parse(SourceText("metadata", text)).items
    except (DslcError, RecursionError):
        return ()
    found = tuple(item for item in items if isinstance(item, t.Operator))
    return found if len(found) == len(items) == len({item.name for item in found}) else ()


def _dim(expr: t.Expr | t.Node, depth: int = 0) -> Dim | None:
    if depth > 32:
        return None
    if isinstance(expr, t.Int):
        return expr.value if abs(expr.value) < LARGEST else None
    if isinstance(expr, t.Name):
        return dimension(name_of_size(expr.id)) if expr.id.isidentifier() else None
    parts: list[Dim | None]
    if isinstance(expr, t.Unary) and expr.op == "-":
        name, parts = "*", [-1, _dim(expr.operand, depth + 1)]
    elif isinstance(expr, t.Binary) and expr.op in {"+", "-", "*", "//", "%"}:
        name, parts = expr.op, [_dim(expr.left, depth + 1), _dim(expr.right, depth + 1)]
    elif isinstance(expr, t.Call) and expr.function in {"min", "max"} and not expr.kwargs:
        name, parts = expr.function, [_dim(arg, depth + 1) for arg in expr.args]
    else:
        return None
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or not known or (name in {"//", "%"} and known[1] == 0):
        return None
    if name == "-":
        name, known = "+", [known[0], apply("*", as_scalar(-1), as_scalar(known[1]))]
    try:
        made = apply(name, *map(as_scalar, known))
    except (ArithmeticError, ValueError, TypeError):
        return None
    if isinstance(made, Num):
        return number if abs(number := int(made.value)) < LARGEST else None
    return made


def _listed(letter: str, values: Values) -> str:
    return ", ".join(f"{letter}{k}: {value.type}" for k, value in enumerate(values))


def _statements(rules: Rules, group: Graph) -> list[str]:
    names: dict[Value, str] = {value: f"h{k}" for k, value in enumerate(group.inputs)}
    out: list[str] = []
    count = 0
    results = _in_standard_words(rules, group.outputs)
    for node in nodes_of(results):
        if isinstance(node, Input):
            continue
        if isinstance(node, Constant):
            names[Value(node)] = _constant(Value(node))
            continue
        for value in node.values:
            names[value] = f"t{count}"
            count += 1
        out.append(_statement(node, names))
    return out + [f"y{k} = {names[value]}" for k, value in enumerate(results)]


def _in_standard_words(rules: Rules, outputs: Values) -> Values:
    """Operators of other libraries as their equations: a reader of the file need not have them."""

    def step(node: Node, args: Values) -> Values:
        foreign = isinstance(node, Call) and not node.op.startswith(f"{STANDARD}.")
        return expand_node(rules, node, args) if foreign else with_args(node, args)

    return rebuild(outputs, step)


def _statement(node: Node, names: Mapping[Value, str]) -> str:
    targets = ", ".join(names[value] for value in node.values)
    if isinstance(node, ScopeNode):
        places = ", ".join(f"{i.name}: {size}" for i, size in node.scope.ranges)
        return f"let {targets}[{places}] = {show_with(node.scope.body, tuple(names[arg] for arg in node.args))}"
    assert isinstance(node, Call)
    attrs = [f"{name}={_written(value)}" for name, value in node.attrs]
    return f"let {targets} = {node.op}({', '.join([*(names[arg] for arg in node.args), *attrs])})"


def _written(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, float):
        return "-inf" if value == -math.inf else "inf" if value == math.inf else repr(value)
    if isinstance(value, Fraction):
        return f"{value.numerator} / {value.denominator}" if value.denominator != 1 else str(value.numerator)
    return str(value) if isinstance(value, int | DType | Scalar) else repr(value)


def _constant(value: Value) -> str:
    number = number_of(value)
    if number is not None:
        return _written(number)
    if not value.type.is_static or value.type.elements > ELEMENTS:
        return str(value.type)
    return _written(value.node.data.load().tolist())  # type: ignore[attr-defined]
