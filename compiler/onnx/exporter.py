"""Models out: a graph and the context that it was imported with, as an ONNX model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import inf
from typing import Any, get_args

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
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Constant, Graph, Input, Kernel, Node, Opaque, Value, input_value, replace
from dslc.ir.scalar import Sym, scalars, sym
from dslc.ir.sizes import multiple
from dslc.onnx import folding
from dslc.onnx.broadcasting import Sources, Symbols, symbolic
from dslc.onnx.context import Context, OpaqueTensor, bind_values, open_sizes
from dslc.onnx.emit import Spec
from dslc.onnx.folding import ordered
from dslc.onnx.functions import (
    IR_VERSION,
    Function,
    add_functions,
    definition_of,
    general_sizes,
    name_of,
    standard_sizes,
)
from dslc.onnx.metadata import DOMAIN
from dslc.onnx.naming import Namer, Naming, naming_of
from dslc.onnx.plan import NestedModels, Resolved, WritePlan
from dslc.onnx.protos import ELEM_TYPES, FileData, all_names, copy_fields, domain_of, value_info
from dslc.onnx.types import dim_name
from dslc.prove.garbage import gc_paused
from dslc.semantics.library import Rules, rules_cache


def export(
    context: Context,
    graph: Graph,
    rules: Rules,
    naming: Naming | None = None,
    *,
    scopes: bool = False,
    growth: float = inf,
    fewest: bool = False,
) -> ModelProto:
    """A graph as a model: nodes that did not change are those of the file, word for word.

    External data stays where it is: tensors refer to the original file, relative to `context.folder` (see `save`).

    Args:
        naming: names of the rest; without it, those that the file gave to the values and nodes that it still has.
        scopes: whether expressions that no operator of ONNX is are written in plain nodes.
        growth: the share by which the weights of the model may become more than the original's: what depends on weights alone and
            would make it larger than that is written as nodes, which runtimes compute when they load it.
        fewest: whether nodes of the file that read computed sizes are written anew where the model has fewer nodes for that.

    Raises:
        DslcError: E0814 an expression without an ONNX form; E0814 a constant that cannot be computed.
    """
    with gc_paused():
        named = naming or naming_of(context)
        ways: tuple[Resolved, ...] = get_args(Resolved) if fewest and context.dims else ("file",)
        exporters = [_Exporter(context, graph, rules, named, scopes=scopes, resolved=way) for way in ways]
        return min(exporters, key=lambda one: len(one.ordered(growth))).run(growth)


def function_of(rules: Rules, group: Graph, opset: int, where: str = "the kernel") -> Function:
    """The function of a group, of the same name for all groups that do the same at an opset.

    Raises:
        DslcError: E0814 where ONNX has no node for a part of the group.
    """
    cache = rules_cache(rules, "functions")
    key = (group.inputs, group.outputs, opset)
    found = cache.get(key)
    if found is None:
        own = standard_sizes(general_sizes(rules, group))
        proto = _body(rules, own, opset, where)
        proto.name = name_of(proto, [value.type for value in own.inputs])
        # the group is kept with what it is the key of: a node that is gone may be made again
        found = cache[key] = (group, Function(proto, own, definition_of(rules, proto.name, own)))
    function: Function = found[1]
    return function


def _body(rules: Rules, group: Graph, opset: int, where: str) -> FunctionProto:
    found: dict[str, tuple[int, Value, int]] = {}
    for value in group.inputs:
        for axis, size in enumerate(value.type.shape):
            if (own := multiple(size)) is not None:
                sym, times = own
                if sym.name not in found or times < found[sym.name][0]:
                    found[sym.name] = times, value, axis
    dims = {name: (value, axis) for name, (_, value, axis) in found.items()}
    context = _context_of(group, opset, IR_VERSION, where, dims)
    try:
        written = export(context, group, rules, scopes=True)
    except KeyError as size:
        raise error("E0814", f"no input of a kernel has the size {size}", path=where) from None
    if written.functions:
        raise error("E0814", "a kernel contains a kernel", path=where)
    out = FunctionProto(domain=DOMAIN)
    out.input.extend(value.name for value in written.graph.input)
    out.output.extend(value.name for value in written.graph.output)
    for tensor in written.graph.initializer:
        out.node.append(helper.make_node("Constant", [], [tensor.name], value=tensor))
        out.node[-1].attribute[0].t.ClearField("name")
    out.node.extend(written.graph.node)
    for domain in sorted(set(map(domain_of, out.node)) | {""}):
        out.opset_import.append(helper.make_opsetid(domain, opset if not domain else 1))
    return out


def compute(values: Sequence[Value], rules: Rules, opset: int) -> dict[Value, Any]:
    """As `folding.compute`, where models of nodes are what is run."""
    return folding.compute(values, rules, opset, node_model)


_NESTED = NestedModels(function_of, compute)


def unsaid(context: Context, graph: Graph, rules: Rules) -> frozenset[Node]:
    """The calls of a graph that no ONNX nodes express as they stand in it: beside clauses, the nodes of the file count.

    Raises:
        DslcError: E0814 for what is no call and has no ONNX form.
    """
    exporter = _Exporter(context, graph, rules, Naming())
    return exporter.plan.unsaid([*graph.outputs, *context.pinned.values()])


def exportable(call: Call, rules: Rules, opset: int) -> bool:
    """Return whether ONNX nodes express one application at an opset."""
    # the graph that the call stands in says what its sizes are
    sizes = open_sizes((*call.args, *call.values))
    names = sorted({part.name for size in sizes for part in scalars(Sym, size)})
    whole = input_value("sizes", TensorType(DType.I64, tuple(map(sym, names))))
    try:
        written_alone(
            call.values, rules, opset, Symbols({name: (whole, axis) for axis, name in enumerate(names)}, Sources(()))
        )
    except DslcError:
        return False
    return True


def written_alone(values: Sequence[Value], rules: Rules, opset: int, symbols: Symbols) -> list[Spec]:
    """The nodes that a call's results are written in, whatever its arguments are, producers first; raises DslcError where none are."""
    cut = {
        arg: input_value(f"x{k}", arg.type)
        for k, arg in enumerate(dict.fromkeys(values[0].node.args))
        if not arg.constant
    }
    outputs = replace(tuple(values), dict(cut))
    return WritePlan(rules, opset, {}, symbols, outputs, "the graph", _NESTED).order(outputs)


