"""A call with the types of its tensors as text: `conv(X: f32[1, 512, 7, 7], K: f32[512, 512, 3, 3], pads=[1, 1, 1, 1])`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dslc.errors import error
from dslc.ir.graph import Call, Graph, Value
from dslc.ir.text import PROGRAM
from dslc.semantics.library import Rules
from dslc.semantics.written import read_program

_TYPED = re.compile(r"\b(?P<name>[A-Za-z]\w*)\s*:\s*(?P<type>[a-z]+\d*\s*\[[^\]]*\])")
_CALLED = re.compile(r"(?<![\w.])(?P<name>[a-z]\w*)\s*\(")


@dataclass(frozen=True, slots=True)
class Called:
    """A call as a program over holes, and the names that its tensors have in the text."""

    graph: Graph
    names: tuple[str, ...]

    @property
    def call(self) -> Call | None:
        """The operator that gives the result."""
        node = self.graph.outputs[0].node
        return node if isinstance(node, Call) else None

    @property
    def value(self) -> Value:
        return self.graph.outputs[0]


def read_call(rules: Rules, text: str) -> Called:
    """Nested calls of operators of the libraries; a tensor is typed where it first occurs.

    Raises:
        DslcError: with the place in the text: no call, an unknown operator or type, a tensor without a type.
    """
    typed: dict[str, str] = {}

    def name_of(found: re.Match[str]) -> str:
        typed.setdefault(found["name"], found["type"])
        return found["name"]

    body = _TYPED.sub(name_of, text.strip())
    if not typed or not _CALLED.search(body):
        hint = "for example `matmul(A: f32[64, 32], B: f32[32, 16])`"
        raise error("E0911", "this is no call of an operator with typed tensors", hint=hint)
    shorts: dict[str, list[str]] = {}
    for name, op in rules.operators.items():
        shorts.setdefault(op.short, []).append(name)

    def qualified(found: re.Match[str]) -> str:
        names = shorts.get(found["name"], [])
        return f"{names[0]}(" if len(names) == 1 or (names and names[0].startswith("std.")) else found[0]

    numbered = {name: f"h{k}" for k, name in enumerate(typed)}
    body = _CALLED.sub(qualified, body)
    body = re.sub(r"(?<![\w.])(\w+)(?!\s*[\w(=])", lambda found: numbered.get(found[1], found[0]), body)
    params = ", ".join(f"{numbered[name]}: {type}" for name, type in typed.items())
    graph = read_program(rules, f"dslc 1\n\noperator {PROGRAM}({params}) -> y0 {{\n  y0 = {body}\n}}\n")
    if len(graph.outputs) != 1:
        raise error("E0911", "an expression of one result is derived")
    return Called(graph, tuple(typed))
