"""Models in Python: what `dslc optimize`, `build`, `bench` and `why-not` do, on models in memory or in files, and sessions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Unpack

from onnx import ModelProto

from dslc.errors import DslcError, error
from dslc.ir.dtype import DTYPES
from dslc.search.options.option import documented, options, told
from dslc.search.options.settings import Settings
from dslc.search.options.types import Isa, Options, PathLike, SessionOptions

if TYPE_CHECKING:
    from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession
    from onnxruntime.capi.onnxruntime_pybind11_state import SessionOptions as OrtOptions

    from dslc.report import Report
    from dslc.search.runs.stages import Optimized

# ---- arguments -----------------------------------------------------------------------------------------------------

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
    return [
        one if isinstance(one, str) else str(path_of(one, "a library's name, or a file of rules,")) for one in several
    ]


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


# ---- optimize, sessions --------------------------------------------------------------------------------------------


def optimize(
    model: Model | TorchModule | TorchProgram,
    *,
    args: Sequence[Any] | None = None,
    **options: Unpack[Options],
) -> Optimized:
    """A faster model with the same outputs, or the original.

    Args:
        model: a path; the bytes of a file, or a model, whose external data (if any) lies relative to the working folder; or what
            PyTorch has, where it is installed: a module, an exported program, or the path of one (`.pt2`).
        args: what a module of PyTorch is called with, for its export; also the representative inputs, where there are no others.
        {options}

    Returns:
        `.model`, which refers to the same external data as the original, and `.report` (times in milliseconds).

    Raises:
        DslcError: with diagnostics, for a model, rules, inputs or options that are wrong.

    Example:
        >>> import dslc, onnx.parser
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { t = Identity(x) y = Relu(t) }'
        >>> result = dslc.optimize(onnx.parser.parse_model(text), budget=0)
        >>> [node.op_type for node in result.model.graph.node]
        ['Relu']
    """
    from dslc.search.options.settings import WrongOption, settings_of
    from dslc.search.pipeline import optimize as run

    given: dict[str, Any] = {**options}
    for name in given:
        if name not in Options.__annotations__:
            raise TypeError(f"optimize() got an unexpected keyword argument {name!r}")
    source, called = _source(model, args)
    if given.get("inputs") is None:
        given["inputs"] = called
    try:
        settings = settings_of(
            {name: value for name, value in given.items() if value is not None or name in _NEVER_NONE}
        )
    except WrongOption as wrong_option:
        raise wrong(str(wrong_option), hint=f"`{wrong_option.name}`: {wrong_option.about.help}") from None
    return run(source, settings)


def _source(model: Any, args: Sequence[Any] | None) -> tuple[Path | ModelProto, dict[str, Any] | None]:
    """The model to optimize, and the arguments of a module as its inputs."""
    from dslc.onnx.pytorch import from_module, inputs_of, is_pytorch

    if not is_pytorch(model):
        if args is not None:
            raise wrong("`args` is for modules of PyTorch", hint="`inputs={'x': array}` gives representative inputs")
        return model_of(model), None
    if args is not None and not isinstance(args, Sequence):
        raise wrong("the arguments of a module are a tuple", hint="dslc.optimize(module, args=(x,))")
    found = from_module(model, args)
    return found, None if args is None else inputs_of(found, args)


_NEVER_NONE = {one.name for one, _ in options(Settings) if one.default not in (None, ({},))}
optimize.__doc__ = (optimize.__doc__ or "").replace("{options}", documented(Settings).strip())


def _signature() -> Signature:
    """The signature that `help` and editors show: every option of `Settings` with its type and what it is by itself."""
    known = signature(optimize)
    own = [each for each in known.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
    for one, about in options(Settings):
        if about.python:
            default = one.default if about.shown is None else about.shown
            type = Options.__annotations__[one.name].__forward_arg__
            own.append(
                Parameter(
                    one.name, Parameter.KEYWORD_ONLY, default=None if default == ({},) else default, annotation=type
                )
            )
    rest = Parameter("of_strategy", Parameter.VAR_KEYWORD, annotation="Unpack[StrategyOptions]")
    return known.replace(parameters=[*own, rest])


optimize.__signature__ = _signature()  # type: ignore[attr-defined]


def optimize_file(
    source: PathLike, output: PathLike, *, external_data: bool | None = None, **options: Unpack[Options]
) -> Report:
    """`optimize` from file to file; what is written is complete or not there at all.

    Args:
        external_data: True writes larger weights to a file beside the model. Weights that are already in a file of the
            output's folder stay there.
        options: those of `optimize`.

    Returns:
        The report; whether the original was kept is in `.kept_original`.

    Raises:
        DslcError: as `optimize`, E0903 where the output cannot be written, and E0908 where it is the input.

    Example:
        >>> import dslc, onnx, onnx.parser, tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
        >>> onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")
        >>> dslc.optimize_file(folder / "model.onnx", folder / "fast.onnx", budget=0).kept_original
        False
        >>> [node.op_type for node in onnx.load(folder / "fast.onnx").graph.node]
        ['Relu']
    """
    from dslc.errors import error
    from dslc.onnx.save import save

    model, target = path_of(source, "the source of optimize_file"), path_of(output, "the output of optimize_file")
    if target.exists() and model.exists() and os.path.samefile(target, model):
        raise error("E0908", f"{target} is the input", path=str(target), hint="name another output")
    if not target.parent.is_dir():
        raise error("E0903", f"there is no folder {target.parent}", path=str(target))
    result = optimize(model, **options)
    save(result.model, target, folder=model.parent, external_data=external_data)
    return result.report


def session(
    model: Model, *, threads: int | None = None, isa: Isa | None = None, **options: Unpack[SessionOptions]
) -> InferenceSession:
    """An `onnxruntime.InferenceSession` on the CPU in which the kernels that dslc generated run; see `dslc.sessions.session`.

    The model is a file, or one without external data.

    Args:
        threads: of the runtime; by default as many as the file was timed with, else as many as ONNX Runtime takes (0).
        isa: the level of instructions that kernels are for; by default `DSLC_ISA`, else all that this machine can do.
        options: attributes of `onnxruntime.SessionOptions`.

    Returns:
        A session; its `run` takes all sizes that the model takes.

    Raises:
        DslcError: E0811 where ONNX Runtime does not load the model, E0906 for what is no model or no number of threads.
        TypeError: an option that `SessionOptions` does not have.

    Example:
        >>> import dslc, numpy, onnx, onnx.parser, tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "model.onnx"
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
        >>> onnx.save(onnx.parser.parse_model(text), file)
        >>> dslc.session(file).run(None, {"x": numpy.array([-1, 2], numpy.float32)})[0].tolist()
        [0.0, 2.0]
    """
    from dslc.sessions import session as run

    if threads is not None:
        whole(threads, "number of threads (0: as many as ONNX Runtime takes)")
    found: InferenceSession = run(
        model if isinstance(model, bytes) else model_of(model), threads=threads, isa=isa, **options
    )
    return found


def register(
    options: OrtOptions, model: Model, *, library: PathLike | None = None, isa: Isa | None = None
) -> tuple[str, ...]:
    """Gives the kernels of a model to `onnxruntime.SessionOptions` of your own.

    Args:
        options: of the session that is to run the model.
        library: one that `dslc build -o` or `dslc.build` wrote; by default the one in the cache, built where there is none.
        isa: the level of instructions that kernels are for; by default `DSLC_ISA`, else all that this machine can do.

    Returns:
        The names of the nodes that run as kernels.

    Raises:
        DslcError: E0906 for what is no model, E0817 where this machine has not that level.
    """
    from dslc.sessions import register as run

    given = model if isinstance(model, bytes) else model_of(model)
    return run(
        options, given, library=None if library is None else path_of(library, "a library of kernels"), isa=isa
    ).names
