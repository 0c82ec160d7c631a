"""Reading model files and ONNX's small vocabulary: element types, opsets, attributes, captured names."""

from __future__ import annotations

import hashlib
import heapq
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from dslc.errors import DslcError, error
from dslc.ir.constants import NUMPY, array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Value, constant_value
from dslc.ir.scalar import Sym
from dslc.onnx.pytorch import not_onnx
from dslc.records import record

# ---- model files ---------------------------------------------------------------------------------------------------

#: the oldest opset whose nodes are understood; in older models every node stays opaque
OLDEST_OPSET = 7

#: element types that the language has; everything else stays opaque
DTYPES: dict[int, DType] = {
    TensorProto.FLOAT16: DType.F16,
    TensorProto.BFLOAT16: DType.BF16,
    TensorProto.FLOAT: DType.F32,
    TensorProto.DOUBLE: DType.F64,
    TensorProto.INT8: DType.I8,
    TensorProto.INT16: DType.I16,
    TensorProto.INT32: DType.I32,
    TensorProto.INT64: DType.I64,
    TensorProto.UINT8: DType.U8,
    TensorProto.UINT16: DType.U16,
    TensorProto.UINT32: DType.U32,
    TensorProto.UINT64: DType.U64,
    TensorProto.BOOL: DType.BOOL,
}
ELEM_TYPES: dict[DType, int] = {dtype: number for number, dtype in DTYPES.items()}


def damaged(where: str, why: str) -> DslcError:
    """E0801: what was read is no ONNX model."""
    if where.endswith(".rules"):
        hint = f"`dslc optimize MODEL --rules {where}` uses its rules"
        return error("E0801", f"{where} is a rule file, not an ONNX model", path=where, hint=hint)
    return error("E0801", f"{where} is not a readable ONNX model: {why}", path=where)


def read_model(source: str | Path | ModelProto) -> tuple[ModelProto, Path | None, str]:
    """A model without its external data, the folder that external data is relative to, and a name for messages.

    Raises:
        DslcError: E0902 no such file; E0801 truncated or garbage; E0807 an opset outside the range that is read; E0813 a tensor
            of an element type that there is not.
    """
    if isinstance(source, ModelProto):
        model, folder, name = source, None, source.graph.name or "the model"
    else:
        path = Path(source)
        name = str(path)
        try:
            data = path.read_bytes()
        except OSError as problem:
            raise error("E0902", f"cannot read {path}: {problem.strerror or problem}", path=name) from None
        model, folder = parsed(data, name), path.parent
    if not are_text(model):
        raise damaged(name, "a name in it is no text")
    _check_header(model, name)
    _check_tensors(model.graph, name)
    return model, folder, name


def parsed(data: bytes, name: str) -> ModelProto:
    """The model of a file's bytes; raises E0801 for damaged ones."""
    if not data:
        raise damaged(name, "the file is empty")
    strange = not_onnx(data, name)
    if strange:
        raise strange
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, ValueError, RuntimeError):
        raise damaged(name, "it is cut off, or in another format") from None
    return model


def are_text(message: Any) -> bool:
    """Return whether all texts in a message are text: damaged ones are not valid UTF-8, and come as bytes."""
    return all(isinstance(text, str) for text in texts(message))


def texts(message: Any) -> Iterator[Any]:
    """Every text in a message and in those inside it but for metadata; elements of tensors are not touched."""
    for field in message.DESCRIPTOR.fields:
        if field.name == "metadata_props" or field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE):
            continue
        value = getattr(message, field.name)
        if isinstance(value, str | bytes):
            yield value
        elif not hasattr(value, "ListFields"):
            for each in value:
                yield from texts(each) if field.type == field.TYPE_MESSAGE else (each,)
        elif message.HasField(field.name):
            yield from texts(value)


def _check_header(model: ModelProto, name: str) -> None:
    if not model.ir_version or not model.HasField("graph"):
        raise damaged(name, "it has no graph or no IR version")
    if model.ir_version > onnx.IR_VERSION:
        known = int(onnx.IR_VERSION)
        raise error(
            "E0807", f"{name} has IR version {model.ir_version}; this onnx package knows up to {known}", path=name
        )
    version = opset_of(model)
    newest: int = onnx.defs.onnx_opset_version()
    if version is None:
        if all(entry.domain for entry in model.opset_import) and model.opset_import:
            return  # only other domains: every node is opaque
        raise damaged(name, "it imports no opset")
    if not 1 <= version <= newest:
        hint = "update the onnx package" if version > newest else ""
        raise error("E0807", f"{name} has opset {version}; dslc reads up to {newest}", path=name, hint=hint)


_DATA_TYPES = frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}


