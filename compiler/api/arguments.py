"""Arguments in Python, as values that the commands take; mistakes in them are diagnostics."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from onnx import ModelProto

from dslc.errors import DslcError, error
from dslc.ir.dtype import DTYPES
from dslc.search.options.option import told
from dslc.search.options.types import PathLike

#: a file, or a model in memory: as bytes of a file, or as ONNX's protobuf
Model: TypeAlias = PathLike | bytes | ModelProto


class TorchModule(Protocol):
    """A `torch.nn.Module`, as far as a type checker need know it where PyTorch is not installed."""

    training: bool

    def forward(self, *args: Any, **kwargs: Any) -> Any: ...
    def state_dict(self) -> Any: ...


class TorchProgram(Protocol):
    """A `torch.export.ExportedProgram`, likewise."""

    @property
    def graph_signature(self) -> Any: ...
    def module(self) -> Any: ...


def wrong(text: str, hint: str = "") -> DslcError:
    """E0906: a value that an argument cannot have."""
    return error("E0906", text, hint=hint)


def path_of(given: Any, what: str) -> Path:
    """Raises DslcError E0906 for what is no path."""
    if not isinstance(given, str | os.PathLike):
        raise wrong(f"{what} is a path, not {told(given)}")
    return Path(given)


def model_of(given: Any) -> Path | ModelProto:
    """Raises DslcError E0906 for what is neither a path nor a model, E0801 for bytes that are none."""
    from dslc.onnx.protos import parsed
    from dslc.onnx.pytorch import is_pytorch

    if isinstance(given, ModelProto):
        return given
    if isinstance(given, bytes | bytearray | memoryview):
        return parsed(bytes(given), "the model")
    if is_pytorch(given):
        raise wrong(
            f"{type(given).__name__} is PyTorch's",
            hint="`dslc.optimize(module, args=(x,))` takes it, and gives an ONNX model",
        )
    if not isinstance(given, str | os.PathLike):
        raise wrong(f"a model is a path, bytes or an onnx.ModelProto, not {told(given)}")
    return Path(given)


@contextmanager
def file_of(given: Any) -> Iterator[Path]:
    """The file of a model: its own, or a temporary one of a model in memory."""
    from tempfile import TemporaryDirectory

    model = model_of(given)
    if isinstance(model, Path):
        yield model
        return
    with TemporaryDirectory(prefix="dslc-") as folder:
        path = Path(folder) / f"{model.graph.name or 'model'}.onnx".replace("/", "_")
        path.write_bytes(model.SerializeToString())
        yield path


def libraries_of(given: Any) -> list[str]:
    """One library, file or folder, or several, as the command line names them."""
    several = [given] if isinstance(given, str | os.PathLike) else given
    if not isinstance(several, Sequence):
        raise wrong(f"rules are a library's name or a path, or several, not {told(given)}")
    return [str(path_of(one, "a library's name, or a file of rules,")) for one in several]


def names_of(given: Any, what: str) -> tuple[str, ...]:
    """One name, or several."""
    several = (given,) if isinstance(given, str) else given
    if not isinstance(several, Sequence) or not all(isinstance(one, str) for one in several):
        raise wrong(f"{what} is a name, or several, not {told(given)}")
    return tuple(several)


def sizes_of(bind: Mapping[str, int] | None) -> dict[str, int]:
    """Sizes of dimensions by name, one each."""
    from dslc.search.options.settings import each_binding

    try:
        found = each_binding(bind or {})
    except (ValueError, AttributeError) as problem:
        raise wrong(str(problem)) from None
    if len(found) > 1:
        raise wrong("several sizes are for `dslc.optimize`; give one here")
    return found[0]


def whole(value: Any, what: str, least: int = 0) -> int:
    """A whole number that is not too small."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise wrong(f"{told(value)} is no {what}")
    return value


def seconds_of(time: Any) -> float:
    """Seconds as a number, or a time as a text (`20s`)."""
    from dslc.search.options.settings import seconds

    try:
        return seconds(time)
    except ValueError as problem:
        raise wrong(str(problem)) from None


def shape_value(text: str) -> tuple[int, ...]:
    """`1,64,56,56`, `1x64x56x56` or `[1, 64]` as sizes; raises ValueError."""
    return tuple(int(part) for part in text.strip("[]() ").replace("x", ",").split(",") if part.strip())


def attribute_value(text: str) -> Any:
    """An attribute as one would write it in a rule: numbers, lists, true, names of element types; else a string."""
    text = text.strip()
    if text.startswith("[") or "," in text:
        return tuple(attribute_value(part) for part in text.strip("[]").split(",") if part.strip())
    if text in {"true", "false"}:
        return text == "true"
    if text in DTYPES:
        return DTYPES[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip('"')
