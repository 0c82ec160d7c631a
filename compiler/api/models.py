"""Models in Python: what `dslc optimize`, `build`, `bench` and `why-not` do, on models in memory or in files, and sessions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from dslc.api.given import (
    Model,
    TorchModule,
    TorchProgram,
    file_of,
    libraries_of,
    model_of,
    path_of,
    seconds_of,
    sizes_of,
    whole,
    wrong,
)  # fmt: skip
from dslc.search.options.option import documented, options
from dslc.search.options.settings import Settings
from dslc.search.options.types import (
    InputsLike,
    Isa,
    Options,
    PathLike,
    SessionOptions,
)  # fmt: skip

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession
    from onnxruntime.capi.onnxruntime_pybind11_state import SessionOptions as OrtOptions

    from dslc.cli.bench import Benched
    from dslc.cli.why_not import WhyNot
    from dslc.cost.inputs import Given
    from dslc.kernels import Kernels
    from dslc.report import Report
    from dslc.search.runs.stages import Optimized


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
    """What is optimized, and the arguments of a module as its inputs."""
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
optimize.__doc__ = (optimize.__doc__ or "").replace("{options}", documented(Settings))


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
        raise error("E0903", f"there is no folder {target.parent}", path=str(target), hint="nothing was done")
    result = optimize(model, **options)
    save(result.model, target, folder=model.parent, external_data=external_data)
    return result.report


def session(
    model: Model, *, threads: int | None = None, isa: Isa | None = None, **options: Unpack[SessionOptions]
) -> InferenceSession:
    """An `onnxruntime.InferenceSession` on the CPU for a model file, or a model without external data, in which the kernels that dslc
    generated run; see `dslc.sessions.session`.

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
    from dslc.cli.build import built, none_built
    from dslc.errors import error
    from dslc.kernels import NONE, said
    from dslc.onnx.reading import read_for_inputs

    source = model_of(model)
    proto = read_for_inputs(source)
    target = None if output is None else path_of(output, "the output of build")
    if isinstance(source, Path) and target is not None and target.exists() and os.path.samefile(target, source):
        raise error("E0908", f"{target} is the model itself", path=str(target))
    if not said(proto).functions:
        return NONE
    found = built(proto, target, None, isa, None if cache is None else path_of(cache, "a cache"))
    if found.library is None:
        raise none_built(found, str(source) if isinstance(source, Path) else proto.graph.name or "the model")
    return found


def bench(
    first: Model,
    second: Model,
    *,
    bind: Mapping[str, int] | None = None,
    inputs: InputsLike | None = None,
    threads: int | None = None,
    isa: Isa | None = None,
    budget: float | str = "20s",
) -> Benched:
    """Two models timed interleaved on the same inputs.

    Args:
        bind: sizes of symbolic dimensions by name or `INPUT.AXIS`.
        inputs: an `.npz` file or a folder of them, or arrays by the names of inputs; by default random ones that are valid.
        threads: of the runtime; by default one for each core.
        isa: the level of instructions that kernels are for.
        budget: the longest time to measure; seconds, or a text.

    Returns:
        `.ratio`, how many times as fast the second is with its 95 % interval, `.verdict` in words, and `.timings` in seconds.

    Raises:
        DslcError: E0810 for inputs that do not fit, E0906 for wrong arguments, and for what is no model or does not run.
    """
    from dslc.cli.bench import benched
    from dslc.search.options.option import read_inputs

    try:
        given: Given | None = None if inputs is None else read_inputs(inputs)
    except ValueError as problem:
        raise wrong(str(problem)) from None
    count = None if threads is None else whole(threads, "number of threads", 1)
    with file_of(first) as one, file_of(second) as other:
        return benched(one, other, sizes_of(bind), given, count, isa, seconds_of(budget))


def why_not(
    rule: str,
    model: Model,
    *,
    rules: PathLike | Sequence[PathLike] = (),
    bind: Mapping[str, int] | None = None,
    steps: int = 2,
    trust_lock: bool = False,
) -> tuple[WhyNot, ...]:
    """Why a rule does not apply to a model: the best partial match, and the first thing that failed.

    Args:
        rule: its name, qualified or short; `RULE^-1` is only the reverse of a two-way rule.
        rules: libraries beside std.
        bind: sizes of symbolic dimensions by name.
        steps: other rules, at most 2, that may come before it so that it applies.
        trust_lock: believe what a `dslc.lock` says of unchanged rules, whoever wrote it.

    Returns:
        One for each direction that is looked for: `.applies` counts places, `.explanation` has the best partial match and the reason,
        `.after` the rules that could come before, `.obstacles` what keeps `optimize` from using it where it applies.

    Raises:
        DslcError: E0909 for what is no rule, and for what is wrong with the model.

    Example:
        >>> import dslc, onnx.parser
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
        >>> [found.applies for found in dslc.why_not("double_neg", onnx.parser.parse_model(text), steps=0)]
        [0]
    """
    from dslc.cli.why_not import why_nots

    if whole(steps, "number of rules") > 2:
        raise wrong(f"{steps} is no number of rules before another: 0, 1 or 2")
    return tuple(why_nots(rule, model_of(model), libraries_of(rules), sizes_of(bind), steps, trust_lock))