def node_model(
    outputs: Sequence[Value],
    rules: Rules,
    opset: int,
    ir_version: int = 8,
    *,
    inputs: Sequence[Value] | None = None,
    bind: Mapping[str, int] | None = None,
    scopes: bool = False,
) -> tuple[ModelProto, list[str]]:
    """A model that computes values from others, and the names of its inputs.

    Args:
        outputs: what it computes; they are named `y0`, `y1`, ...
        inputs: what it gets, named `x0`, `x1`, ...; by default the arguments of the outputs' nodes that are no constants. Constants
            that are not among them become weights of the model (computed, where they are expressions).
        bind: sizes for symbolic dimensions.
        scopes: whether expressions that no operator names are written as plain nodes.

    Raises:
        DslcError: E0814 where no ONNX node expresses a value.
    """
    if inputs is None:
        own = {value.node for value in outputs}
        args = dict.fromkeys(arg for value in outputs for arg in value.node.args)
        chosen = [arg for arg in args if not arg.constant and arg.node not in own]
    else:
        chosen = list(inputs)
    cut = {value: input_value(f"x{k}", value.type) for k, value in enumerate(chosen)}
    results = replace(tuple(outputs), dict(cut))
    parameters = tuple(cut[value] for value in chosen)
    if bind:
        bound = bind_values((*results, *parameters), bind)
        results, parameters = bound[: len(results)], bound[len(results) :]
    context = _context_of(Graph(parameters, results), opset, ir_version, "the node", {})
    fold = inputs is None or any(not value.constant for value in chosen)
    exporter = _Exporter(context, Graph(parameters, results), rules, Naming(), fold=fold, scopes=scopes)
    return exporter.run(), list(context.names.values())


