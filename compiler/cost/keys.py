"""Names for nodes and groups: equal ones take equally long."""

from __future__ import annotations

import weakref
from typing import Any

from dslc.cost import kinds
from dslc.cost.groups import Group, Key
from dslc.cost.samples import Samples, kept_key, program
from dslc.ir.constants import number_of
from dslc.ir.graph import Call, Node, Value, Values
from dslc.ir.scalar import exactly


class Keys:
    """Numbers nodes, and names groups by the numbers of their nodes."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._local: weakref.WeakKeyDictionary[Node, int] = weakref.WeakKeyDictionary()
        self._numbers: dict[Any, int] = {}
        self._pointwise: dict[int, bool] = {}

    def number(self, node: Node) -> int:
        """Equal numbers: the same operator, attributes, types and pattern of constants."""
        found = self._local.get(node)
        if found is None:
            found = self._local[node] = self._number(node, node.args)
        return found

    def _number(self, node: Node, args: Values) -> int:
        what: Any = (node.op, exactly(node.attrs)) if isinstance(node, Call) else program(node)
        described = type(node).__name__, what, tuple(map(self._argument, args)), node.types
        return self._numbers.setdefault(described, len(self._numbers))

    @staticmethod
    def _argument(arg: Value) -> Any:
        """The part of an argument that decides about times: its type, and the values of a constant that the runtime may see."""
        if not arg.constant:
            return arg.type_or_none
        number = number_of(arg) if arg.known else None
        if number is not None:
            return (arg.type, exactly(number))
        return (arg.type, kept_key(arg))

    def of(self, group: Group) -> Key:
        """The nodes' numbers, and which argument of each is which earlier node or which value from outside."""
        outside: dict[Value, int] = {}
        place = {node: k for k, node in enumerate(group.nodes)}
        out: list[int] = [len(place)]
        for node, args in zip(group.nodes, group.args, strict=True):
            if args == node.args or all(a.constant == b.constant for a, b in zip(args, node.args, strict=True)):
                out.append(self.number(node))
            else:
                out.append(self._number(node, args))
            for arg in args:
                if not arg.node.constant:
                    inner = place.get(arg.node)
                    out.append(~outside.setdefault(arg, len(outside)) if inner is None else inner)
        return tuple(out)

    def pointwise(self, node: Node) -> bool:
        """Return whether an application is pointwise, weights aside."""
        if not isinstance(node, Call):
            return False
        local = self.number(node)
        if local not in self._pointwise:
            self._pointwise[local] = kinds.pointwise(
                self._samples.rules, self._samples.static(node), tuple(arg.constant for arg in node.args)
            )
        return self._pointwise[local]
