"""The Python interface: what `dslc optimize` does, on models in memory or in files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from onnx import ModelProto

    from dslc.prove.verdict import RuleVerdict
    from dslc.report import Report
    from dslc.search.optimize import Optimized
    from dslc.semantics.library import Rules

    PathLike: TypeAlias = str | os.PathLike[str]


def optimize(
    model: PathLike | ModelProto,
    *,
    rules: PathLike | Sequence[PathLike] = (),
    only: str | Sequence[str] = (),
    disable: str | Sequence[str] = (),
    allow: str | Sequence[str] = (),
    layouts: Literal["joint", "after", "only", "none"] = "joint",
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
    specialize: bool = False,
    strict_floats: bool = False,
    cache: PathLike | None = None,
) -> Optimized:
    """A faster model with the same outputs, or the original.

    Args:
        model: a path, or a model whose external data (if any) lies relative to the working folder.
        rules: more libraries or `.rules` files, beside the standard library.
        only: names of rule sets or rules, or one name: nothing else is used. By default each library's rule set `default`, and all
            rules of a library that has none.
        disable: names of rules that are not used, or one name.
        allow: statuses of rules that are used beside proved and bounded ones: `tested`, `trusted`, `undecided`. Whatever is used,
            the outputs are compared.
        layouts: when layouts are chosen: jointly with substitutions, after them, nothing else, or not at all.
        budget: seconds for everything together, also as a text (`"20s"`, `"2m"`). 0: import, canonical form, export, and nothing is
            measured.
        patience: seconds without a gain after which the search ends; by default a quarter of the budget.
        alpha: how much worse than the best a graph may be and still be explored.
        seed: 0 tries rules in the order of the files, other seeds in other orders.
        steps: stop after so many evaluated graphs, whatever time that takes.
        tolerance: largest relative error of an output; default by data type (1e-4 for float32, 1e-2 for float16).
        bind: sizes of symbolic dimensions by name or `INPUT.AXIS`, and values of integer inputs by name; a list of sizes means
            that the model must be slower at none of them.
        inputs: an `.npz` file or a folder of them; default: random inputs that are valid for the model.
        threads: threads of the runtime (default: one for each core).
        timing: False takes the search's choice, checked but not timed.
        specialize: write the bound sizes into the model.
        strict_floats: without rules that say that infinities, NaN, overflows or divisions by 0 may become something else.
        cache: folder of the cost cache.

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
    from dslc.search.optimize import optimize as run
    from dslc.search.settings import Settings, each_binding

    seconds, waited = _seconds(budget, "budget"), None if patience is None else _seconds(patience, "patience")
    listed = [rules] if isinstance(rules, str | os.PathLike) else list(rules)
    settings = Settings(
        rules=[str(rule) for rule in listed],
        only=_listed(only),
        disable=_listed(disable),
        allow=_statuses(allow),
        layouts=layouts,
        budget=seconds,
        patience=waited,
        alpha=alpha,
        seed=seed,
        steps=steps,
        tolerance=tolerance,
        bind=each_binding(bind or {}),
        inputs=None if inputs is None else str(inputs),
        threads=threads,
        timing=timing,
        specialize=specialize,
        strict_floats=strict_floats,
        cache=None if cache is None else str(cache),
    )
    return run(Path(model) if isinstance(model, str | os.PathLike) else model, settings)


def _listed(names: str | Sequence[str]) -> tuple[str, ...]:
    """One name, or several."""
    return (names,) if isinstance(names, str) else tuple(names)


def _seconds(time: float | str, option: str) -> float:
    """Raises DslcError E0906 for what is no time."""
    from dslc.errors import error
    from dslc.search.settings import seconds_of

    try:
        seconds = seconds_of(time) if isinstance(time, str) else float(time)
    except (ValueError, TypeError):
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise error("E0906", f"{time!r} is no time", hint=f'{option}=60.0, or "60s", "2m", "1h"')
    return seconds


def _statuses(allow: str | Sequence[str]) -> tuple[str, ...]:
    from dslc.errors import error
    from dslc.prove.verdict import STATUSES

    listed = _listed(allow)
    for status in listed:
        if status not in STATUSES or status == "refuted":
            raise error("E0906", f"{status!r} is no status that may be allowed", hint="tested, trusted or undecided")
    return listed


def optimize_file(source: PathLike, output: PathLike, *, external_data: bool | None = None, **options: Any) -> Report:
    """`optimize` from file to file; what is written is complete or not there at all.

    Args:
        external_data: True writes larger weights to a file beside the model. Weights that are already in a file of the
            output's folder stay there.
        options: those of `optimize`.

    Raises:
        DslcError: as `optimize`, and E0903 where the output cannot be written.

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
    from dslc.onnx.save import save

    result = optimize(source, **options)
    save(result.model, Path(output), folder=Path(source).parent, external_data=external_data)
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

    return run(path_or_library if isinstance(path_or_library, str) else Path(path_or_library))


def verify(
    rules: PathLike | Sequence[PathLike] | Rules = "std",
    *,
    names: Sequence[str] | None = None,
    workers: int = 2,
    lock: bool = False,
) -> tuple[RuleVerdict, ...]:
    """What is known of the substitutions and laws of a library: proved, refuted with a counterexample, or neither and why.

    Args:
        rules: a library's name, a folder, a `.rules` file, several of these, or loaded rules.
        names: of the rules and laws that are meant (default: all of what `rules` names), qualified or short.
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
    from dslc.prove.verify import chosen
    from dslc.prove.verify import verify as run
    from dslc.semantics.library import Rules as Loaded
    from dslc.semantics.library import load_many, modules_of

    if isinstance(rules, Loaded):
        loaded, inside = rules, chosen(rules, rules.modules)
    else:
        listed = [str(one) for one in ([rules] if isinstance(rules, str | os.PathLike) else rules)]
        loaded = load_many(listed)
        inside = chosen(loaded, modules_of(loaded, listed))
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
        DslcError: where ONNX Runtime does not load the model.

    Example:
        >>> import dslc, numpy, onnx, onnx.parser, tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "model.onnx"
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
        >>> onnx.save(onnx.parser.parse_model(text), file)
        >>> dslc.session(file).run(None, {"x": numpy.array([-1, 2], numpy.float32)})[0].tolist()
        [0.0, 2.0]
    """
    from dslc.sessions import session as run

    return run(model, threads=threads, **options)


def register(options: Any, model: PathLike | ModelProto, *, library: PathLike | None = None) -> tuple[str, ...]:
    """Gives the kernels of a model to `onnxruntime.SessionOptions` of your own, and says which nodes they are.

    Args:
        library: one that `dslc build -o` wrote; by default the one in the cache, built where there is none.
    """
    from dslc.sessions import register as run

    return run(options, model, library=library).names
