"""Models in: ONNX nodes become operators of the loaded libraries, or stay as they are."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import (
    FunctionProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from dslc.errors import DslcError, error
from dslc.ir.constants import fill
from dslc.ir.dtype import Dim, DType, TensorType
from dslc.ir.graph import Constant, Graph, Kernel, Opaque, Value, input_value, kernel_value, opaque, product, replace
from dslc.ir.scalar import Num, Scalar, Sym, apply, as_scalar, dimension, num, substitute, walk
from dslc.onnx.clauses import NodeView, active, node_view, read_node
from dslc.onnx.constant_propagation import KNOWN_ELEMENTS, KnownValues, least, open_ends, placed, with_places
from dslc.onnx.context import Context, Imported, OpaqueNode, OpaqueTensor, Origin, ValuesByPlace, bind_graph, open_sizes
from dslc.onnx.einsum import written
from dslc.onnx.exporter import function_of
from dslc.onnx.functions import IR_VERSION, contents_of, equation_of
from dslc.onnx.inlining import inlined_functions
from dslc.onnx.metadata import DOMAIN, KEY, metadata
from dslc.onnx.protos import (
    DTYPES,
    OLDEST_OPSET,
    array_of,
    attribute_value,
    captured,
    check_length,
    domain_of,
    is_external,
    opsets,
    read_model,
    schema_of,
    small_constant,
    sorted_nodes,
    tensor_constant,
    value_info,
)
from dslc.onnx.types import complete_bind, infer
from dslc.prove.garbage import gc_paused
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules, rules_cache

_serial = itertools.count()


def import_model(source: str | Path | ModelProto, rules: Rules, bind: Mapping[str, int] | None = None) -> Imported:
    """An ONNX model as a graph, its own functions inlined.

    Args:
        source: a file, or a model whose external data (if any) is relative to the working folder.
        rules: the libraries whose `onnx` clauses say what nodes mean.
        bind: sizes for symbolic dimensions, by name or `INPUT.AXIS`.

    Raises:
        DslcError: E0902 to E0906, one clear reason why the model cannot be read.
    """
    model, folder, where = read_model(source)
    with gc_paused():
        return _Importer(inlined_functions(model, where), folder, where, rules, dict(bind or {})).run()


class _Importer:
    def __init__(self, model: ModelProto, folder: Path | None, where: str, rules: Rules, bind: dict[str, int]) -> None:
        self.model, self.folder, self.where, self.rules = model, folder, where, rules
        self.bind = complete_bind(model, bind, where)
        self.opsets = opsets(model)
        self.known = KnownValues(rules)
        self.values: dict[str, Value] = {}
        self.names: dict[Value, str] = {}
        self.tensors: dict[Value, TensorProto] = {}
        self.origins: dict[Value, Origin] = {}
        self.variables: dict[str, TensorProto | SparseTensorProto] = {}
        self.pinned: dict[str, Value] = {}
        self.dims: dict[str, tuple[Value, int]] = {}
        self.same_size: dict[Scalar, Scalar] = {}
        self.functions = {(f.domain, f.name): f for f in model.functions}
        training = model.training_info
        self._trained = [one for info in training for one in (*info.update_binding, *info.initialization_binding)]
        self._said = metadata(model)
        self.scope = f"m{next(_serial)}"
        self._serial = itertools.count()

    def run(self) -> Imported:
        graph = self.model.graph
        weights = [tensor.name for tensor in graph.initializer]
        weights += [sparse.values.name for sparse in graph.sparse_initializer]
        inputs = [value.name for value in graph.input]
        for names, what in ((inputs, "inputs"), (weights, "weights")):
            if twice := [name for name, count in Counter(names).items() if count > 1]:
                raise error("E0808", f"{self.where} gives two {what} the name `{min(twice)}`", path=self.where)
        nodes = sorted_nodes(graph.node, {*inputs, *weights}, self.where)
        self._weights(set(inputs))
        self.types = infer(self.model, nodes, self.bind, self._small_external(), self.where)
        self._inputs()
        self._used = {value.name for value in graph.output} | {entry.value for entry in self._trained}
        for node in nodes:
            self._used.update((*node.input, *captured(node)))
        for node in nodes:
            self._node(node)
        outputs = []
        for value in graph.output:
            if value.name not in self.values:
                raise error(
                    "E0808", f"{self.where} has the output `{value.name}`, which nothing produces", path=self.where
                )
            outputs.append(self.values[value.name])
        inputs_out = [self.values[n] for n in inputs if n not in set(weights) or n in self.variables]
        inputs_out += [self.values[n] for n in self.variables if n not in set(inputs)]
        for annotation in graph.quantization_annotation:
            pinned = (entry.value for entry in annotation.quant_parameter_tensor_names)
            self.pinned.update((name, self.values[name]) for name in pinned if name in self.values)
        dims = self.dims | {name: (self.values[source], axis) for name, (source, axis) in self.types.dims.items()}
        context = Context(
            self.model, self.folder, self.where, self.opsets, self.bind, self.names, self.tensors, self.origins,
            self.variables, self.pinned, dims,
        )  # fmt: skip
        return Imported(Graph(tuple(inputs_out), tuple(outputs)), context)

    # ---- weights and inputs ----------------------------------------------------------------------------------

    def _weights(self, inputs: set[str]) -> None:
        """Weights as constants; those that a caller may override, or that training changes, become inputs later."""
        trained = {entry.key for entry in self._trained}
        for tensor in self.model.graph.initializer:
            overridable = tensor.name in inputs and self.model.ir_version >= 4
            value = tensor_constant(tensor, self.folder, self.where)
            if overridable or tensor.name in trained:
                self.variables[tensor.name] = tensor
            elif not value:
                self._define(tensor.name, self._opaque_tensor(tensor.name, tensor))
            else:
                self._define(tensor.name, value)
                self.tensors.setdefault(value, tensor)
        for sparse in self.model.graph.sparse_initializer:
            name = sparse.values.name
            if name in inputs and self.model.ir_version >= 4:
                self.variables[name] = sparse
            else:
                self._define(name, self._opaque_tensor(name, sparse))

    def _opaque_tensor(self, name: str, tensor: TensorProto | SparseTensorProto) -> Value:
        type = None
        if isinstance(tensor, SparseTensorProto) and tensor.values.data_type in DTYPES:
            type = TensorType(DTYPES[tensor.values.data_type], tuple(tensor.dims))
        return opaque(f"{self.scope}:tensor:{name}", name, OpaqueTensor(tensor), (), (type,))[0]

    def _small_external(self) -> dict[str, np.ndarray[Any, Any]]:
        """Contents of small integer weights in external data: shapes depend on them."""
        out: dict[str, np.ndarray[Any, Any]] = {}
        for tensor in self.model.graph.initializer:
            if is_external(tensor) and tensor.data_type in (TensorProto.INT64, TensorProto.INT32):
                value = self.values.get(tensor.name)
                if value and math.prod(tensor.dims) <= KNOWN_ELEMENTS:
                    out[tensor.name] = value.node.data.load()  # type: ignore[attr-defined]
        return out

    def _inputs(self) -> None:
        for value in self.model.graph.input:
            if value.name not in self.values:
                self._define(value.name, input_value(value.name, self.types.by_name.get(value.name)))
        for name, tensor in self.variables.items():
            if name not in self.values:
                type = None
                if isinstance(tensor, TensorProto) and tensor.data_type in DTYPES:
                    type = TensorType(DTYPES[tensor.data_type], tuple(tensor.dims))
                self._define(name, input_value(name, type))

    def _define(self, name: str, value: Value) -> None:
        self.values[name] = value
        self.names.setdefault(value, name)

    # ---- nodes -----------------------------------------------------------------------------------------------

    def _node(self, node: NodeProto) -> None:
        inputs = tuple(self.values[name] if name else None for name in node.input)
        domain = domain_of(node)
        if (node.domain, node.op_type) in self.functions:
            results = self._kernel(node, inputs)
        else:
            results = self._vocabulary(node, inputs) if domain == "" else None
            if results is None:
                results = self._read(node, domain, inputs)
        if results is None:
            results = self._opaque(node, inputs)
        results = tuple(None if value is None else self._placed(self._folded(value)) for value in results)
        outputs = tuple(
            v if name else None for v, name in itertools.zip_longest(results[: len(node.output)], node.output)
        )
        self._remember(node, inputs, outputs)
        for name, value in zip(node.output, outputs, strict=True):
            if name and value is not None:
                self._define(name, value)
                self._sizes_of(name, value)

    def _sizes_of(self, name: str, value: Value) -> None:
        """Sizes that an opaque node decides can be read from its output; what ONNX's inference gave a name, ours may know."""
        if not value.known:
            return
        if isinstance(value.node, Opaque):
            for axis, size in enumerate(value.type.shape):
                if isinstance(size, Sym) and size.name not in self.types.dims:
                    self.dims.setdefault(size.name, (value, axis))
            return
        theirs = self.types.by_name.get(name)
        if theirs and theirs.rank == value.type.rank:
            for given, size in zip(theirs.shape, value.type.shape, strict=True):
                if not isinstance(given, Sym) or given.name in self.types.dims or given is size:
                    continue
                if self.same_size.setdefault(given, as_scalar(size)) is not as_scalar(size):
                    self.same_size[given] = given  # one name for two sizes says nothing

    def _opaque_type(self, name: str) -> TensorType | None:
        type = self.types.by_name.get(name)
        if not type or not self.same_size:
            return type
        sizes = [substitute(size, self.same_size) if isinstance(size, Scalar) else size for size in type.shape]
        return TensorType(type.dtype, tuple(size.value if isinstance(size, Num) else size for size in sizes))  # type: ignore[misc]

    def _remember(self, node: NodeProto, inputs: ValuesByPlace, outputs: ValuesByPlace) -> None:
        """Keeps the node for export where its outputs are new values."""
        fresh = [v for v in outputs if v]
        known = (inputs, self.origins, self.names)
        if len(set(fresh)) == len(fresh) and not any(
            isinstance(v.node, Opaque) or v.constant or any(v in those for those in known) for v in fresh
        ):
            self.origins.update(dict.fromkeys(fresh, Origin(node, inputs, outputs)))

    def _read(self, node: NodeProto, domain: str, inputs: ValuesByPlace) -> ValuesByPlace | None:
        op, opset = node.op_type if not domain else f"{domain}.{node.op_type}", self.opsets.get(domain, 0)
        if captured(node) or (domain == "" and opset < OLDEST_OPSET):
            return None
        if op == "DequantizeLinear" and inputs and inputs[0] and inputs[0].constant:
            # runtimes join such a weight with the product that uses it
            return None
        clauses = active(self.rules, op, opset)
        if not clauses or any(value is not None and not value.known for value in inputs):
            return None
        results = read_node(self.rules, clauses, self.view(node, domain, op, inputs))
        if results is None:
            return None
        named = zip(node.output, results, strict=True)
        return results if all(self._plausible(name, value) for name, value in named if value and name) else None

    def view(self, node: NodeProto, domain: str, op: str, inputs: ValuesByPlace) -> NodeView:
        schema = schema_of(node.op_type, domain, self.opsets.get(domain, 0))
        used = tuple(bool(name) and name in self._used for name in node.output)
        view = node_view(node, op, schema, inputs, used, self.known.get)
        first = inputs[0] if inputs else None
        if node.op_type == "Slice" and first and not first.type.is_static:
            return dataclasses.replace(view, known=lambda value: open_ends(self.known.get(value)))
        return view

    def _plausible(self, name: str, value: Value) -> bool:
        """Return whether ONNX's own inference agrees with ours, where both know a size."""
        theirs = self.types.by_name.get(name)
        if not theirs or not value.known:
            return True
        ours = value.type
        sizes = zip(ours.shape, theirs.shape, strict=False)
        same = all(a == b for a, b in sizes if isinstance(a, int) and isinstance(b, int))
        return ours.dtype is theirs.dtype and ours.rank == theirs.rank and same

    def _folded(self, value: Value) -> Value:
        """A small tensor of known numbers as a constant."""
        if not value.known or isinstance(value.node, Constant):
            return value
        items = self.known.get(value)
        if items is None or any(isinstance(item, Scalar) for item in items):
            return value
        return array_of(items, value.type)

    def _placed(self, value: Value) -> Value:
        """A result whose operator reads positions in arithmetic progression, over these as an operator's; they keep their tensor."""
        found = dict(placed(self.rules, value))
        for data, own in found.items():
            if data in self.tensors:
                self.tensors.setdefault(own, self.tensors[data])
            if data in self.names:
                self.names.setdefault(own, self.names[data])
        return with_places(value, found) if found else value

    # ---- what ONNX itself means ------------------------------------------------------------------------------

    def _vocabulary(self, node: NodeProto, inputs: ValuesByPlace) -> ValuesByPlace | None:
        """Nodes that are about the graph or about shapes, and compute nothing."""
        if node.op_type == "Identity" and len(inputs) == 1 and inputs[0]:
            return (inputs[0],)
        if node.op_type == "Constant" and len(node.attribute) == 1:
            return self._constant(node)
        first = inputs[0] if inputs else None
        if not first:
            return None
        if node.op_type == "ConstantOfShape":
            return self._filled(node, first)
        if node.op_type in {"Shape", "Size"} and first.known:
            return (self._shape(node, first),)
        if node.op_type == "Einsum" and all(value is not None and value.known for value in inputs):
            return self._einsum(node, [value for value in inputs if value])
        return None

    def _einsum(self, node: NodeProto, operands: list[Value]) -> ValuesByPlace | None:
        def make(op: str, *args: Value, **attributes: Any) -> Value | None:
            proto = helper.make_node(op, [""] * len(args), ["y"], **attributes)
            view = node_view(proto, op, schema_of(op, "", opset), args, (True,), self.known.get)
            found = read_node(self.rules, active(self.rules, op, opset), view)
            return None if found is None else found[0]

        opset = self.opsets.get("", 0)
        equation = next((attribute.s.decode() for attribute in node.attribute if attribute.name == "equation"), "")
        result = written(equation, operands, make, opset >= 13)
        return None if not result or not self._plausible(node.output[0], result) else (result,)

    def _constant(self, node: NodeProto) -> ValuesByPlace | None:
        attribute = node.attribute[0]
        found = attribute_value(attribute)
        if attribute.name == "value" and isinstance(found, TensorProto):
            value = tensor_constant(found, self.folder, self.where)
            if value:
                self.tensors.setdefault(value, found)
                return (value,)
            return None
        if attribute.name in {"value_float", "value_floats"}:
            raw = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            return (small_constant(np.array(raw, np.float32)),)
        if attribute.name in {"value_int", "value_ints"}:
            return (small_constant(np.array(found, np.int64)),)
        return None

    def _filled(self, node: NodeProto, shape: Value) -> ValuesByPlace | None:
        items = self.known.get(shape)
        if items is None:
            return None
        number: Any = 0
        dtype: DType | None = DType.F32
        for attribute in node.attribute:
            tensor = attribute.t
            dtype = DTYPES.get(tensor.data_type)
            if attribute.name != "value" or dtype is None or math.prod(tensor.dims) != 1 or is_external(tensor):
                return None
            check_length(tensor, self.where)
            array = numpy_helper.to_array(tensor).reshape(())
            number = array.item() if dtype is not DType.BF16 else float(array)
            if isinstance(number, float) and (math.isnan(number) or (number == 0 and math.copysign(1, number) < 0)):
                return None
        if any(isinstance(item, int) and item < 0 for item in items):
            return None
        assert dtype is not None
        return (fill(number, TensorType(dtype, tuple(items))),)

    def _shape(self, node: NodeProto, tensor: Value) -> Value:
        """Shape and Size: known sizes, which may be symbolic."""
        sizes: tuple[Dim, ...] = tensor.type.shape
        attrs = {attribute.name: int(attribute.i) for attribute in node.attribute}
        if node.op_type == "Size":
            items: tuple[Any, ...] = (product(sizes),)
            type = TensorType(DType.I64, ())
        else:
            items = sizes[slice(attrs.get("start", 0), attrs.get("end"))]
            type = TensorType(DType.I64, (len(items),))
        if all(isinstance(item, int) for item in items):
            return array_of(items, type)
        key = f"{node.op_type}:{sorted(attrs.items())}"
        proto = helper.make_node(node.op_type, [""], [""])
        proto.attribute.extend(node.attribute)
        (value,) = opaque(key, node.op_type, OpaqueNode(proto, (0,), ()), (tensor,), (type,))
        self.known.put(value, items)
        return value

    def _kernel(self, node: NodeProto, inputs: ValuesByPlace) -> ValuesByPlace | None:
        """A node that dslc wrote for a group of nodes which run as one: that group again."""
        if node.domain != DOMAIN or node.attribute or self.opsets.get("", 0) < OLDEST_OPSET:
            return None
        args = [value for value in inputs if value and value.known]
        if len(args) < len(inputs):
            return None
        function, said = self.functions[node.domain, node.op_type], self._said.get(KEY + node.op_type, "")
        group = group_of(self.rules, function, [arg.type for arg in args], said)
        return kernel_value(group, tuple(args)) if group else None

    # ---- everything else -------------------------------------------------------------------------------------

    def _opaque(self, node: NodeProto, inputs: ValuesByPlace) -> ValuesByPlace:
        """The node word for word, with a key of its own: it is never merged with another."""
        outer = captured(node)
        slots: list[int | None] = []
        args: list[Value] = []
        for value in inputs:
            slots.append(len(args) if value else None)
            if value:
                args.append(value)
        args += [self.values[name] for name in outer]
        payload = OpaqueNode(node, tuple(slots), outer, from_file=True)
        types = self._counted(node, inputs) or tuple(map(self._opaque_type, node.output))
        key = f"{self.scope}:{next(self._serial)}"
        label = node.op_type if not node.domain else f"{node.domain}.{node.op_type}"
        return opaque(key, label, payload, tuple(args), types)

    def _counted(self, node: NodeProto, inputs: ValuesByPlace) -> tuple[TensorType | None, ...] | None:
        """The type of a Range up to symbolic sizes, whose length ONNX's inference does not say."""
        if node.op_type != "Range" or domain_of(node) != "" or len(inputs) != 3:
            return None
        start, limit, step = (self.known.get(value) if value else None for value in inputs)
        if (
            start is None
            or limit is None
            or step != (1,)
            or not all(as_scalar(one).integral for one in (*start, *limit))
        ):
            return None
        count = apply("+", as_scalar(limit[0]), apply("*", num(-1), as_scalar(start[0])))
        lower = least(count)
        if inputs[0] is None or lower is None or lower < 0:
            return None
        return (TensorType(inputs[0].type.dtype, (int(count.value) if isinstance(count, Num) else count,)),)


