"""Choice of nodes for the CPU: those that no device runs, and neighbours whose copies would take longer than the CPU does."""

from __future__ import annotations

from collections.abc import Iterable

from dslc.cuda.devices import Device
from dslc.cuda.programs import looks_only
from dslc.fuse.groups import Neighbours, NodeGroup
from dslc.fuse.profile import Profiles
from dslc.ir.graph import Node, Opaque, Value
from dslc.semantics.library import Rules

MOST = 200  #: nodes of a part that is looked at: larger ones are left as they are


def on_the_cpu(rules: Rules, around: Neighbours, device: Device, profiles: Profiles) -> list[NodeGroup]:
    """Parts for the CPU: neighbours of what only ONNX Runtime can run, as far as the sum of prices gets less by them."""
    return _Parts(rules, around, device, profiles).found()


class _Parts:
    def __init__(self, rules: Rules, around: Neighbours, device: Device, profiles: Profiles) -> None:
        self.rules, self.around, self.device, self.profiles = rules, around, device, profiles
        self.parts: list[frozenset[Node]] = [frozenset({node}) for node in around.nodes if isinstance(node, Opaque)]
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
            other = self.owner.get(node)
            between: frozenset[Node] = frozenset()
            if other is None and not self._movable(node):
                continue
            if other is None:
                beyond = [far for far in self._near({node}) if far not in part and far in self.owner]
                for far in beyond:
                    if self._taken(part, self.owner[far], frozenset({node})):
                        return True
                between = frozenset({node})
            if self._taken(part, other or frozenset(), between):
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

    def _movable(self, node: Node) -> bool:
        return all(value.known for value in node.values)

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
        return 0.0 if profile is None else profile.operations

    def _moved(self, node: Node) -> float:
        return sum(map(_bytes, (*dict.fromkeys(node.args), *node.values)))


def _bytes(value: Value) -> int:
    return value.type.bytes if value.known and not value.constant and value.type.is_static else 0
