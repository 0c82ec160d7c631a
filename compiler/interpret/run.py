"""Whole graphs: nodes in order, every tensor freed after its last use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dslc.interpret.array import ReadOperand, decode, encode
from dslc.interpret.domain import Array, Domain, Redraw
from dslc.interpret.evaluator import CannotEvaluate, evaluate
from dslc.interpret.reads import OutOfBounds
from dslc.ir.constants import FillRef
from dslc.ir.graph import Call, Constant, Input, Node, Opaque, ScopeNode, Value, nodes_of

#: arrays by the values that they are given for
Feeds: TypeAlias = Mapping[Value, Any]

if TYPE_CHECKING:
    from dslc.semantics.library import Rules


class InterpretKind(Enum):
    """Reasons for which a graph cannot be evaluated; what is decided depends on this, never on the words of a message."""

    OUT_OF_BOUNDS = "a read without a default left its tensor"
    UNDEFINED = "integers are divided by zero, or a number is converted to a type that has no such value"
    OTHER = "an opaque node, a missing input, a symbolic size, or a domain that lacks an operation"


class InterpretError(Exception):
    """A graph that cannot be evaluated: an opaque node, an input without a value, a symbolic size, a read out of bounds."""

    def __init__(self, message: str, kind: InterpretKind = InterpretKind.OTHER) -> None:
        super().__init__(message)
        self.kind = kind


def run(rules: Rules, outputs: Sequence[Value], feeds: Feeds, domain: Domain) -> list[Array]:
    """The arrays of `outputs`, of their declared shapes.

    `feeds` gives an array for each input that the outputs depend on, and may give one for any other value, which is then not
    computed. Over `Floats()` results have their declared element types, over `Field` floating-point tensors are int64 residues,
    over `Exact` objects. Raises InterpretError, and Redraw where a result is not
    defined (a division by zero, a conversion to an integer type that does not hold the number) and other inputs are asked for.
    """
    from dslc.semantics.elaborate import expand
    from dslc.semantics.env import Mismatch

    try:
        scopes = expand(rules, tuple(outputs))
    except Mismatch as problem:
        raise InterpretError(problem.reason) from None
    return run_scopes(scopes, feeds, domain)


def run_scopes(outputs: Sequence[Value], feeds: Feeds, domain: Domain) -> list[Array]:
    """As `run`, for graphs without calls."""
    known: dict[Value, ReadOperand] = {value: _fed(value, array, domain) for value, array in feeds.items()}
    nodes = _needed(outputs, known)
    uses = Counter(arg for node in nodes for arg in node.args)
    uses.update(outputs)
    with np.errstate(all="ignore"):
        for node in nodes:
            value = Value(node)
            known[value] = _node(node, known, domain)
            for arg in node.args:
                uses[arg] -= 1
                if uses[arg] == 0:
                    known.pop(arg, None)
        return [decode(known[value], value.type.dtype, domain, final=True) for value in outputs]


def _needed(outputs: Sequence[Value], known: Mapping[Value, ReadOperand]) -> list[Node]:
    """The nodes to be computed, arguments first; nothing below a value that is fed."""
    fed = {value.node for value in known if len(value.node.types) == 1}
    needed: set[Node] = set()
    stack = [value.node for value in outputs if value not in known]
    while stack:
        node = stack.pop()
        if node not in needed and node not in fed:
            needed.add(node)
            stack.extend(arg.node for arg in node.args if arg not in known)
    return [node for node in nodes_of(outputs) if node in needed]


def _fed(value: Value, array: Any, domain: Domain) -> ReadOperand:
    operand = encode(array, value.type.dtype, domain)
    if value.type.is_static:
        shape = value.type.sizes
        if operand.data.shape != shape:
            raise InterpretError(f"an array of shape {list(operand.data.shape)} is fed where {value.type} is wanted")
    return operand


def _node(node: Node, known: Mapping[Value, ReadOperand], domain: Domain) -> ReadOperand:
    if isinstance(node, ScopeNode):
        try:
            out = evaluate(
                node.scope, [known[arg] for arg in node.args], domain, tuple(arg.type.dtype for arg in node.args)
            )
        except Redraw as problem:
            if domain.name == "float64":
                raise InterpretError(f"{problem} (in {node.scope})", InterpretKind.UNDEFINED) from problem
            raise
        except OutOfBounds as problem:
            raise InterpretError(f"{problem} (in {node.scope})", InterpretKind.OUT_OF_BOUNDS) from problem
        except (CannotEvaluate, ValueError) as problem:
            raise InterpretError(f"{problem} (in {node.scope})") from problem
        return out
    if isinstance(node, Constant):
        type = Value(node).type
        if isinstance(node.data, FillRef) and type.dtype.is_float and domain.name != "float64":
            shape = type.sizes
            return ReadOperand(np.broadcast_to(domain.number(node.data.value), shape), "val")
        return encode(node.data.load(), type.dtype, domain)
    if isinstance(node, Input):
        raise InterpretError(f"no value is given for the input {node.name}")
    if isinstance(node, Opaque):
        raise InterpretError(f"the opaque node {node.label} has no definition in the language")
    assert isinstance(node, Call)
    raise InterpretError(f"the call of {node.op} is not expanded")
