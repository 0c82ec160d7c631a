"""The Python interface: what `dslc optimize` does, on models in memory or in files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dslc.search.option import documented, options, told
from dslc.search.settings import Settings

if TYPE_CHECKING:
    from onnx import ModelProto

    from dslc.prove.verdict import RuleVerdict
    from dslc.report import Report
    from dslc.search.pipeline import Optimized
    from dslc.semantics.library import Rules

    PathLike: TypeAlias = str | os.PathLike[str]


def optimize(
    model: PathLike | ModelProto,
    *,
    rules: PathLike | Sequence[PathLike] = (),
    trust: str | Sequence[str] = (),
    only: str | Sequence[str] = (),
    disable: str | Sequence[str] = (),
    allow: str | Sequence[str] = (),
    layouts: Literal["joint", "after", "only", "none"] = "joint",
    on: Literal["cpu", "ort_cpu", "cuda"] = "cpu",
    device: Literal["a100", "h100", "h200"] = "h100",
    library_only: bool = False,
    portable: Literal["functions", "inline"] = "functions",
    budget: float | str = 60.0,
    patience: float | str | None = None,
    alpha: float = 1.05,
    seed: int = 0,
    steps: int | None = None,
    tolerance: float | None = None,
    bind: Mapping[str, int | Sequence[int]] | None = None,
    inputs: PathLike | None = None,
    threads: int | None = None,
    timing: bool = True,
    derive: bool = True,
    mutate: bool = True,
    mutant_limit: float = 0.25,
    mutant_depth: int = 4,
    mutant_operators: int = 4,
    mutant_rounds: int = 4,
    mutants_kept: int = 32,
    strategy: str = "backtrack",
    file_growth: float = 0.1,
    specialize: bool = False,
    strict_floats: bool = False,
    cache: PathLike | None = None,
    **of_strategy: Any,
) -> Optimized:
    """A faster model with the same outputs, or the original.

    Args:
        model: a path, or a model whose external data (if any) lies relative to the working folder.
{options}

    Returns:
        `.model`, which refers to the same external data as the original, and `.report`.

    Raises:
        DslcError: with diagnostics, for a model, rules, inputs or options that are wrong.

    Example:
        >>> import dslc, onnx.parser
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { t = Identity(x) y = Relu(t) }'
        >>> result = dslc.optimize(onnx.parser.parse_model(text), budget=0)
        >>> [node.op_type for node in result.model.graph.node]
        ['Relu']
    """
    from dslc.errors import error
    from dslc.search.pipeline import optimize as run
    from dslc.search.settings import WrongOption, settings_of, strategy_options

    for name in of_strategy:
        if name not in strategy_options():
            raise TypeError(f"optimize() got an unexpected keyword argument {name!r}")
    given: dict[str, Any] = {
        "rules": rules, "only": only, "disable": disable, "allow": allow, "layouts": layouts, "on": on, "budget": budget,
        "patience": patience, "alpha": alpha, "seed": seed, "steps": steps, "tolerance": tolerance, "bind": bind, "inputs": inputs,
        "threads": threads, "timing": timing, "specialize": specialize, "strict_floats": strict_floats, "cache": cache,
        "derive": derive, "mutate": mutate, "device": device, "library_only": library_only, "portable": portable,
        "trust": trust, "file_growth": file_growth,
        "mutant_limit": mutant_limit, "mutant_depth": mutant_depth, "mutant_operators": mutant_operators,
        "mutant_rounds": mutant_rounds, "mutants_kept": mutants_kept, "strategy": strategy, **of_strategy,
    }  # fmt: skip
    try:
        settings = settings_of({name: value for name, value in given.items() if value is not None or name in _NEVER_NONE})
    except WrongOption as wrong:
        raise error("E0906", str(wrong), hint=f"`{wrong.name}`: {wrong.about.help}") from None
    return run(_model(model), settings)


def _path(given: Any, what: str) -> Path:
    """Raises DslcError E0906 for what is no path."""
    from dslc.errors import error

    if not isinstance(given, str | os.PathLike):
        raise error("E0906", f"{what} is a path, not {told(given)}")
    return Path(given)


def _model(given: Any) -> Path | ModelProto:
    """Raises DslcError E0906 for what is neither a path nor a model."""
    from onnx import ModelProto

    from dslc.errors import error

    if isinstance(given, ModelProto):
        return given
    if not isinstance(given, str | os.PathLike):
        hint = "onnx.load_model_from_string makes a model of bytes" if isinstance(given, bytes) else ""
        raise error("E0906", f"a model is a path or an onnx.ModelProto, not {told(given)}", hint=hint)
    return Path(given)


_NEVER_NONE = {one.name for one, _ in options(Settings) if one.default not in (None, ({},))}
optimize.__doc__ = (optimize.__doc__ or "").replace("{options}", documented(Settings))


def optimize_file(source: PathLike, output: PathLike, *, external_data: bool | None = None, **options: Any) -> Report:
    """`optimize` from file to file; what is written is complete or not there at all.

    Args:
        external_data: True writes larger weights to a file beside the model. Weights that are already in a file of the
            output's folder stay there.
        options: those of `optimize`.

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

    model, target = _path(source, "the source of optimize_file"), _path(output, "the output of optimize_file")
    if target.exists() and model.exists() and os.path.samefile(target, model):
        raise error("E0908", f"{target} is the input", path=str(target), hint="name another output")
    if not target.parent.is_dir():
        raise error("E0903", f"there is no folder {target.parent}", path=str(target), hint="nothing was done")
    result = optimize(model, **options)
    save(result.model, target, folder=model.parent, external_data=external_data)
    return result.report


