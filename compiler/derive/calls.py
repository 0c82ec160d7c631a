"""A call with the types of its tensors as text: `conv(X: f32[1, 512, 7, 7], K: f32[512, 512, 3, 3], pads=[1, 1, 1, 1])`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from dslc.errors import DslcError, SourceText, Span, error
from dslc.ir.graph import Call, Graph, Value
from dslc.ir.text import PROGRAM
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules
from dslc.semantics.written import read_program

_TYPED = re.compile(r"\b(?P<name>[A-Za-z]\w*)(?P<type>\s*:\s*[A-Za-z]+\d*\s*\[[^\]]*\])")
_CALLED = re.compile(r"[a-z]\w*\s*\(")


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
        typed.setdefault(found["name"], found["type"].lstrip(" :"))
        # what stands behind it stays in its column
        return found["name"] + " " * len(found["type"])

    source = SourceText("call", text)
    body = _TYPED.sub(name_of, text)
    if not typed or not _CALLED.search(body):
        hint = "for example `matmul(A: f32[64, 32], B: f32[32, 16])`"
        raise error("E0911", "this is no call of an operator with typed tensors", Span(source, 0, len(text)), hint=hint)
    for name in typed:
        if name.startswith("w"):
            # that is how weights are called
            body = re.sub(rf"\b{name}\b", "v" + name[1:], body)
    params = ", ".join(f"{'v' + name[1:] if name.startswith('w') else name}: {type}" for name, type in typed.items())
    head = f"dslc 1\n\noperator {PROGRAM}({params}) -> y0 {{\n  y0 =\n"
    try:
        graph = read_program(rules, f"{head}{body}\n}}\n", short=True)
    except Mismatch as problem:
        raise error("E0306", problem.reason, _moved(problem.span, source, len(head)) or Span(source, 0, len(text))) from None
    except DslcError as problem:
        found = [replace(one, span=_moved(one.span, source, len(head)) or Span(source, 0, len(text))) for one in problem.diagnostics]
        raise DslcError(found) from None
    if len(graph.outputs) != 1:
        raise error("E0911", "an expression of one result is derived", Span(source, 0, len(text)))
    return Called(graph, tuple(typed))


def _moved(span: Span | None, source: SourceText, offset: int) -> Span | None:
    """A place of the whole text as one of the call's; None where it is none."""
    if span is None or span.source.path != "program" or span.start < offset:
        return None
    return Span(source, min(span.start - offset, len(source.text) - 1), min(span.end - offset, len(source.text)))