def _context_of(
    graph: Graph, opset: int, ir_version: int, where: str, dims: Mapping[str, tuple[Value, int]]
) -> Context:
    """The context of a graph that no file has: its outputs are `y0`, `y1`, ..."""
    model = ModelProto(ir_version=ir_version, producer_name="dslc", opset_import=[helper.make_opsetid("", opset)])
    model.graph.name = "nodes"
    names: dict[Value, str] = {value: value.node.name for value in graph.inputs}  # type: ignore[attr-defined]
    model.graph.input.extend(value_info(name, value.type) for value, name in names.items())
    model.graph.output.extend(value_info(f"y{k}", value.type) for k, value in enumerate(graph.outputs))
    return Context(model, None, where, {"": opset}, names=names, dims=dims)


class _Exporter:
    def __init__(
        self,
        context: Context,
        graph: Graph,
        rules: Rules,
        naming: Naming,
        *,
        fold: bool = True,
        scopes: bool = False,
        resolved: Resolved = "file",
    ) -> None:
        self.context, self.graph, self.rules = context, graph, rules
        self.original = context.model.graph
        roots = (*graph.outputs, *context.pinned.values())
        self.symbols = Symbols(context.dims, Sources(roots), context.opset, mixed=resolved != "file")
        self.plan = WritePlan(
            rules, context.opset, context.origins, self.symbols, roots, context.where, _NESTED,
            fold=fold, scopes=scopes, resolved=resolved,
        )  # fmt: skip
        self._final = self.plan.canonical
        self._order: list[Spec] | None = None
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()
        #: further names of values
        self.copies: dict[Value, list[str]] = {}
        self._count = 0
        self._namer = Namer(naming, context.ir_version)

    def ordered(self, growth: float) -> list[Spec]:
        """The nodes that are written, producers first."""
        if self._order is None:
            roots = [*self.graph.outputs, *self.context.pinned.values()]
            self._order = (
                self.plan.order(roots) if growth == inf else ordered(self.plan, roots, self.context.tensors, growth)
            )
        return self._order

    def run(self, growth: float = inf) -> ModelProto:
        order = self.ordered(growth)
        self._namer.stands_for = {inner: outer for outer, inner in self.plan.aliases.items()}
        self._namer.inside = self.plan.inside
        self._name(order, [self._final(value) for value in self.graph.outputs])
        folded = [v for v in self.names if v in self.plan.folded]
        arrays = compute(folded, self.rules, self.context.opset) if folded else {}
        model = self._shell()
        self._nodes(model, order)
        for value, name in self.names.items():
            self._weight(model, value, name, arrays)
        self._interface(model)
        add_functions(model, self.plan.functions)
        return model

    def _nodes(self, model: ModelProto, order: Sequence[Spec]) -> None:
        """The nodes; a second name of a value is an Identity right behind what gives it."""
        made = {self._final(output) for spec in order for output in spec.gives}
        self._namer.keep(spec.proto.name for spec in order if self.plan.kept(spec))
        for value, names in self.copies.items():
            if value not in made:
                model.graph.node.extend(helper.make_node("Identity", [self.names[value]], [name]) for name in names)
        for spec in order:
            model.graph.node.append(self._node_of(spec))
            for output in map(self._final, spec.gives):
                for name in self.copies.pop(output, ()):
                    model.graph.node.append(helper.make_node("Identity", [self.names[output]], [name]))

    # ---- names -----------------------------------------------------------------------------------------------

    def _name(self, order: Sequence[Spec], outputs: Sequence[Value]) -> None:
        original = set(all_names(self.original))
        for value in self.graph.inputs:
            self._give(value, value.node.name)  # type: ignore[attr-defined]
        required: dict[str, Value] = {}
        named = (pair for spec in order for pair in spec.captured)
        results = zip((info.name for info in self.original.output), outputs, strict=True)
        for name, value in chain(results, named, self.context.pinned.items()):
            required.setdefault(name, self._final(value))
        for name, value in required.items():
            if self.names.get(value) == name:
                continue
            if value in self.names or name in self.taken or isinstance(value.node, Input):
                self.copies.setdefault(value, []).append(name)
                self.taken.add(name)
            else:
                self._give(value, name)
        reserved = original | self.taken
        for spec in order:
            for read in spec.reads:
                self._name_one(self._final(read), reserved, user=next(iter(spec.gives), None))
            for output in spec.gives:
                self._name_one(self._final(output), reserved, spec.proto.op_type)
        for value in self.copies:
            self._name_one(value, reserved)

    def _give(self, value: Value, name: str) -> None:
        self.names[value] = name
        self.taken.add(name)

    def _name_one(self, value: Value, reserved: set[str], made_by: str = "weight", user: Value | None = None) -> None:
        """The name that a value has in the file, or one after what it is made by, or for."""
        if value in self.names:
            return
        known = self._namer.known(value)
        if known is not None and known not in self.taken:
            self._give(value, known)
            return
        wanted = name = self._namer.result(value, made_by) or (self._namer.operand(user) if user else "")
        number = 1
        while not name or name in reserved or name in self.taken:
            if wanted:
                number += 1
                name = f"{wanted}_{number}"
            else:
                name = f"dslc_{self._count}"
                self._count += 1
        self._give(value, name)

    # ---- parts of the model ------------------------------------------------------------------------------------

    def _shell(self) -> ModelProto:
        """The original model without its graph's nodes and weights."""
        out = ModelProto()
        copy_fields(self.context.model, out, {"graph"})
        skip = {"node", "initializer", "sparse_initializer", "input", "output", "value_info", "quantization_annotation"}
        copy_fields(self.original, out.graph, skip)
        out.graph.SetInParent()
        return out

    def _node_of(self, spec: Spec) -> NodeProto:
        node = NodeProto()
        node.CopyFrom(spec.proto)
        inputs = [self.names[self._final(value)] if value else "" for value in spec.inputs]
        outputs: list[str] = []
        for k, value in enumerate(spec.outputs):
            old = spec.proto.output[k] if k < len(spec.proto.output) else ""
            outputs.append(self.names.get(self._final(value), old) if value else self._unread(old))
        del node.input[:]
        del node.output[:]
        node.input.extend(inputs)
        node.output.extend(outputs)
        if not self.plan.kept(spec):
            node.name = ""
            self._namer.name(node, next(iter(spec.gives), None))
        return node

    def _unread(self, name: str) -> str:
        if not name or name in self.taken:
            return ""
        self.taken.add(name)
        return name

    def _weight(self, model: ModelProto, value: Value, name: str, arrays: Mapping[Value, Any]) -> None:
        node = value.node
        if isinstance(node, Opaque) and isinstance(node.payload, OpaqueTensor):
            _add_tensor(model, node.payload.tensor, name)
            return
        if value in arrays:
            _add_tensor(model, numpy_helper.from_array(arrays[value]), name)
        elif isinstance(node, Constant) and not self.plan.producer(value):
            original = self.context.tensors.get(value)
            _add_tensor(model, original if original is not None else tensor_of(node, self.context), name)
        else:
            return
        if self.context.ir_version < 4 and not self.plan.functions:
            model.graph.input.append(value_info(name, value.type))

    def _interface(self, model: ModelProto) -> None:
        graph = model.graph
        inputs = {value.node.name for value in self.graph.inputs}  # type: ignore[attr-defined]
        weights = list(graph.input)
        kept = {info.name for info in self.original.input}
        by_name = {info.name: info for info in weights}
        del graph.input[:]
        for info in self.original.input:
            if info.name in inputs:
                graph.input.append(self._info(info, is_input=True))
            elif info.name in by_name:
                graph.input.append(by_name[info.name])
        graph.input.extend(info for info in weights if info.name not in kept)
        for name, tensor in self.context.variables.items():
            if name in inputs:
                _add_tensor(model, tensor, name)
        graph.output.extend(self._info(info, is_input=False) for info in self.original.output)
        outer = {info.name for info in (*graph.input, *graph.output)}
        graph.value_info.extend(
            self._info(info, is_input=False)
            for info in self.original.value_info
            if info.name in self.taken and info.name not in outer
        )
        known = outer | {info.name for info in graph.value_info}
        for value, name in self.names.items():
            if isinstance(value.node, Kernel) and name not in known and value.known:
                graph.value_info.append(value_info(name, value.type))
        graph.quantization_annotation.extend(
            annotation for annotation in self.original.quantization_annotation if annotation.tensor_name in self.taken
        )

    def _info(self, info: ValueInfoProto, *, is_input: bool) -> ValueInfoProto:
        if not self.context.bind:
            return info
        out = ValueInfoProto()
        out.CopyFrom(info)
        if out.type.HasField("tensor_type") and out.type.tensor_type.HasField("shape"):
            for axis, dimension in enumerate(out.type.tensor_type.shape.dim):
                label = dim_name(dimension) or (f"{info.name}.{axis}" if is_input else "")
                if not dimension.HasField("dim_value") and label in self.context.bind:
                    dimension.dim_value = self.context.bind[label]
        return out


