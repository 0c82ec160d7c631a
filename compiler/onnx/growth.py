"""Which weights-only values are not computed when a model is written, because the file would grow: nodes of the file compute them
when it is loaded, as runtimes fold what depends on weights alone.

    8-bit weights, cast and scaled: [30522, 384] of 1 byte → Cast → Mul → [30522, 384] of 4 bytes
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dslc.ir.constants import FillRef
from dslc.ir.graph import Call, Constant, Value, topological
from dslc.onnx.emit import Spec
from dslc.onnx.plan import WritePlan

SLACK = 1 << 16  #: bytes by which a file may always grow


def ordered(plan: WritePlan, outputs: Sequence[Value], weights: Iterable[Value], growth: float) -> list[Spec]:
    """The nodes to write, producers first: as `plan.order`, with as many nodes that depend on weights alone as keep the file's weights
    from growing by more than a share.

    Args:
        weights: what the original file has; their sizes are what the share is of.

    Raises:
        DslcError: E0814 for what no ONNX node can express.
    """
    order = plan.order(outputs)
    most = (1 + growth) * sum(map(_bytes, set(weights))) + SLACK
    while plan.folded:
        written = _written(plan, order, outputs)
        excess = sum(map(_bytes, written)) - most
        dear = _dear(plan, written) if excess > 0 else []
        if not dear:
            break
        for growing, value in dear:
            plan.hold(value)
            excess -= growing
            if excess <= 0:
                break
        order = plan.order(outputs)
    return order


def _written(plan: WritePlan, order: Sequence[Spec], outputs: Sequence[Value]) -> set[Value]:
    """The weights of the written file: constants, and what is computed now."""
    read = {plan.canonical(value) for spec in order for value in spec.reads} | {
        plan.canonical(value) for value in outputs
    }
    return {value for value in read if value in plan.folded or (isinstance(value.node, Constant) and value.known)}


def _dear(plan: WritePlan, written: set[Value]) -> list[tuple[float, Value]]:
    """What is larger than the weights it is made of, and by how many bytes; the largest first.

    A weight that is written anyway costs nothing more where nodes read it, and one of several users its part.
    """
    folded = [value for value in written if value in plan.folded and isinstance(value.node, Call) and value.node.args]
    below = {
        value: [Value(node) for node in topological([value.node]) if isinstance(node, Constant)] for value in folded
    }
    users: dict[Value, int] = {}
    for leaves in below.values():
        for leaf in leaves:
            users[leaf] = users.get(leaf, 0) + 1
    found = []
    for value, leaves in below.items():
        growing = _bytes(value) - sum(_bytes(leaf) / users[leaf] for leaf in leaves if leaf not in written)
        if growing > 0:
            found.append((growing, value))
    return sorted(found, key=lambda one: -one[0])


def _bytes(value: Value) -> float:
    """Of a weight in a file; one number everywhere takes none."""
    if (
        not value.known
        or not value.type.is_static
        or (isinstance(value.node, Constant) and isinstance(value.node.data, FillRef))
    ):
        return 0.0
    return float(value.type.bytes)