def load(path_or_library: PathLike) -> Rules:
    """A rule library: `std`, an installed one's name, a folder, or a `.rules` file, with everything that it imports.

    Raises:
        DslcError: syntax errors, unknown names, circular imports.

    Example:
        >>> import dslc
        >>> rules = dslc.load("std")
        >>> rules.operator("matmul").name
        'std.matmul'
    """
    from dslc.semantics.library import load as run

    return run(path_or_library if isinstance(path_or_library, str) else _path(path_or_library, "a library's name, or a file of rules,"))


def verify(
    rules: PathLike | Sequence[PathLike] | Rules = "std",
    *,
    names: str | Sequence[str] | None = None,
    workers: int = 2,
    lock: bool = False,
) -> tuple[RuleVerdict, ...]:
    """What is known of the substitutions and laws of a library: proved, refuted with a counterexample, or neither and why.

    Args:
        rules: a library's name, a folder, a `.rules` file, several of these, or loaded rules.
        names: of the rules and laws that are meant (one, or several; default: all of what `rules` names), qualified or short.
        workers: processes; 0 proves in this one, without limits of time.
        lock: whether to read and write the `dslc.lock` beside each library.

    Raises:
        DslcError: E0909 for an unknown name, E0510 where the provers disagree.

    Example:
        >>> import dslc
        >>> [(one.rule, one.status) for one in dslc.verify("std", names=["double_neg"], workers=0)]
        [('std.double_neg', 'proved')]
    """
    from dslc.errors import error
    from dslc.prove.run.verify import chosen
    from dslc.prove.run.verify import verify as run
    from dslc.semantics.library import Rules as Loaded
    from dslc.semantics.library import load_many, modules_of

    if isinstance(rules, Loaded):
        loaded, inside = rules, chosen(rules, rules.modules)
    else:
        several = [rules] if not isinstance(rules, Sequence) or isinstance(rules, str) else rules
        listed = [str(_path(one, "a library's name, or a file of rules,")) for one in several]
        loaded = load_many(listed)
        inside = chosen(loaded, modules_of(loaded, listed))
    names = [names] if isinstance(names, str) else names
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
        raise error("E0906", f"{workers!r} is no number of processes")
    for name in names or ():
        if not any(name in (one, one.rpartition(".")[2]) for one in inside):
            raise error("E0909", f"no rule or law is named `{name}`")
    if names is not None:
        inside = [one for one in inside if one in names or one.rpartition(".")[2] in names]
    return run(loaded, inside, workers, "beside" if lock else None)


def session(model: PathLike | ModelProto, *, threads: int | None = None, **options: Any) -> Any:
    """An `onnxruntime.InferenceSession` on the CPU for a model file, or a model without external data, in which the kernels that dslc
    generated run; see `dslc.sessions.session`.

    Args:
        threads: of the runtime; by default as many as the file was timed with, else as many as ONNX Runtime takes (0).
        options: attributes of `onnxruntime.SessionOptions`.

    Raises:
        DslcError: E0811 where ONNX Runtime does not load the model, E0906 for what is no model or no number of threads.

    Example:
        >>> import dslc, numpy, onnx, onnx.parser, tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "model.onnx"
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
        >>> onnx.save(onnx.parser.parse_model(text), file)
        >>> dslc.session(file).run(None, {"x": numpy.array([-1, 2], numpy.float32)})[0].tolist()
        [0.0, 2.0]
    """
    from dslc.errors import error
    from dslc.sessions import session as run

    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 0):
        raise error("E0906", f"{threads!r} is no number of threads (0: as many as ONNX Runtime takes)")
    return run(model if isinstance(model, bytes) else _model(model), threads=threads, **options)


def register(options: Any, model: PathLike | ModelProto, *, library: PathLike | None = None) -> tuple[str, ...]:
    """Gives the kernels of a model to `onnxruntime.SessionOptions` of your own, and says which nodes they are.

    Args:
        library: one that `dslc build -o` wrote; by default the one in the cache, built where there is none.
    """
    from dslc.sessions import register as run

    given = model if isinstance(model, bytes) else _model(model)
    return run(options, given, library=None if library is None else _path(library, "a library of kernels")).names