def group_of(rules: Rules, function: FunctionProto, types: Sequence[TensorType], definition: str = "") -> Graph | None:
    """The group that a function says, applied to types; None where the language has no words for a part of it.

    `definition`: what the file says of it, which is believed where it is an equation that is spelled out in just these nodes.
    """
    if (
        len(types) != len(function.input)
        or function.attribute
        or function.attribute_proto
        or len(set(function.input)) < len(types)
    ):
        return None
    cache = rules_cache(rules, "kernel groups")
    key = (function.SerializeToString(deterministic=True), tuple(types), definition)
    if key not in cache:
        cache[key] = defined(rules, function, types, definition) or _spelled_out(rules, function, types)
    found: Graph | None = cache[key]
    return found


def _spelled_out(rules: Rules, function: FunctionProto, types: Sequence[TensorType]) -> Graph | None:
    """The group that the nodes of a function say."""
    # sizes that are expressions get names for the time being
    terms: dict[str, Dim] = {}
    model = ModelProto(ir_version=IR_VERSION)
    model.opset_import.extend(function.opset_import)
    model.graph.name = "body"
    for name, type in zip(function.input, types, strict=True):
        shape = tuple(size if isinstance(size, int | Sym) else named_size(size, terms) for size in type.shape)
        model.graph.input.append(value_info(name, TensorType(type.dtype, shape)))
    model.graph.output.extend(ValueInfoProto(name=name) for name in function.output)
    model.graph.node.extend(function.node)
    try:
        return closed(import_model(model, rules).graph, terms, types)
    except DslcError:
        return None