def _check_tensors(graph: GraphProto, name: str) -> None:
    sparse = [one for each in graphs(graph) for one in each.sparse_initializer]
    for tensor in (*tensors(graph), *(part for one in sparse for part in (one.values, one.indices))):
        if tensor.data_type not in _DATA_TYPES:
            what = f"tensor `{tensor.name}` of {name}" if tensor.name else f"a tensor of {name}"
            raise error("E0813", f"{what} has the element type {tensor.data_type}, which ONNX does not know", path=name)


def tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every dense tensor that a graph and its subgraphs hold: weights, and attributes of nodes."""
    for each in graphs(graph):
        yield from each.initializer
        for attribute in (attribute for node in each.node for attribute in node.attribute):
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def opset_of(model: ModelProto) -> int | None:
    """The version of ONNX's own domain, None where the model does not import it."""
    return opsets(model).get("")


def opsets(model: ModelProto) -> dict[str, int]:
    """Version by domain; ONNX's own is ``""``."""
    return {("" if entry.domain == "ai.onnx" else entry.domain): int(entry.version) for entry in model.opset_import}


def domain_of(node: NodeProto) -> str:
    """The domain of a node; ONNX's own is empty."""
    return "" if node.domain == "ai.onnx" else node.domain


@cache
def schema_of(op_type: str, domain: str, opset: int) -> Any:
    """The schema that holds for an operator at an opset, or None."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


def type_name(dtype: DType) -> str:
    """A type as schemas call it: `tensor(float)`."""
    return f"tensor({TensorProto.DataType.Name(ELEM_TYPES[dtype]).lower()})"


def operand_types(schema: Any, position: int) -> frozenset[str]:
    """The types that a schema allows for an operand, as `tensor(float)`; its last operand stands for all that follow."""
    formal = schema.inputs[min(position, len(schema.inputs) - 1)].type_str
    allowed = [one.allowed_type_strs for one in schema.type_constraints if one.type_param_str == formal]
    return frozenset(allowed[0] if allowed else (formal,))


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in the attributes of a node."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH or attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and those inside its nodes."""
    yield graph
    for inner in (inner for node in graph.node for inner in subgraphs(node)):
        yield from graphs(inner)


