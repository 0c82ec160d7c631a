"""E-graphs as files, in the format that extractors are compared with.

    {"nodes": {id: {"op": "+", "children": [id, ...], "eclass": class, "cost": 1.0}}, "root_eclasses": [class, ...]}

A child is any node of the class that is read. A node without a cost costs 1. What else is written in a file is not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from dslc.egraph.extract.table import Choice, ExtractionProblem
from dslc.errors import Diagnostic, DslcError
from dslc.ir.graph import Call, Input, Kernel, Node
from dslc.records import record

MOST_BYTES = 1 << 30  #: bytes; longer files are not read
MOST_NODES = 2_000_000  #: nodes; more are not taken


class _Entry(NamedTuple):
    """A node of a file as it is read: without a dictionary of its own, since there may be a million."""

    eclass: Any
    children: Any
    cost: Any


@record
class EGraphFile:
    """The classes of a file by number, and their choices by the ids of their nodes."""

    names: Sequence[str]
    rows: Sequence[tuple[Choice, ...]]
    roots: tuple[int, ...]

    def __len__(self) -> int:
        """Count the nodes."""
        return sum(map(len, self.rows))

    def choices(self, number: int) -> tuple[Choice, ...]:
        return self.rows[number]

    def problem(self) -> ExtractionProblem:
        """Make the problem that extractors take.

        Raises:
            DslcError: E1103 for a root that no program has.
        """
        found = ExtractionProblem(self, self.roots)
        if found.roots is None:
            had = set(found.names)
            name = self.names[next(root for root in self.roots if root not in had)]
            text = f"the root class `{name}` cannot be had: each of its nodes needs a class that is made from itself, or has no node"
            raise DslcError([Diagnostic("E1103", text)])
        return found


def read(path: Path) -> EGraphFile:
    """The e-graph of a file.

    Raises:
        DslcError: E1101 for a file that is none, E1102 for a name without a node or a class, E1104 for a cost that is none,
            E1105 for a file that is too large.
        OSError: it cannot be read.
    """
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise _error(
            "E1105", f"it is {size >> 20} MiB long, and {MOST_BYTES >> 20} MiB are the most that is read", path
        )
    try:
        data = json.loads(path.read_bytes(), object_pairs_hook=_object)
    except (ValueError, RecursionError) as problem:
        raise _error("E1101", f"it is no JSON: {problem}", path) from None
    if not isinstance(data, dict) or not isinstance(data.get("nodes"), dict):
        raise _error("E1101", "an e-graph has `nodes` and `root_eclasses`", path)
    nodes: Mapping[str, Any] = data["nodes"]
    if len(nodes) > MOST_NODES:
        raise _error("E1105", f"it has {len(nodes):,} nodes, and {MOST_NODES:,} are the most that are taken", path)
    numbers: dict[str, int] = {}
    for name, node in nodes.items():
        if (
            not isinstance(node, _Entry)
            or not isinstance(node.eclass, str | int)
            or not isinstance(node.children, list)
        ):
            raise _error("E1101", f"node `{name}` needs an `eclass`, and `children` that are a list", path)
        numbers.setdefault(str(node.eclass), len(numbers))
    rows: list[list[Choice]] = [[] for _ in numbers]
    for name, node in nodes.items():
        kids = []
        for child in node.children:
            below = nodes.get(str(child)) if isinstance(child, str | int) else None
            if below is None:
                raise _error("E1102", f"node `{name}` reads `{child}`, and there is no such node", path)
            kids.append(numbers[str(below.eclass)])
        rows[numbers[str(node.eclass)]].append(Choice(name, _cost(name, node.cost, path), tuple(kids)))
    wanted = data.get("root_eclasses")
    if not isinstance(wanted, list) or not wanted:
        raise _error("E1101", "`root_eclasses` says which classes are wanted: a list of one or more", path)
    for root in wanted:
        if not isinstance(root, str | int) or str(root) not in numbers:
            raise _error("E1102", f"`{root}` is to be a root, and no node is of that class", path)
    return EGraphFile(
        list(numbers), [tuple(row) for row in rows], tuple(dict.fromkeys(numbers[str(root)] for root in wanted))
    )


def _object(pairs: list[tuple[str, Any]]) -> Any:
    found = dict(pairs)
    # a node may be called `eclass`: then this is all nodes
    if isinstance(found.get("eclass"), str | int):
        return _Entry(found["eclass"], found.get("children", []), found.get("cost", 1.0))
    return found


def _cost(name: str, cost: Any, path: Path) -> float:
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        raise _error("E1104", f"node `{name}` has the cost {cost!r}, which is no number", path)
    try:
        value = float(cost)
    except OverflowError:
        value = float("inf")
    if value < 0:
        text = f"node `{name}` has the cost {cost}, and costs are not negative"
        raise _error(
            "E1104", text, path, "extractors take what is needed alone: what costs less than nothing is worth adding"
        )
    if not isfinite(value):
        raise _error("E1104", f"node `{name}` has the cost {cost}; costs are finite numbers", path)
    return value


def _error(code: str, text: str, path: Path, hint: str = "") -> DslcError:
    return DslcError([Diagnostic(code, text, path=str(path), hint=hint)])


# ---- writing ---------------------------------------------------------------------------------------------------


def written(*problems: ExtractionProblem) -> dict[str, Any]:
    """Convert problems to the format of files, side by side.

    Classes are called by their numbers (and their problem's where there are several), nodes by class and place.
    """
    nodes: dict[str, Any] = {}
    roots: list[str] = []
    for at, problem in enumerate(problems):
        names = [f"{at}:{name}" if len(problems) > 1 else str(name) for name in problem.names]
        for number, row in enumerate(problem.rows):
            for place, choice in enumerate(row):
                nodes[f"{names[number]}.{place}"] = {
                    "op": _label(choice.key),
                    "children": [f"{names[kid]}.0" for kid in choice.kids],
                    "eclass": names[number],
                    "cost": choice.cost,
                }
        roots += [names[root] for root in problem.roots or ()]
    return {"nodes": nodes, "root_eclasses": roots}


def _label(key: object) -> str:
    if isinstance(key, Call):
        attrs = ", ".join(f"{name}={value}" for name, value in key.attrs)
        return f"{key.op}({attrs})" if attrs else key.op
    if isinstance(key, Input):
        return key.name
    if isinstance(key, Kernel):
        return "kernel"
    if isinstance(key, Node):
        return type(key).__name__.lower()
    return "weights" if key is None else str(key)