def defined(rules: Rules, function: FunctionProto, types: Sequence[TensorType], definition: str) -> Graph | None:
    """The group of a definition at types, where its equation is what the function spells out."""
    group = equation_of(rules, definition) if definition else None
    opset = next((entry.version for entry in function.opset_import if not entry.domain), 0)
    if not group or len(group.inputs) != len(types):
        return None
    try:
        if contents_of(function_of(rules, group, opset).proto) != contents_of(function):
            return None
        sizes = {
            size.name: given
            for value, type in zip(group.inputs, types, strict=True)
            for size, given in zip(value.type.shape, type.shape, strict=False)
            if isinstance(size, Sym)
        }
        bound = bind_graph(group, sizes) if sizes else group
    except (DslcError, Mismatch, RecursionError, ArithmeticError, ValueError):
        return None
    return bound if [value.type for value in bound.inputs] == list(types) else None


def named_size(size: Scalar, terms: dict[str, Dim]) -> Sym:
    """A name for the time being for a size that is an expression; `terms` has those that there are."""
    name = next((name for name, term in terms.items() if term is size), f"size of a kernel {len(terms)}")
    terms[name] = size
    return dimension(name)


def closed(graph: Graph, terms: Mapping[str, Dim], types: Sequence[TensorType]) -> Graph | None:
    """The group over numbered holes, where it consists of what a group may consist of."""
    bound = bind_graph(graph, terms) if terms else graph
    if any(isinstance(node, Opaque | Kernel) for node in bound.nodes()) or not all(
        value.known for value in bound.outputs
    ):
        return None
    known = {part for type in types for size in type.shape if isinstance(size, Scalar) for part in walk(size)}
    parts = [part for size in open_sizes(bound.outputs) for part in walk(size)]
    if any(isinstance(part, Sym) and part not in known for part in parts) or len(bound.inputs) < len(types):
        return None
    holes = tuple(input_value(f"h{k}", type) for k, type in enumerate(types))
    return Graph(holes, replace(bound.outputs, dict(zip(bound.inputs, holes, strict=True))))
