"""Does a kernel that a library wrote compute what its nodes mean? It runs in a process of its own, and the interpreter says."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from typing import Any

import numpy as np
import onnx

from dslc.codegen.host.library import DOMAIN, Library
from dslc.codegen.text import KernelText
from dslc.cost.compare import Feeds, Reference, compare, ran
from dslc.cost.inputs import other_sizes
from dslc.cost.process import ModelFile, Worker, WorkerFailed
from dslc.deadline import Deadline, TimeUp
from dslc.errors import DslcError
from dslc.fuse.profile import WorkSizes
from dslc.interpret.floats import Floats
from dslc.interpret.run import InterpretError, run
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Graph, Values
from dslc.ir.scalar import Scalar, Sym, scalars
from dslc.onnx.context import bind_graph
from dslc.onnx.exporter import node_model
from dslc.onnx.inputs import AllOf, draw, ends_of, floating, input_specs, moved, placed, room
from dslc.onnx.microbenchmarks import kernel_model
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules

#: what unknown sizes are in turn: one, around the widths of vectors, and more than a block of a few
SIZES: tuple[int, ...] = (1, 3, 8, 17, 64, 33)
ELEMENTS = 1 << 20  #: elements of a tensor up to which the interpreter is asked
SECONDS = 10.0  #: seconds that all comparisons of one kernel may take

#: arrays for the inputs of a program, and those of its results
Drawn = tuple[list[Any], tuple[Any, ...]]


def wrong(
    rules: Rules, group: Graph, text: KernelText, library: Library, threads: int, opset: int, until: Deadline
) -> str:
    """Describe results of a kernel that its group does not mean; empty where nothing was found.

    Raises:
        TimeUp: there is no time to find out.
    """
    own = until.part(most=SECONDS)
    with Worker(threads, own) as worker:
        for static in _at_sizes(group, text):
            if until.over:
                raise TimeUp
            if own.over:
                break
            tried = drawn(rules, static, opset)
            if tried is None:
                continue
            arrays, meant = tried
            inputs, outputs = _types(static.inputs), _types(static.outputs)
            alone = onnx.ModelProto.FromString(kernel_model(DOMAIN, text.name, inputs, outputs))
            feeds = {each.name: array for each, array in zip(alone.graph.input, arrays, strict=True)}
            try:
                names = worker.load(ModelFile(alone.SerializeToString()), library=str(library.path))
                found = ran(worker, names, [feeds])
            except WorkerFailed as problem:
                if problem.late and until.over:
                    raise TimeUp from None
                return f"its kernel fails on {', '.join(map(str, inputs))}: {problem}"
            answer = compare(Reference(found.names, (meant,)), found)
            if not answer.same:
                return (
                    f"its kernel gives other numbers than its nodes on {', '.join(map(str, inputs))}: {answer.problem}"
                )
    return ""


def drawn(rules: Rules, static: Graph, opset: int) -> Drawn | None:
    """Arrays for a program, and what the interpreter makes of them; None for sizes or numbers that its nodes are not defined at."""
    try:
        model, _ = node_model(static.outputs, rules, opset, inputs=static.inputs, scopes=True)
        found = draw(input_specs(model, {})[0], 1)
        arrays = [found[each.name] for each in model.graph.input]
        return arrays, tuple(run(rules, static.outputs, dict(zip(static.inputs, arrays, strict=True)), Floats()))
    except (DslcError, Mismatch, EvalError, InterpretError, KeyError, ValueError):
        return None


def _at_sizes(group: Graph, text: KernelText) -> Iterator[Graph]:
    """The group at several sizes; as it is where it has none that is unknown, unless it is large."""
    if not text.sizes:
        if all(type.is_static and type.elements <= ELEMENTS for type in (*text.inputs, *text.outputs)):
            yield group
        return
    for turn in range(len(SIZES)):
        sizes = {sym.name: max(SIZES[(turn + k) % len(SIZES)], sym.least or 0) for k, sym in enumerate(text.sizes)}
        try:
            found = bind_graph(group, sizes)
        except (DslcError, Mismatch, EvalError, ValueError):
            continue
        if all(value.type.is_static and value.type.elements <= ELEMENTS for value in (*found.inputs, *found.outputs)):
            yield found


def _types(values: Values) -> list[TensorType]:
    return [value.type for value in values]


#: what arguments hold in a few places
STRANGE: tuple[float, ...] = (nan, inf, -inf, 6e4, -6e4, 100.0, -100.0, 0.0, -0.0)


def strange(drawn: Feeds) -> list[Feeds]:
    """Arguments that hold no numbers, infinities, zeros and some larger numbers in a few places, with ordinary ones around these."""
    return _placed(drawn, {array.dtype: np.array(STRANGE) for array in drawn.values()})


def edges(drawn: Feeds) -> list[Feeds]:
    """Arguments at the ends of their types: in a few places, and as a whole denormal, large, or with exponentials that are denormal."""
    types = {array.dtype for array in drawn.values() if floating(array)}
    if not types:
        return []
    out = _placed(drawn, {dtype: ends_of(dtype) for dtype in types})
    for kind in AllOf:
        out.append({name: moved(array, kind) if floating(array) else array for name, array in drawn.items()})
    return out


def at_other_sizes(program: Graph, measured: WorkSizes) -> Iterator[WorkSizes]:
    """Other numbers for the unknown sizes of a program."""
    dims = [dim for value in program.inputs for dim in value.type.shape if isinstance(dim, Scalar)]
    syms = {node.name: node for dim in dims for node in scalars(Sym, dim)}
    for sizes in other_sizes({name: measured.of(sym) for name, sym in syms.items()}):
        yield WorkSizes({name: max(size, syms[name].least or 0) for name, size in sizes.items()})


def _placed(drawn: Feeds, numbers: dict[Any, Any]) -> list[Feeds]:
    """Arguments with some of the numbers of their types in a few places, each of these somewhere in some of them."""
    floats = [array for array in drawn.values() if floating(array)]
    count = max((len(numbers[array.dtype]) for array in floats), default=len(STRANGE))
    least = min((room(array, count) for array in floats), default=count)
    return [
        {
            name: placed(array, np.roll(numbers[array.dtype], -turn)) if floating(array) else array
            for name, array in drawn.items()
        }
        for turn in range(0, count, least)
    ]