def every_node(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes, and those of their subgraphs."""
    for node in nodes:
        yield node
        for inner in subgraphs(node):
            yield from every_node(inner.node)


def captured(node: NodeProto) -> tuple[str, ...]:
    """Names of outer values that the node's subgraphs read, in the order of their first use."""
    free: dict[str, None] = {}
    for graph in subgraphs(node):
        known = {each.name for each in (*graph.input, *graph.initializer)}
        known |= {tensor.values.name for tensor in graph.sparse_initializer}
        for inner in graph.node:
            free.update((name, None) for name in (*inner.input, *captured(inner)) if name and name not in known)
            known.update(inner.output)
        free.update((value.name, None) for value in graph.output if value.name and value.name not in known)
    return tuple(free)


def all_names(graph: GraphProto) -> Iterator[str]:
    """Every value name in a graph and in its subgraphs."""
    for one in graphs(graph):
        yield from (each.name for each in (*one.input, *one.output, *one.value_info, *one.initializer))
        yield from (sparse.values.name for sparse in one.sparse_initializer)
        yield from (name for node in one.node for name in (*node.input, *node.output))


def value_info(name: str, type: TensorType) -> ValueInfoProto:
    """Sizes that are expressions stay open."""
    shape = [size if isinstance(size, int) else size.name if isinstance(size, Sym) else None for size in type.shape]
    return helper.make_tensor_value_info(name, ELEM_TYPES[type.dtype], shape)


def sorted_nodes(nodes: Sequence[NodeProto], defined: set[str], where: str) -> list[NodeProto]:
    """The nodes, producers first (in the order of the file where it allows).

    Raises:
        DslcError: E0806 a cycle; E0808 a value that nothing produces; E0808 one name for two values.
    """
    producer: dict[str, int] = {}
    for k, node in enumerate(nodes):
        for output in node.output:
            if not output:
                continue
            if output in producer or output in defined:
                raise error("E0808", f"{where} gives two values the name `{output}`", path=where)
            producer[output] = k
    sorter = TopologicalSorter[int]()
    for k, node in enumerate(nodes):
        names = {name: None for name in (*node.input, *captured(node)) if name and name not in defined}
        for name in names:
            if name not in producer:
                what = f"node `{node.name}` ({node.op_type})" if node.name else f"a node ({node.op_type})"
                raise error("E0808", f"{what} of {where} reads `{name}`, which nothing produces", path=where)
        sorter.add(k, *(producer[name] for name in names))
    try:
        sorter.prepare()
    except CycleError as problem:
        stuck = nodes[min(problem.args[1])]
        name = stuck.name or stuck.op_type
        raise error("E0806", f"the graph of {where} has a cycle through `{name}`", path=where) from None
    ready: list[int] = []
    order: list[NodeProto] = []
    while sorter.is_active():
        for k in sorter.get_ready():
            heapq.heappush(ready, k)
        first = heapq.heappop(ready)
        order.append(nodes[first])
        sorter.done(first)
    return order


def attribute_value(attribute: AttributeProto) -> Any:
    """An attribute as a Python value: int, float, str, tuple, or a proto where it is none of these.

    A 32-bit float becomes the shortest decimal that stands for it, so that 0.01 is the 0.01 of a rule file.
    """
    kind, types = attribute.type, AttributeProto
    if kind in (types.INT, types.FLOAT, types.STRING, types.TENSOR):
        return _plain(helper.get_attribute_value(attribute))
    if kind in (types.INTS, types.FLOATS, types.STRINGS):
        return tuple(map(_plain, helper.get_attribute_value(attribute)))
    return attribute


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return float(str(np.float32(value))) if isinstance(value, float) else value


def make_attribute(name: str, value: Any, schema: Any) -> AttributeProto:
    """An attribute of the kind that the schema asks for (an empty list has no kind of its own)."""
    wanted = schema.attributes[name].type.value if schema is not None and name in schema.attributes else None
    if wanted in (AttributeProto.FLOAT, AttributeProto.INT):
        value = (float if wanted == AttributeProto.FLOAT else int)(value)
    elif wanted in (AttributeProto.FLOATS, AttributeProto.INTS):
        each = float if wanted == AttributeProto.FLOATS else int
        value = list(map(each, value if isinstance(value, tuple | list) else (value,)))
    elif wanted not in (AttributeProto.STRING, AttributeProto.STRINGS):
        return helper.make_attribute(name, int(value) if isinstance(value, bool) else value)
    return helper.make_attribute(name, value, attr_type=wanted)


def copy_fields(source: Any, target: Any, skip: set[str]) -> None:
    """Copies the fields of a message, some left out."""
    for field, value in source.ListFields():
        if field.name in skip:
            continue
        if hasattr(value, "extend"):
            getattr(target, field.name).extend(value)
        elif hasattr(value, "CopyFrom"):
            getattr(target, field.name).CopyFrom(value)
        else:
            setattr(target, field.name, value)


# ---- weights -------------------------------------------------------------------------------------------------------

SMALL = 1 << 14  #: elements of a constant that is held as numbers, so that rules can ask for its value


@record
class FileRegion:
    """`length` bytes from `offset` of a file."""

    path: Path
    offset: int
    length: int
    key: str

    def read(self) -> np.memmap[Any, Any] | np.ndarray[Any, Any]:
        """The bytes, mapped: only pages that are touched are in memory, and the system may drop them."""
        if not self.length:
            return np.zeros(0, np.uint8)
        try:
            return np.memmap(self.path, np.uint8, "r", self.offset, (self.length,))
        except (OSError, ValueError) as problem:
            raise error("E0802", f"cannot read external data {self.path}: {problem}", path=str(self.path)) from None


def entries(tensor: TensorProto) -> dict[str, str]:
    """The entries that say where external data is."""
    return {entry.key: entry.value for entry in tensor.external_data}


def is_external(tensor: TensorProto) -> bool:
    """Return whether the elements are in a file beside the model."""
    return tensor.data_location == TensorProto.EXTERNAL


def byte_size(tensor: TensorProto) -> int | None:
    """The bytes that the elements take, by type and shape; None for types without a size (strings)."""
    dtype = DTYPES.get(tensor.data_type)
    return None if dtype is None else int(math.prod(tensor.dims)) * dtype.bytes


def region(tensor: TensorProto, folder: Path | None, where: str) -> FileRegion:
    """The place of a tensor's external data, checked without reading it.

    Raises:
        DslcError: E0802 missing; E0803 too short for the shape; E0804 outside the model's folder.
    """
    info = entries(tensor)
    location = info.get("location", "")
    what = f"tensor `{tensor.name}` of {where}"
    if not location:
        raise error("E0802", f"{what} has external data without a location", path=where)
    base = (folder or Path.cwd()).resolve()
    path = base / location
    try:
        real = path.resolve()
    except (OSError, ValueError, RuntimeError):
        raise error("E0802", f"{what}: no file `{location}`", path=where) from None
    absolute = Path(location).is_absolute()
    if absolute or not real.is_relative_to(base):
        wrong = "an absolute path" if absolute else "outside the model's folder"
        raise error(
            "E0804",
            f"{what} has its data in `{location}`, {wrong}",
            path=where,
            hint="a model may only read files in its own folder, and names them relative to it",
        )
    try:
        status = os.stat(real)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise error("E0802", f"{what}: external data `{location}` cannot be read: {reason}", path=where) from None
    if not real.is_file():
        raise error("E0802", f"{what}: `{location}` is no file", path=where)
    try:
        offset = int(info.get("offset") or 0)
        needed = byte_size(tensor)
        length = (
            int(info["length"]) if info.get("length") else (needed if needed is not None else status.st_size - offset)
        )
    except ValueError:
        raise error("E0803", f"{what}: offset or length of its external data is no number", path=where) from None
    if offset < 0 or length < 0 or offset + length > status.st_size:
        raise error(
            "E0803",
            f"{what} needs bytes {offset} to {offset + length} of `{location}`, which has {status.st_size}",
            path=where,
        )
    if needed is not None and length < needed:
        raise error("E0803", f"{what} has {needed} bytes by its shape, but its external data has {length}", path=where)
    key = f"file:{real}:{status.st_mtime_ns}:{offset}:{length}"
    return FileRegion(real, offset, needed if needed is not None else length, key)


@dataclass(frozen=True, eq=False)
class FileData:
    """A constant in a file: mapped when loaded, never copied into memory as a whole."""

    region: FileRegion
    dtype: DType
    shape: tuple[int, ...]

    @property
    def key(self) -> str:
        return self.region.key

    def load(self) -> Any:
        return self.region.read().view(NUMPY[self.dtype]).reshape(self.shape)


@dataclass(frozen=True, eq=False)
class ProtoData:
    """A constant inside a model; the bytes stay in the message."""

    tensor: TensorProto
    dtype: DType
    shape: tuple[int, ...]

    @cached_property
    def key(self) -> str:
        array = np.ascontiguousarray(self.load())
        return "sha256:" + hashlib.sha256(array.view(np.uint8).data if array.size else b"").hexdigest()

    def load(self) -> Any:
        if self.tensor.raw_data:
            return np.frombuffer(self.tensor.raw_data, NUMPY[self.dtype]).reshape(self.shape)
        return numpy_helper.to_array(self.tensor)


def check_shape(tensor: TensorProto, where: str) -> tuple[int, ...]:
    """The shape of a tensor; raises E0813 for one that cannot be."""
    shape = tuple(map(int, tensor.dims))
    if any(size < 0 for size in shape) or math.prod(shape) > 1 << 44:
        raise error("E0813", f"tensor `{tensor.name}` of {where} has the shape {list(shape)}", path=where)
    return shape


#: where elements are that are not raw bytes; all other types are in int32_data
_FIELDS: dict[int, str] = {
    TensorProto.FLOAT: "float_data",
    TensorProto.INT64: "int64_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
}


def check_length(tensor: TensorProto, where: str) -> None:
    """Raises E0813 where the elements inside the model are fewer or more than its shape says."""
    size = byte_size(tensor)
    if size is None:
        return
    if tensor.raw_data:
        found = len(tensor.raw_data)
    else:
        name = _FIELDS.get(tensor.data_type, "int32_data")
        found = len(getattr(tensor, name)) * DTYPES[tensor.data_type].bytes
    if found != size:
        raise error(
            "E0813", f"tensor `{tensor.name}` of {where} has {found} bytes where its shape needs {size}", path=where
        )


def tensor_constant(tensor: TensorProto, folder: Path | None, where: str) -> Value | None:
    """A weight as a constant; None where the language has no such element type.

    Raises:
        DslcError: E0813, E0813, E0802 to E0804.
    """
    shape = check_shape(tensor, where)
    dtype = DTYPES.get(tensor.data_type)
    if dtype is None or tensor.HasField("segment"):
        if is_external(tensor):
            region(tensor, folder, where)
        return None
    type = TensorType(dtype, shape)
    if is_external(tensor):
        data = FileData(region(tensor, folder, where), dtype, shape)
        if math.prod(shape) <= SMALL:
            return small_constant(np.array(data.load()))
        return constant_value(data, type)
    check_length(tensor, where)
    if math.prod(shape) <= SMALL:
        try:
            return small_constant(np.array(numpy_helper.to_array(tensor)))
        except (ValueError, TypeError, KeyError) as problem:
            raise error("E0813", f"tensor `{tensor.name}` of {where} cannot be read: {problem}", path=where) from None
    return constant_value(ProtoData(tensor, dtype, shape), type)


def array_of(items: tuple[Any, ...], type: TensorType) -> Value:
    """Known numbers as a constant."""
    return small_constant(np.array(items, NUMPY[type.dtype]).reshape(type.sizes))


def whole_numbers(items: Sequence[int] | int) -> Value:
    """A list of whole numbers as a constant, or a single one."""
    return small_constant(np.array(items, np.int64))


def small_constant(array: Any) -> Value:
    """As `array_value`, except that a negative zero stays one."""
    if array.dtype.kind == "f" and array.size and not array.any() and np.signbit(array).any():
        from dslc.ir.constants import FROM_NUMPY, ArrayData

        return constant_value(ArrayData(array), TensorType(FROM_NUMPY[array.dtype], tuple(array.shape)))
    return array_value(array)
