"""Models of PyTorch as ONNX models, where torch and onnxscript are installed; dslc needs neither."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import sys
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from onnx import ModelProto

from dslc.errors import DslcError, error

_EXPORT = (
    "torch.onnx.export(model, (x,), 'model.onnx', dynamo=True) writes an ONNX model; "
    "dslc.optimize(model, args=(x,)) takes a module"
)
#: PyTorch's variable that names what it reports; without it nothing but the cause of a failure is shown
_TALKS = "TORCH_LOGS"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
CAUSES = 20  #: exceptions of a chain that are looked at
#: what a pickle of PyTorch's begins with, before it wrote archives
_PICKLES = (b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46",)


def not_onnx(data: bytes, name: str) -> DslcError | None:
    """The error for a file that is PyTorch's; None for any other."""
    if not _is_pytorch(data):
        return None
    if name.endswith(".pt2"):
        hint = "`dslc optimize model.pt2 -o model.onnx` reads it, where PyTorch is installed"
        return error("E0801", f"{name} is a program of torch.export, not an ONNX model", path=name, hint=hint)
    return error("E0801", f"{name} is a PyTorch file, not an ONNX model", path=name, hint=_EXPORT)


def _is_pytorch(data: bytes) -> bool:
    if data.startswith(_PICKLES):
        return True
    if not data.startswith(b"PK"):
        return False
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile:
        return False
    ends = ("data.pkl", "archive_format", "serialized_exported_program.json", "/version", "archive_version")
    return any(name.endswith(ends) for name in names)


def is_program_file(source: object) -> TypeGuard[str | Path]:
    """Return whether this is the path of a program of torch.export."""
    return isinstance(source, str | Path) and Path(source).suffix == ".pt2"


def is_pytorch(given: object) -> bool:
    """Return whether this is a module or an exported program of PyTorch; torch is not imported to find out."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return False
    exported = getattr(getattr(torch, "export", None), "ExportedProgram", ())
    return isinstance(given, (torch.nn.Module, exported))


def from_file(path: str | Path) -> ModelProto:
    """The ONNX model of a `.pt2` file, which PyTorch reads.

    Raises:
        DslcError: E0902 no such file, E0907 without torch or onnxscript, E0801 where PyTorch cannot read or write it.
    """
    path = Path(path)
    try:
        with path.open("rb"):
            pass
    except OSError as problem:
        raise error("E0902", f"cannot read {path}: {problem.strerror or problem}", path=str(path)) from None
    torch = _torch()
    try:
        program = torch.export.load(path)
    except Exception as problem:  # PyTorch raises many kinds, none of them documented
        raise error("E0801", f"PyTorch cannot read {path}: {_first(problem)}", path=str(path)) from problem
    return _written(torch, program, (), str(path))


def from_module(given: Any, args: Sequence[Any] | None = None) -> ModelProto:
    """The ONNX model of a module, called with `args` as it is exported, or of an exported program, which needs none.

    Raises:
        DslcError: E0906 for a module without arguments, E0907 without onnxscript, E0801 where PyTorch cannot export it.
    """
    torch = _torch()
    name = type(given).__name__
    if isinstance(given, torch.nn.Module):
        if args is None:
            raise error(
                "E0906",
                f"{name} is a module: how it is called says what is exported",
                hint="dslc.optimize(module, args=(x,))",
            )
        if given.training:
            # dropout and batch statistics are none of what is optimized
            given.eval()
            try:
                return _written(torch, given, tuple(args), name)
            finally:
                given.train()
        return _written(torch, given, tuple(args), name)
    return _written(torch, given, (), name)


def inputs_of(model: ModelProto, args: Sequence[Any]) -> dict[str, Any] | None:
    """The tensors of a call as inputs of the exported model; None where they are not one for one."""
    if len(args) != len(model.graph.input):
        return None
    arrays = [each.detach().cpu().numpy() if hasattr(each, "detach") else None for each in args]
    if any(array is None for array in arrays):
        return None
    return {value.name: array for value, array in zip(model.graph.input, arrays, strict=True)}


def _torch() -> Any:
    from importlib import import_module

    for name in ("torch", "onnxscript"):
        try:
            import_module(name)
        except ImportError as problem:
            why = f"PyTorch's exporter needs `{name}`, which is not installed" if problem.name == name else str(problem)
            raise error("E0907", why, hint="`pip install torch onnxscript`; dslc itself needs neither") from None
    import_module("torch.onnx")
    return import_module("torch")


def _written(torch: Any, program: Any, args: tuple[Any, ...], name: str) -> ModelProto:
    try:
        with _silent():
            found = torch.onnx.export(program, args, dynamo=True, verbose=False)
    except Exception as problem:  # as above
        hint = f"{_TALKS}=+export shows all that PyTorch reports"
        raise error("E0801", f"PyTorch cannot export {name} to ONNX: {_first(problem)}", hint=hint) from problem
    model = found.model_proto
    assert isinstance(model, ModelProto)
    return model


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Nothing of what the exporter says on its way (of packages that it does not find, of what it will do some day)."""
    if _TALKS in os.environ:
        yield
        return
    logger, ignored = logging.getLogger("torch"), io.StringIO()
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with contextlib.redirect_stdout(ignored), contextlib.redirect_stderr(ignored), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _first(problem: BaseException) -> str:
    """The first line of the deepest cause that says something, without colours."""
    text, cause = type(problem).__name__, problem
    for _ in range(CAUSES):
        text = next((line.strip() for line in _COLOUR.sub("", str(cause)).splitlines() if line.strip()), text)
        cause = cause.__cause__ or cause
    return text