def _add_tensor(model: ModelProto, tensor: TensorProto | SparseTensorProto, name: str) -> None:
    if isinstance(tensor, SparseTensorProto):
        model.graph.sparse_initializer.append(tensor)
        model.graph.sparse_initializer[-1].values.name = name
        return
    model.graph.initializer.append(tensor)
    model.graph.initializer[-1].name = name


def tensor_of(node: Constant, context: Context) -> TensorProto:
    """A weight that the file did not have: its elements, or a reference to the file that they are in."""
    data = node.data
    type = node.types[0]
    assert type
    if isinstance(data, FileData) and context.folder and data.region.path.is_relative_to(context.folder.resolve()):
        tensor = TensorProto(data_type=ELEM_TYPES[type.dtype], dims=[int(s) for s in type.shape])  # type: ignore[arg-type]
        tensor.data_location = TensorProto.EXTERNAL
        location = data.region.path.relative_to(context.folder.resolve()).as_posix()
        for key, value in (("location", location), ("offset", data.region.offset), ("length", data.region.length)):
            tensor.external_data.add(key=key, value=str(value))
        return tensor
    return numpy_helper.from_array(data.load())


class ComputedSizes:
    """Nodes that are written beside each call to compute its sizes; equal ones count once."""

    def __init__(self, rules: Rules, context: Context) -> None:
        self._rules, self._context = rules, context
        self._known: dict[Node, frozenset[Node]] = {}
        # what is above a value is not written for a size that is read from it
        cut = {value: value if isinstance(value.node, Input) else input_value(f"from {k}", value.type)
               for k, value in enumerate(dict.fromkeys(value for value, _ in context.dims.values()))}  # fmt: skip
        dims = {name: (cut[value], axis) for name, (value, axis) in context.dims.items()}
        self._symbols = Symbols(dims, Sources(tuple(cut.values())), context.opset, before=len(cut))

    def of(self, node: Node) -> frozenset[Node]:
        """The nodes beside a call that its sizes are computed in: those of the file, or those that would be written."""
        if not isinstance(node, Call) or not symbolic(node.attrs):
            return frozenset()
        if node not in self._known:
            origin = self._context.origins.get(node.values[0])
            inputs = [value for value in origin.inputs if value and value not in node.args] if origin else []
            self._known[node] = _sizes(inputs) if origin else self._written(node)
        return self._known[node]

    def _written(self, node: Call) -> frozenset[Node]:
        try:
            specs = written_alone(node.values, self._rules, self._context.opset, self._symbols)
        except (DslcError, KeyError):
            return frozenset()
        return frozenset(value.node for spec in specs[:-1] for value in spec.gives)


def _sizes(values: list[Value]) -> frozenset[Node]:
    """The nodes that some sizes are computed in, from the shapes of tensors on."""
    found: set[Node] = set()
    while values:
        value = values.pop()
        if not value.known or value.type.dtype is not DType.I64 or value.type.rank > 1 or value.node in found:
            continue
        if not value.constant and value.node.args:
            found.add(value.node)
            values += value.node.args
    return frozenset(found)
