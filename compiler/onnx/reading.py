"""A model read for its inputs only."""

from __future__ import annotations

from pathlib import Path

import onnx

from dslc.onnx.protos import read_model


def read_for_inputs(source: str | Path | onnx.ModelProto) -> onnx.ModelProto:
    """The model, its external data left where they are; raises DslcError where the file is no model."""
    model: onnx.ModelProto = read_model(source)[0]
    return model
