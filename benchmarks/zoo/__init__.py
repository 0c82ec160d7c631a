"""Networks as ONNX models with seeded random weights: TASO's five and two pieces of them, those of EinNet's derivations, those that the
e-graph papers add, and newer blocks as exporters write them.

    python -m benchmarks.zoo nasrnn -o nasrnn.onnx
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from onnx import ModelProto

from benchmarks.zoo.bert import bert
from benchmarks.zoo.classic import inception_v3, squeezenet, vgg19
from benchmarks.zoo.convnext import convnext
from benchmarks.zoo.dense import csrnet, gcn
from benchmarks.zoo.llama import llama
from benchmarks.zoo.longformer import longformer, longformer_dilated
from benchmarks.zoo.mobilenet import mobilenet_v2
from benchmarks.zoo.nasnet import nasnet_a, nasnet_pools
from benchmarks.zoo.nasrnn import nasrnn, nasrnn_gates
from benchmarks.zoo.network import Weights
from benchmarks.zoo.resnet import resnet3d_18, resnet18, resnet50, resnext50
from benchmarks.zoo.transducer import transformer_transducer
from benchmarks.zoo.upscaling import dcgan, fsrcnn, infogan, style_transfer
from benchmarks.zoo.vit import vit


@dataclass(frozen=True, slots=True)
class Entry:
    """How a network is built: its function, options of the entry, and those that make it small enough for a test; and the sizes that
    its model leaves open, as it is measured."""

    model: Callable[..., ModelProto]
    small: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)


_FEW_LAYERS = {"resolution": 16, "patch": 8, "layers": 1, "hidden": 32, "heads": 4, "inner": 64, "classes": 10}
_LARGE = {"layers": 24, "hidden": 1024, "heads": 16, "inner": 4096}
_HUGE = {"patch": 14, "layers": 32, "hidden": 1280, "heads": 16, "inner": 5120}
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
    "resnet3d_18": Entry(resnet3d_18, {**_FEW_BLOCKS, "frames": 4, "channels": 8}),
    "dcgan": Entry(dcgan, {"latent": 8, "widths": (16, 8, 3)}),
    "infogan": Entry(infogan, {"batch": 2, "latent": 8, "widths": (16, 8, 3)}),
    "fsrcnn": Entry(fsrcnn, {"resolution": 8, "features": 8, "shrunk": 4, "mappings": 1}),
    "style_transfer": Entry(style_transfer, {"resolution": 16, "widths": (4, 8, 8), "blocks": 1}),
    "csrnet": Entry(csrnet, {"resolution": 7, "channels": 8, "widths": (8, 4)}),
    "csrnet_14": Entry(csrnet, {"resolution": 7, "channels": 8, "widths": (8, 4)}, {"resolution": 14}),
    "gcn": Entry(gcn, {"resolution": 8, "channels": 8, "classes": 3}),
    "longformer": Entry(longformer, {"length": 32, "hidden": 16, "heads": 2, "window": 8}),
    "longformer_dilated": Entry(longformer_dilated, {"length": 32, "hidden": 16, "heads": 2, "window": 4}),
    "squeezenet": Entry(squeezenet, {"resolution": 64, "narrow": 8, "classes": 10}),
    "vgg19": Entry(vgg19, {"resolution": 32, "narrow": 16, "inner": 16, "classes": 10}),
    "inception_v3": Entry(inception_v3, {"resolution": 75, "narrow": 16, "classes": 10}),
    "vit_base": Entry(vit, _FEW_LAYERS),
    "vit_large": Entry(vit, _FEW_LAYERS, _LARGE),
    "vit_huge": Entry(vit, _FEW_LAYERS, _HUGE),
    "mobilenet_v2": Entry(
        mobilenet_v2, {"resolution": 32, "stages": ((1, 8, 1, 1), (2, 8, 2, 2)), "last": 16, "classes": 10}
    ),
    "transformer_transducer": Entry(
        transformer_transducer,
        {"frames": 6, "labels": 3, "layers": (1, 1), "hidden": 32, "heads": 4, "inner": 64, "symbols": 10},
    ),
    "convnext": Entry(convnext, {"resolution": 32, "widths": (8, 16), "blocks": (1, 1), "classes": 10}),
    "llama": Entry(
        llama,
        {"batch": 2, "sequence": 6, "hidden": 32, "heads": 4, "shared": 2, "inner": 48},
        sizes={"batch": 1, "sequence": 128},
    ),
}
#: weights of so many bytes are written beside a model
LARGE = 256 << 20
NAMES = tuple(ENTRIES)


def build(name: str, *, small: bool = False, weights: Weights = True, **options: Any) -> ModelProto:
    """A network by name, at the papers' shapes unless `small` or options say otherwise.

    Args:
        name: one of `NAMES` (`-` and `_` are one).
        small: few and narrow layers, for tests.
        weights: False leaves the weights out: they are inputs then, and nothing is drawn. A path is the file, beside which the model
            will be, to which they are written one by one.
        options: those of the network's own function: sizes, `seed`.

    Raises:
        KeyError: for an unknown name; the message lists the known ones.
    """
    entry = ENTRIES.get(name.replace("-", "_"))
    if entry is None:
        raise KeyError(f"no network {name!r}; there are: {', '.join(NAMES)}")
    return entry.model(**{**entry.options, **(entry.small if small else {}), "weights": weights, **options})


def write(name: str, path: str | Path, *, external: bool | None = None, **options: Any) -> ModelProto:
    """A network as a file, and as a model without the weights that lie beside it.

    Args:
        name: as of `build`, and so are the other options.
        path: the file. Weights lie in `PATH.data` where they are `external`, by default where they are large; no two of them are in
            memory then.
    """
    target = Path(path)
    if external is None:
        bare = build(name, weights=False, **options)
        sizes = [[d.dim_value for d in one.type.tensor_type.shape.dim] for one in bare.graph.input]
        external = 4 * sum(map(prod, sizes)) > LARGE
    model = build(name, weights=target.with_name(f"{target.name}.data") if external else True, **options)
    target.write_bytes(model.SerializeToString())
    return model


__all__ = ["ENTRIES", "NAMES", "Entry", "build", "write"]
