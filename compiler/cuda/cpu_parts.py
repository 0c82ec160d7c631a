"""Parts of a graph that ONNX Runtime computes on the CPU in the middle of a plan, and their sizes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, ValueInfoProto, helper

from dslc.cuda.devices import Device
from dslc.cuda.programs import looks_only
from dslc.errors import DslcError
from dslc.fuse.groups import Neighbours, NodeGroup
from dslc.fuse.profile import Profiles
from dslc.ir.graph import Graph, Node, Opaque, Value
from dslc.onnx.context import Imported
from dslc.onnx.exporter import node_model
from dslc.onnx.importer import import_model
from dslc.semantics.library import Rules

#: a model that computes values from others, as ONNX Runtime loads it; None: no nodes of ONNX express it
Hosted = Callable[[Sequence[Value], Sequence[Value]], "bytes | None"]


LARGEST = 1 << 30  #: bytes of a model that is run with all values as outputs


def hosted(rules: Rules, opset: int, opsets: Mapping[str, int], ir_version: int) -> Hosted:
    """Models with nodes of the versions that a model has."""

    def model(outputs: Sequence[Value], inputs: Sequence[Value]) -> bytes | None:
        try:
            found, _ = node_model(outputs, rules, opset, ir_version, inputs=inputs)
        except DslcError:
            return None
        known = {one.domain for one in found.opset_import}
        for domain in {node.domain for node in found.graph.node} - known:
            found.opset_import.append(helper.make_opsetid(domain, opsets.get(domain, 1)))
        data: bytes = found.SerializeToString()
        return data

    return model


def hosted_of(rules: Rules, imported: Imported) -> Hosted:
    """As `hosted`, for a model that was imported."""
    context = imported.context
    return hosted(rules, context.opset, context.opsets, context.ir_version)


def at_feeds(
    source: str | os.PathLike[str] | ModelProto, rules: Rules, imported: Imported, feeds: Mapping[str, Any]
) -> Imported:
    """Import a model again at the sizes of some inputs, where it has nodes with sizes that only a run can tell.

    Their sizes may differ for other inputs of the same shapes: each run checks them.
    """
    if not opaque(imported.graph):
        return imported
    model = imported.context.model
    if not isinstance(source, ModelProto) and any(one.data_location for one in model.graph.initializer):
        return imported
    found = _shaped(model, feeds)
    if found is None:
        return imported
    try:
        return import_model(found, rules)
    except DslcError:
        return imported


def _shaped(model: ModelProto, feeds: Mapping[str, Any]) -> ModelProto | None:
    """A copy in which every value has the type and the sizes that a run shows; None where it cannot be run so."""
    if model.ByteSize() > LARGEST:
        return None
    out = ModelProto()
    out.CopyFrom(model)
    names = {name for node in out.graph.node for name in node.output if name} - {one.name for one in out.graph.output}
    out.graph.output.extend(ValueInfoProto(name=name) for name in sorted(names))
    try:
        session = runtime(out.SerializeToString())
        arrays = session.run(None, {one.name: feeds[one.name] for one in session.get_inputs() if one.name in feeds})
    except Exception:  # the runtime has a class for each of its errors
        return None
    shown = {**dict(zip((one.name for one in session.get_outputs()), arrays, strict=True)), **feeds}
    types = {
        name: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in shown.items() if isinstance(array, np.ndarray)
    }  # fmt: skip
    del out.graph.output[len(model.graph.output) :]
    del out.graph.value_info[:]
    for value in (*out.graph.input, *out.graph.output):
        if value.name in types:
            value.CopyFrom(types[value.name])
    out.graph.value_info.extend(types[name] for name in sorted(names & types.keys()))
    return out


def runtime(data: bytes) -> Any:
    """A session on the CPU that says nothing."""
    import onnxruntime

    ort: Any = onnxruntime
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def opaque(graph: Graph) -> bool:
    """Return whether a graph has nodes that only ONNX Runtime can run."""
    return any(isinstance(node, Opaque) for node in graph.nodes())


MOST = 200  #: nodes of a part that is looked at: larger ones are left as they are


@dataclass(eq=False)
class CpuParts:
    """Parts for the CPU: what only ONNX Runtime can run with its neighbours, as far as the sum of prices gets less by them."""

    rules: Rules
    around: Neighbours
    device: Device
    profiles: Profiles

    def __post_init__(self) -> None:
        self.parts = [frozenset[Node]({node}) for node in self.around.nodes if isinstance(node, Opaque)]
        self.owner: dict[Node, frozenset[Node]] = {node: part for part in self.parts for node in part}

    def found(self) -> list[NodeGroup]:
        waiting = list(self.parts)
        while waiting:
            part = waiting.pop()
            if part in self.parts and self._grown(part):
                waiting.append(self.parts[-1])
        return [self.around.group(part) for part in self.parts if len(part) > 1]

    def _grown(self, part: frozenset[Node]) -> bool:
        """Takes along the first neighbour that is worth it: a node, another part, or one with the nodes between."""
        if len(part) > MOST:
            return False
        for node in self._near(part):
            none, alone = frozenset[Node](), frozenset({node})
            if node in self.owner:
                choices = [(self.owner[node], none)]
            elif all(value.known for value in node.values):
                beyond = [far for far in self._near(alone) if far not in part and far in self.owner]
                choices = [*((self.owner[far], alone) for far in beyond), (none, alone)]
            else:
                continue
            if any(self._taken(part, other, between) for other, between in choices):
                return True
        return False

    def _taken(self, part: frozenset[Node], other: frozenset[Node], between: frozenset[Node]) -> bool:
        """Makes one part of two and what is between them, where that is one and takes less."""
        whole = part | other | between
        apart = self._price(part) + (self._price(other) if other else 0.0) + sum(self._kernel(node) for node in between)
        if len(whole) > MOST or not self.around.convex(whole) or self._price(whole) >= apart:
            return False
        self.parts = [one for one in self.parts if one not in (part, other)] + [whole]
        self.owner.update(dict.fromkeys(whole, whole))
        return True

    def _near(self, part: Iterable[Node]) -> list[Node]:
        """The nodes right before and right behind some."""
        own = set(part)
        near = (other for node in own for other in (*self.around.args(node), *self.around.users[node]))
        return sorted({node for node in near if node not in own}, key=self.around.rank.__getitem__)

    def _price(self, part: frozenset[Node]) -> float:
        """Seconds of a part: its copies, and what the CPU takes for those that a device could have computed."""
        group = self.around.group(part)
        copied = [sum(_bytes(value) for value in values) for values in (group.arguments, group.outputs)]
        own = [node for node in part if not isinstance(node, Opaque)]
        return self.device.host(*copied) + sum(
            self.device.computed(self._moved(node), self._work(node)) for node in own
        )

    def _kernel(self, node: Node) -> float:
        """Seconds of a node on the device; what only looks at memory takes none."""
        if looks_only(self.rules, node):
            return 0.0
        return self.device.kernel(self._work(node), self._moved(node), node.values[0].type.dtype)

    def _work(self, node: Node) -> float:
        profile = self.profiles.of(node)
        return profile.operations if profile else 0.0

    def _moved(self, node: Node) -> float:
        return sum(map(_bytes, (*dict.fromkeys(node.args), *node.values)))


def _bytes(value: Value) -> int:
    return value.type.bytes if value.known and not value.constant and value.type.is_static else 0
