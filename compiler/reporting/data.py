"""Models as pages show them: plain values, which a report carries as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from dslc.records import record


@record
class DrawnNode:
    """A node of a model: its name (the first result's where it has none), operator, and the names of what it reads and gives.

    rules: what replaced it, or made it. milliseconds: of it in a run, where that was measured. attributes: as text.
    changed: whether the other model has no such node.
    """

    name: str
    operator: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    milliseconds: float | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    changed: bool = False


@record
class Timed:
    """The time of one node of a model in the runtime, which may have fused it: medians of runs in milliseconds."""

    name: str
    operator: str
    milliseconds: float


@record
class Picture:
    """A model: the names of its inputs and outputs, its nodes, and where the time of a run goes, if that was measured."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    nodes: tuple[DrawnNode, ...] = ()
    times: tuple[Timed, ...] = ()


@record
class KernelCode:
    """A generated kernel: its operator's name, the nodes that run it, and its C++."""

    name: str
    nodes: tuple[str, ...]
    text: str
