"""Kernels in models: a node of the domain `dslc` and a function of the same name, which says what it means in plain ONNX nodes.

A runtime that has a kernel of that name runs it; every other one runs the function. The name is a hash of the function's nodes and
of the types that it is applied to, so a library that was built for something else never meets it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import FunctionProto, ModelProto, helper

from dslc.errors import DslcError
from dslc.ir.dtype import Dim, TensorType
from dslc.ir.graph import Call, Constant, Graph, Input, Value, input_value, replace
from dslc.ir.scalar import Scalar, Sym, dimension, substitute, walk
from dslc.onnx.context import bind_graph
from dslc.onnx.metadata import DOMAIN, KEY, VERSION, keep_metadata, set_metadata
from dslc.onnx.protos import every_node, opsets
from dslc.semantics.apply import apply
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules

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
    sizes = [size for value in group.inputs for size in value.type.shape if isinstance(size, Scalar)]
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
                made: tuple[Value, ...] = (input_value(node.name, types[0]),)
            elif isinstance(node, Call):
                attrs = {name: named(value) for name, value in node.attrs}
                made = tuple(apply(rules, node.op, [new[arg] for arg in node.args], attrs))
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
    for value in group.inputs:
        for size in value.type.shape:
            for part in walk(size) if isinstance(size, Scalar) else ():
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
    content = repr((_FORMAT, list(map(str, types)))).encode() + nodes_of(function)
    return f"k_{hashlib.sha256(content).hexdigest()[:12]}"


def nodes_of(function: FunctionProto) -> bytes:
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
