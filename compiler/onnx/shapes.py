"""Models that give intermediate values as outputs, so that their sizes can be seen."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import ModelProto, helper

LARGEST = 1 << 30  #: bytes of a model that is copied for this


def with_outputs(model: ModelProto, names: Mapping[str, int]) -> bytes | None:
    """The model with more outputs, given by name and element type; None where it is too large to be copied."""
    if model.ByteSize() > LARGEST:
        return None
    out = ModelProto()
    out.CopyFrom(model)
    known = {value.name for value in out.graph.output}
    for name, elem_type in names.items():
        if name not in known:
            out.graph.output.append(helper.make_tensor_value_info(name, elem_type, None))
    data: bytes = out.SerializeToString()
    return data
