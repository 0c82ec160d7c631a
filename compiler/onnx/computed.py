"""Nodes that are written for the sizes in attributes: what a graph of open sizes is larger by than its operators."""

from __future__ import annotations

from dslc.errors import DslcError
from dslc.ir.dtype import DType
from dslc.ir.graph import Call, Input, Node, Value, input_value
from dslc.onnx.context import Context
from dslc.onnx.exporter import written_alone
from dslc.onnx.symbols import Sources, Symbols, symbolic
from dslc.semantics.library import Rules


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
            if origin is not None:
                self._known[node] = _sizes(
                    [value for value in origin.inputs if value is not None and value not in node.args]
                )
            else:
                self._known[node] = self._written(node)
        return self._known[node]

    def _written(self, node: Call) -> frozenset[Node]:
        try:
            specs = written_alone(node.values, self._rules, self._context.opset, self._symbols)
        except (DslcError, KeyError):
            return frozenset()
        return frozenset(value.node for spec in specs[:-1] for value in spec.outputs if value is not None)


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
