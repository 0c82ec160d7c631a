"""The parts of an original that can be run, where the runtime does not take it as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from onnx import ModelProto, ValueInfoProto

from dslc.onnx.context import OpaqueNode
from dslc.onnx.inlining import apart
from dslc.onnx.protos import value_info
from dslc.onnx.runtime import known_operators
from dslc.search.runs.stages import Task

#: a model as what of it is run
Cut = Callable[[ModelProto], ModelProto]


def parts(task: Task) -> Iterator[tuple[Cut, str]]:
    """Ways to leave out what the runtime does not know, and what there is to say of each.

    A result of unknown type is first assumed to be like the first operand of its node; failing that, what depends on it is left out.
    """
    names = task.imported.context.names
    types = {name: value_info(name, value.type) for value, name in names.items() if value.known}
    likely = dict(types)
    for value, name in names.items():
        like = next((arg.type for arg in value.node.args if arg.known), None)
        if name not in types and like is not None and isinstance(getattr(value.node, "payload", None), OpaqueNode):
            likely[name] = value_info(name, like)
    known = known_operators()
    for guess in (likely, types) if len(likely) > len(types) else (types,):
        _, unknown = apart(task.model, known, guess)
        less = (
            " and what is computed from results of unknown types" if guess is types and len(likely) > len(types) else ""
        )
        what = f"{', '.join(unknown)}{less}" if unknown else "nothing but names of nodes"
        yield (
            partial(_cut, known=known, types=guess),
            f"compared part by part: without {what}, which ONNX Runtime cannot run",
        )


def _cut(model: ModelProto, known: frozenset[tuple[str, str]], types: dict[str, ValueInfoProto]) -> ModelProto:
    return apart(model, known, types)[0]
