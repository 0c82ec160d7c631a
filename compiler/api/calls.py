"""Calls as users write them, an operator of a file, or a node of a model; and their operators as plain values."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dslc.api.models import Model, model_of, path_of
from dslc.codegen.host.compiler import SUFFIX, Compiler, NotBuilt, compiler, usual
from dslc.codegen.host.library import source as source_of
from dslc.codegen.host.processor import foreign, runnable
from dslc.codegen.host.processor import processor as level
from dslc.derivation.calls import CallProgram, call_of, read_call, region_of
from dslc.errors import DslcError, error
from dslc.inspection.describe import plain
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Call
from dslc.kernels import NONE, Kernels, prepared, said, texts_of
from dslc.onnx.importer import import_model
from dslc.onnx.protos import read_model
from dslc.search.options.types import Isa, PathLike
from dslc.semantics.library import Rules
from dslc.store import write_file

if TYPE_CHECKING:
    from onnx import ModelProto

# ---- calls and operators -------------------------------------------------------------------------------------------


def file_of_call(call: str) -> list[str]:
    """The file of `FILE.rules::NAME`, as one more library; none of another call."""
    file = call.rpartition("::")[0]
    return [file] if file.endswith(".rules") else []


def plain_calls(calls: Iterable[Call]) -> tuple[Mapping[str, Any], ...]:
    """Operators with attributes and shapes, for JSON."""
    return tuple(
        {
            "operator": node.op,
            "attributes": {name: plain(value) for name, value in node.attrs},
            "shapes": [[size if isinstance(size, int) else str(size) for size in arg.type.shape] for arg in node.args],
        }
        for node in calls
    )


def called_as(
    rules: Rules, call: str, node: str | None, binds: Mapping[str, int], known: Mapping[str, TensorType] | None = None,
    several: bool = False,
) -> CallProgram:  # fmt: skip
    """A call as it is written, an operator of a file (`FILE.rules::NAME`), or a node of a model.

    `known`, `several`: as for `read_call`.
    """
    if file_of_call(call):
        return call_of(rules, call.rpartition("::")[2], binds)
    if node is None:
        return read_call(rules, call, known, several)
    imported = import_model(call, rules, binds)
    names = imported.context.names
    for value, origin in imported.context.origins.items():
        if node in {origin.proto.name, names.get(value)} and value in origin.outputs:
            return region_of(value, [each for each in origin.inputs if each], names)
    for proto in imported.context.model.graph.node:
        if node and node in {proto.name, *proto.output}:
            why = f"no library has its {proto.op_type} as an operator, or it is folded away"
            hint = "`dslc show OPERATOR` prints the ONNX nodes that an operator stands for"
            raise error("E0911", f"the node `{node}` of {call} has no equation: {why}", hint=hint)
    raise error("E0909", f"{call} has no node that is named `{node}`", hint="the name of a node, or of its result")


# ---- kernels of a model --------------------------------------------------------------------------------------------


def build(
    model: Model, *, output: PathLike | None = None, isa: Isa | None = None, cache: PathLike | None = None
) -> Kernels:
    """Builds the kernels of a model that `optimize` made, so that `session` finds them.

    Args:
        output: also write the library there; `SessionOptions.register_custom_ops_library` of ONNX Runtime loads it.
        isa: the level of instructions that kernels are for; by default all that this machine can do.
        cache: the folder of the caches.

    Returns:
        `.library` (a path; None where the model has no kernels), `.names`, and `.missing`: those that run as plain nodes, with reasons.

    Raises:
        DslcError: E0815 where none could be built, E0817 where this machine has not the level, E0903 and E0908 for `output`.

    Example:
        >>> import dslc, onnx.parser
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
        >>> dslc.build(onnx.parser.parse_model(text)).names
        ()
    """
    source = model_of(model)
    proto = read_model(source)[0]
    target = None if output is None else path_of(output, "the output of build")
    if isinstance(source, Path) and target and target.exists() and os.path.samefile(target, source):
        raise error("E0908", f"{target} is the model itself", path=str(target))
    if not said(proto).functions:
        return NONE
    found = built(proto, target, None, isa, None if cache is None else path_of(cache, "a cache"))
    if not found.library:
        raise none_built(found, str(source) if isinstance(source, Path) else proto.graph.name or "the model", None)
    return found


def built(proto: ModelProto, output: Path | None, emit: Path | None, isa: str | None, cache: Path | None) -> Kernels:
    """Builds the kernels of a model, and writes their library and C++ where that is asked for.

    Raises:
        DslcError: E0817 where they are for this machine and it has not that level, E0903 for what cannot be written.
    """
    processor = level(isa or "")
    if not output and not emit:
        runnable(processor)
    if emit and (texts := texts_of(proto, processor=processor)[0]):
        try:
            used = compiler(processor)
        except NotBuilt:
            used = Compiler(usual(processor)[:1], "", processor)
        call = shlex.join(used.call(Path("kernels.cpp"), Path(f"kernels{SUFFIX}")))
        write_file(emit / "kernels.cpp", source_of(texts), parents=True)
        write_file(emit / "build.sh", f"#!/bin/sh\n{call}\n")
    found = prepared(proto, cache, processor=processor)
    if output and found.library:
        write_file(output, found.library.read_bytes(), parents=True)
    return found


def none_built(found: Kernels, model: str, isa: str | None) -> DslcError:
    """Return the error for a model that has kernels of which none could be built."""
    processor, hint = level(isa or ""), "it runs all the same"
    if foreign(processor):
        hint = f"kernels for {processor.architecture} take a cross compiler: {' or '.join(usual(processor))}, or what CXX names"
    return error(
        "E0815",
        f"no kernel of {model} could be built: {found.missing[0].detail or found.missing[0].why.value}",
        path=model,
        hint=hint,
    )
