"""A call with the types of its tensors as text: `conv(X: f32[1, 512, 7, 7], K: f32[512, 512, 3, 3], pads=[1, 1, 1, 1])`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dslc.derivation.programs import calls_of
from dslc.errors import Diagnostic, DslcError, SourceText, Span, error
from dslc.ir.dtype import DTYPES, DType, TensorType
from dslc.ir.graph import Call, Graph, Value
from dslc.ir.holes import abstracted, hole
from dslc.ir.text import PROGRAM
from dslc.records import record
from dslc.semantics.apply import apply
from dslc.semantics.env import Env, EvalError, Mismatch, Unbound
from dslc.semantics.library import Rules
from dslc.semantics.types import shape_of
from dslc.semantics.written import read_program
from dslc.syntax.vocabulary import CONSTANTS, DTYPE_NAMES, KEYWORDS, REDUCTIONS

_TYPED = re.compile(r"\b(?P<name>[A-Za-z]\w*)(?P<type>\s*:\s*[A-Za-z]+\d*\s*\[[^\]]*\])")
_RESERVED = KEYWORDS | REDUCTIONS | CONSTANTS | DTYPE_NAMES
_CALLED = re.compile(r"[a-z]\w*\s*\(")


@record
class CallProgram:
    """A call as a program over holes, and the names that its tensors have in the text."""

    graph: Graph
    names: tuple[str, ...]

    @property
    def calls(self) -> tuple[Call, ...]:
        """The operators that it is written with."""
        return calls_of(*self.graph.outputs)

    @property
    def value(self) -> Value:
        return self.graph.outputs[0]


def read_call(
    rules: Rules, text: str, known: Mapping[str, TensorType] | None = None, several: bool = False
) -> CallProgram:
    """Nested calls of operators of the libraries; a tensor is typed where it first occurs.

    Args:
        known: tensors that another call has typed: they are the first holes, and need no type here.
        several: whether the outermost operator may have several results, and whether a tensor alone is a program too.

    Raises:
        DslcError: with the place in the text: no call, an unknown operator or type, a tensor without a type, or with another one.
    """
    typed: dict[str, str] = {name: str(type) for name, type in (known or {}).items()}
    again: list[tuple[str, re.Match[str]]] = []
    starts: dict[str, int] = {}
    source = SourceText("call", text)

    def name_of(found: re.Match[str]) -> str:
        written = found["type"].lstrip(" :")
        dtype = written.partition("[")[0].strip()
        if dtype not in DTYPES:
            start = found.start("type") + found["type"].index(dtype)
            hint = "one of " + ", ".join(DTYPES)
            raise error(
                "E0305", f"there is no element type `{dtype}`", Span(source, start, start + len(dtype)), hint=hint
            )
        starts.setdefault(found["name"], found.end("type") - len(written))
        if typed.setdefault(found["name"], written) != written:
            again.append((typed[found["name"]], found))
        # what stands behind it stays in its column
        return found["name"] + " " * len(found["type"])

    _plain(source)
    body = _TYPED.sub(name_of, text)
    for before, other in again:
        if "".join(before.split()) != "".join(other["type"].lstrip(" :").split()):
            raise error("E0306", f"`{other['name']}` is {before} already", Span(source, other.start(), other.end()))
    if not typed or not (_CALLED.search(body) or (several and body.strip() in typed)):
        hint = "for example `matmul(A: f32[64, 32], B: f32[32, 16])`"
        if text.strip().endswith(".onnx"):
            hint = "of a model the node is named: `--node NAME`"
        raise error("E0911", "this is no call of an operator with typed tensors", Span(source, 0, len(text)), hint=hint)
    params = ", ".join(f"{name}: {type}" for name, type in typed.items())
    outside = next(each for each in ("y", "z", "y_", "z_") if not any(name.startswith(each) for name in typed))
    results = ", ".join(f"{outside}{k}" for k in range(_results(rules, text) if several else 1))
    opening = f"dslc 1\n\noperator {PROGRAM}("
    head = f"{opening}{params}) -> {results} {{\n  {results} =\n"
    # where what stands in the program stands in the call: the call itself, and the types
    parts = [(len(head), 0, len(text))]
    at = len(opening)
    for name, type in typed.items():
        if name in starts:
            parts.append((at + len(name) + 2, starts[name], len(type)))
        at += len(name) + len(type) + 4
    try:
        graph = read_program(rules, f"{head}{body}\n}}\n", short=True)
    except Mismatch as problem:
        span = _moved(problem.span, source, parts) or Span(source, 0, len(text))
        raise error("E0306", problem.reason, span, hint=problem.hint) from None
    except DslcError as problem:
        # what is wrong with the text stands in the way of all that follows
        raise DslcError([_of_call(one, source, parts) for one in problem.diagnostics][:1]) from None
    if len(graph.outputs) != 1 and not several:
        raise error("E0911", "an expression of one result is derived", Span(source, 0, len(text)))
    return CallProgram(graph, tuple(typed))


def _plain(source: SourceText) -> None:
    """Raises DslcError where brackets do not match, a tensor has a reserved name, or a number is no size."""
    open_: list[int] = []
    for at, each in enumerate(source.text):
        if each in "{}":
            hint = "operators stand in files: `FILE.rules::NAME`"
            raise error("E0911", "a call has no braces", Span(source, at, at + 1), hint=hint)
        if each in "([":
            open_.append(at)
        elif each in ")]":
            if not open_:
                raise error("E0104", f"this `{each}` closes nothing", Span(source, at, at + 1))
            if source.text[open_.pop()] + each not in {"()", "[]"}:
                wanted = ")" if each == "]" else "]"
                raise error("E0104", f"`{each}` where `{wanted}` is needed", Span(source, at, at + 1))
    if open_:
        raise error("E0104", f"this `{source.text[open_[-1]]}` is not closed", Span(source, open_[-1], open_[-1] + 1))
    for found in _TYPED.finditer(source.text):
        if found["name"] in _RESERVED:
            span = Span(source, found.start("name"), found.end("name"))
            raise error(
                "E0205",
                f"`{found['name']}` is a reserved word and names nothing",
                span,
                hint="another name for the tensor",
            )
    for number in re.finditer(r"\d{19,}", source.text):
        if int(number[0]) >= 1 << 63:
            raise error(
                "E0329", f"{number[0]} does not fit 64 bits, as sizes and attributes must", Span(source, *number.span())
            )


def _results(rules: Rules, text: str) -> int:
    """The number of results that the outermost operator of a call declares."""
    name = text.partition("(")[0].strip()
    found = rules.operators.get(name) or rules.operators.get(f"std.{name}")
    others = [op for op in rules.operators.values() if op.short == name]
    chosen = found or (others[0] if others else None)
    return max(1, len(chosen.outputs)) if chosen else 1


def _of_call(problem: Diagnostic, source: SourceText, parts: Sequence[tuple[int, int, int]]) -> Diagnostic:
    """A finding in the program around a call as one in the call."""
    moved = [(each, _moved(each.span, source, parts)) for each in problem.secondary]
    labels = tuple(replace(each, span=span) for each, span in moved if span)
    begin, _, length = parts[0]
    if problem.code == "E0104" and labels and problem.span and problem.span.start >= begin + length:
        # what closes there is of the program around the call
        place = labels[0].span
        return replace(problem, code="E0103", message=f"this `{place.text}` is never closed", span=place, secondary=())
    return replace(
        problem, span=_moved(problem.span, source, parts) or Span(source, 0, len(source.text)), secondary=labels
    )


def _moved(span: Span | None, source: SourceText, parts: Sequence[tuple[int, int, int]]) -> Span | None:
    """A place of the whole text as one of the call's; None where it is none.

    `parts`: where they stand in the whole, where in the call, and how long they are; the first is the call itself, to the end.
    """
    if not span or span.source.path != "program":
        return None
    for k, (start, own, length) in enumerate(parts):
        if start <= span.start and (k == 0 or span.start <= start + length):
            last = own + length
            return Span(source, min(own + span.start - start, max(own, last - 1)), min(own + span.end - start, last))
    return None


def call_of(rules: Rules, name: str, sizes: Mapping[str, int]) -> CallProgram:
    """An operator on tensors of the types that it declares, its attributes at their defaults.

    Args:
        name: qualified, or short where one operator has it.
        sizes: of the sizes that its types name; a type without a name of a data type is f32.

    Raises:
        DslcError: E0909 for no such operator, E0911 where a size is missing or the types do not fit.
    """
    found = [op for full, op in rules.operators.items() if name in {full, op.short}]
    if len(found) != 1:
        raise error("E0909", f"{'several operators are' if found else 'no operator is'} named `{name}`")
    (op,) = found
    env = Env(op.module, rules)
    params = [param for param in op.params if not param.default]
    for param in params:
        if param.type:
            env.bind(param.type.name, DType.F32)
    for size, value in sizes.items():
        env.bind(size, value)
    try:
        types = [shape_of(param.type, env) for param in params if param.type]
        if len(types) < len(params):
            raise error("E0911", f"a parameter of `{op.short}` has no type", op.span)
        holes = tuple(hole(k, type) for k, type in enumerate(types))
        outputs = apply(rules, op, holes)
    except Unbound as unknown:
        raise error(
            "E0911", f"the size `{unknown.name}` of `{op.short}` is not known", unknown.span, hint="--bind NAME=N"
        ) from None
    except (Mismatch, EvalError) as problem:
        if isinstance(problem, DslcError):
            raise
        raise error("E0911", f"`{op.short}` cannot be applied at these sizes: {problem}", op.span) from None
    if len(outputs) != 1:
        raise error("E0911", "an expression of one result is derived", op.span)
    return CallProgram(Graph(holes, outputs), tuple(param.name for param in params))


def region_of(value: Value, leaves: Sequence[Value], names: Mapping[Value, str]) -> CallProgram:
    """A value of a graph as a call over what it is computed of; `names` are those of the leaves, where they have any."""
    graph, order = abstracted((value,), leaves)
    return CallProgram(graph, tuple(names.get(leaf) or f"h{k}" for k, leaf in enumerate(order)))
