"""Metadata of kernels in a model: names that are part of the format of files. Imports nothing, since every worker asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto

#: of kernels' nodes and functions; the version of the domain
DOMAIN, VERSION = "dslc", 1
#: what an entry of a model's metadata begins with, before the name of an operator: what it computes, and which kernel was the fastest;
#: and the threads that a file was timed with
KEY, VARIANT, THREADS = "dslc.kernel.", "dslc.variant.", "dslc.threads"
#: the plan for a CUDA device (`dslc.cuda.plan`)
PLAN = "dslc.cuda.plan"


def metadata(model: ModelProto) -> dict[str, str]:
    """A model's metadata, as far as it is text."""
    return {
        entry.key: entry.value
        for entry in model.metadata_props
        if isinstance(entry.key, str) and isinstance(entry.value, str)
    }


def set_metadata(model: ModelProto, key: str, value: str) -> None:
    """Sets one entry of a model's metadata."""
    found = next((entry for entry in model.metadata_props if entry.key == key), None)
    if found is None:
        found = model.metadata_props.add()
        found.key = key
    found.value = value


def keep_metadata(model: ModelProto, kernels: set[str]) -> None:
    """Takes out what is said of kernels other than these."""

    def stays(key: str) -> bool:
        if key == THREADS:
            return bool(kernels)
        return not key.startswith((KEY, VARIANT)) or key.removeprefix(KEY).removeprefix(VARIANT) in kernels

    kept = [entry for entry in model.metadata_props if stays(entry.key)]
    if len(kept) < len(model.metadata_props):
        del model.metadata_props[:]
        model.metadata_props.extend(kept)
