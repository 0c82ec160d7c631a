"""TASO's five networks and two pieces of them, and those of EinNet's derivations, as ONNX models with seeded random weights.

    python -m benchmarks.zoo nasrnn -o nasrnn.onnx
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from onnx import ModelProto

from benchmarks.zoo.bert import bert
from benchmarks.zoo.dense import csrnet, gcn
from benchmarks.zoo.longformer import longformer
from benchmarks.zoo.nasnet import nasnet_a, nasnet_pools
from benchmarks.zoo.nasrnn import nasrnn, nasrnn_gates
from benchmarks.zoo.resnet import resnet18, resnet50, resnext50
from benchmarks.zoo.upscaling import dcgan, fsrcnn, infogan


@dataclass(frozen=True, slots=True)
class Entry:
    """How a network is built: its function, options of the entry, and those that make it small enough for a test."""

    model: Callable[..., ModelProto]
    small: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)


_FEW_BLOCKS = {"resolution": 32, "blocks": (1, 1, 1, 1), "classes": 10}
ENTRIES: Mapping[str, Entry] = {
    "resnet50": Entry(resnet50, {**_FEW_BLOCKS, "channels": 16}),
    "resnext50": Entry(resnext50, {**_FEW_BLOCKS, "channels": 32, "branches": 8}),
    "nasnet_a": Entry(nasnet_a, {"resolution": 32, "channels": 16, "stages": 2, "cells": 2}),
    "nasrnn": Entry(nasrnn, {"steps": 2, "hidden": 32}),
    "nasrnn_20": Entry(nasrnn, {"steps": 4, "hidden": 32}, {"steps": 20}),
    "bert": Entry(bert, {"layers": 2, "sequence": 16, "hidden": 64, "heads": 4, "inner": 128}),
    "nasnet_pools": Entry(nasnet_pools, {"channels": 16, "resolution": 8}),
    "nasrnn_gates": Entry(nasrnn_gates, {"hidden": 32}),
    "resnet18": Entry(resnet18, {**_FEW_BLOCKS, "channels": 8}),
    "dcgan": Entry(dcgan, {"latent": 8, "widths": (16, 8, 3)}),
    "infogan": Entry(infogan, {"batch": 2, "latent": 8, "widths": (16, 8, 3)}),
    "fsrcnn": Entry(fsrcnn, {"resolution": 8, "features": 8, "shrunk": 4, "mappings": 1}),
    "csrnet": Entry(csrnet, {"resolution": 7, "channels": 8, "widths": (8, 4)}),
    "csrnet_14": Entry(csrnet, {"resolution": 7, "channels": 8, "widths": (8, 4)}, {"resolution": 14}),
    "gcn": Entry(gcn, {"resolution": 8, "channels": 8, "classes": 3}),
    "longformer": Entry(longformer, {"length": 32, "hidden": 16, "heads": 2, "window": 8}),
}
NAMES = tuple(ENTRIES)


def build(name: str, *, small: bool = False, weights: bool = True, **options: Any) -> ModelProto:
    """A network by name, at the papers' shapes unless `small` or options say otherwise.

    Args:
        name: one of `NAMES` (`-` and `_` are one).
        small: few and narrow layers, for tests.
        weights: False leaves the weights out: they are inputs then, and nothing is drawn.
        options: those of the network's own function: sizes, `seed`.

    Raises:
        KeyError: for an unknown name; the message lists the known ones.
    """
    entry = ENTRIES.get(name.replace("-", "_"))
    if entry is None:
        raise KeyError(f"no network {name!r}; there are: {', '.join(NAMES)}")
    return entry.model(**{**entry.options, **(entry.small if small else {}), "weights": weights, **options})


__all__ = ["ENTRIES", "NAMES", "Entry", "build"]
