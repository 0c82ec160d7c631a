"""Rules in Python: load, check, test, prove, and ask what operators are, where programs differ, what can be derived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.api.given import libraries_of, names_of, path_of, seconds_of, sizes_of, whole, wrong
from dslc.search.options.types import PathLike

if TYPE_CHECKING:
    from dslc.cli.check import Checked
    from dslc.cli.derive import DerivedPrograms
    from dslc.cli.diff import Compared
    from dslc.cli.mutants import FoundMutants
    from dslc.cli.show import Shown
    from dslc.cli.test import Tested
    from dslc.prove.verdict import RuleVerdict
    from dslc.semantics.library import Rules


def load(path_or_library: PathLike) -> Rules:
    """A rule library: `std`, an installed one's name, a folder, or a `.rules` file, with everything that it imports.

    Returns:
        Its operators, rules and laws by qualified name.

    Raises:
        DslcError: syntax errors, unknown names, circular imports.

    Example:
        >>> import dslc
        >>> rules = dslc.load("std")
        >>> rules.operator("matmul").name
        'std.matmul'
    """
    from dslc.semantics.library import load as run

    name = path_or_library
    return run(name if isinstance(name, str) else path_of(name, "a library's name, or a file of rules,"))


def check(rules: PathLike | Sequence[PathLike], *, overlaps: bool = False) -> Checked:
    """The mistakes in rule files and libraries that can be found without running them.

    Args:
        rules: a library's name, a folder, a `.rules` file, or several of these.
        overlaps: also rules that match the same graphs.

    Returns:
        `.ok`, `.diagnostics` with codes and places, `.files`; its text is what `dslc check` prints. Mistakes are not raised.

    Raises:
        DslcError: E0902 or E0203 where there is no such file or library.

    Example:
        >>> import dslc
        >>> dslc.check("taso").ok
        True
    """
    from dslc.cli.check import checked

    return checked(libraries_of(rules), bool(overlaps))


def test(
    rules: PathLike | Sequence[PathLike] = "std", *, names: str | Sequence[str] = (), trials: int = 3, seed: int = 0
) -> Tested:
    """Runs the `test` and `example` blocks of rule files, and compares both sides of their rules and laws at random sizes.

    Args:
        rules: a library's name, a folder, a `.rules` file, or several of these.
        names: of what to run, patterns (`conv*`) among them; by default everything.
        trials: random instances of each rule and law, modulo 2147483647; 0 leaves them out.
        seed: of the random instances.

    Returns:
        `.ok`, `.outcomes` in the order of the files, `.diagnostics` of those that failed, `.seconds`.

    Raises:
        DslcError: E0909 where nothing has such a name, and as `load`.

    Example:
        >>> import dslc
        >>> dslc.test("std", names="relu").ok
        True
    """
    from dslc.cli.test import tested

    patterns = names_of(names, "what is run")
    return tested(libraries_of(rules), patterns, whole(trials, "number of trials"), whole(seed, "seed"))


# this is a command, not a test
test.__test__ = False  # type: ignore[attr-defined]


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

    Returns:
        A verdict for each, with `.rule`, `.status`, `.reason`, each prover's answer in `.verdicts`, and `.counterexample`.

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
        listed = libraries_of(rules)
        loaded = load_many(listed)
        inside = chosen(loaded, modules_of(loaded, listed))
    names = [names] if isinstance(names, str) else names
    whole(workers, "number of processes")
    for name in names or ():
        if not any(name in (one, one.rpartition(".")[2]) for one in inside):
            raise error("E0909", f"no rule or law is named `{name}`")
    if names is not None:
        inside = [one for one in inside if one in names or one.rpartition(".")[2] in names]
    return run(loaded, inside, workers, "beside" if lock else None)


def show(
    operator: str,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    attributes: Mapping[str, Any] | None = None,
    dtypes: Mapping[str, str] | None = None,
    rules: PathLike | Sequence[PathLike] = (),
) -> Shown:
    """What follows from an operator's equation: shapes, linearity, iterators, boxes, costs, ONNX clauses.

    Args:
        operator: its name, qualified or short.
        shapes: of its parameters, by name; small ones that fit are found for the others.
        attributes: values by name.
        dtypes: element types (`f16`) by type variable.
        rules: libraries that have it, in the place of std.

    Returns:
        `.facts`, plain values (FLOPs and bytes are counts); its text is what `dslc show` prints.

    Raises:
        DslcError: E0201 for no operator, E0306 for shapes and attributes that do not fit it, E0906 for what is none.

    Example:
        >>> import dslc
        >>> dslc.show("matmul", shapes={"A": [2, 3], "B": [3, 4]}).facts["flops"]
        48
    """
    from click import UsageError

    from dslc.cli.show import operator_facts
    from dslc.ir.dtype import DTYPES

    types = {}
    for name, one in (dtypes or {}).items():
        if one not in DTYPES:
            raise wrong(f"{one!r} is no element type; one of {', '.join(DTYPES)}")
        types[name] = DTYPES[one]
    sizes = {name: tuple(whole(size, f"size of {name}") for size in shape) for name, shape in (shapes or {}).items()}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in (attributes or {}).items()}
    try:
        return operator_facts(operator, sizes, values, types, libraries_of(rules))
    except UsageError as problem:
        raise wrong(problem.message) from None


def diff(
    first: str,
    second: str | None = None,
    *,
    rules: PathLike | Sequence[PathLike] = (),
    shapes: Mapping[str, Sequence[int]] | None = None,
    bind: Mapping[str, Any] | None = None,
    nodes: str | Sequence[str] = (),
    pieces: int = 1000,
    timeout: float | str = "10s",
    seed: int = 0,
) -> Compared:
    """The positions at which two programs differ, found modulo a prime and proved where that is decided.

    Args:
        first: a rule, of which both sides are compared; or a call, `"conv(X: f32[1, 8, 14, 14], K: f32[8, 8, 3, 3])"`.
        second: another call over the same tensors; where `first` is a rule, none.
        rules: libraries beside std.
        shapes: of a rule's parameters, by name; what is not said is drawn.
        bind: sizes by name, and of a rule attributes.
        nodes: where calls are models, the node of each.
        pieces: the most boxes that a set may have.
        timeout: for the exact prover; seconds, or a text.
        seed: of what is drawn.

    Returns:
        `.equal`, and for each output the boxes in which it differs, the share that they are, and whether that is proved.

    Raises:
        DslcError: E0911 and others for wrong calls, E0606 to E0608 where programs are not compared.

    Example:
        >>> import dslc
        >>> dslc.diff("relu(X: f32[4])", "relu(relu(X))").equal
        True
    """
    from dslc.cli.diff import compared

    programs = (first,) if second is None else (first, second)
    names_of(programs, "a program")
    # of two calls only sizes are bound
    bound = dict(bind or {}) if second is None else sizes_of(bind)
    given = [f"{name}={_text(value)}" for name, value in bound.items()]
    dims = [
        f"{name}={','.join(str(whole(size, f'size of {name}')) for size in shape)}"
        for name, shape in (shapes or {}).items()
    ]
    return compared(
        programs, libraries_of(rules), dims, given, names_of(nodes, "a node"), whole(pieces, "number of boxes", 1), seconds_of(timeout),
        whole(seed, "seed"),
    )  # fmt: skip


def _text(value: Any) -> str:
    """A value as the command line writes it."""
    if isinstance(value, list | tuple):
        return "[" + ",".join(_text(one) for one in value) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def derive(
    call: str,
    *,
    rules: PathLike | Sequence[PathLike] = (),
    default_rules: bool = True,
    targets: str | Sequence[str] = (),
    on: str | Sequence[str] = (),
    node: str | None = None,
    bind: Mapping[str, int] | None = None,
    max_depth: int = 7,
    intensity: float = 4.0,
    budget: float | str = "35s",
    max_states: int | None = None,
    every: bool = False,
    output: PathLike | None = None,
    program: int = 1,
    measure: bool = False,
) -> DerivedPrograms:
    """Programs that a call can be computed by, each with its derivation and a proof that it is equal for all inputs.

    Args:
        call: `"conv(X: f32[1, 8, 7, 7], K: f32[8, 8, 3, 3])"`, `FILE.rules::NAME`, or a model with `node`.
        rules: libraries with derivations beside EinNet's.
        default_rules: whether EinNet's are used.
        targets: only programs of these operators, or lowerings.
        on: with the lowerings of expressions on these devices.
        node: where `call` is a model, the name of a node or its result.
        bind: sizes of symbolic dimensions by name.
        max_depth: derivations in a row.
        intensity: operations per element of a generated operator.
        budget: for search and proofs; seconds, or a text.
        max_states: expressions to look at, however long that takes.
        every: all programs, not the ten best.
        output: a file that the program of the number `program` is written to, as a model with its kernels.
        measure: whether programs and the call are measured on this machine; then the fastest come first.

    Returns:
        `.programs`, the cheapest first by estimated milliseconds; `.missed` says why a target has none.

    Raises:
        DslcError: E0909 for unknown names and for no program to write, E0911 and others for wrong calls.

    Example:
        >>> import dslc
        >>> found = dslc.derive("matmul(A: f32[4, 5], B: f32[5, 6])", budget=5, max_states=50, max_depth=2)
        >>> all(one.proved for one in found.programs)
        True
    """
    from dslc.cli.derive import derivations_of
    from dslc.semantics.targets import RUNNING

    devices = names_of(on, "a device")
    for one in devices:
        if one not in RUNNING:
            raise wrong(f"{one!r} is none of {', '.join(RUNNING)}")
    return derivations_of(
        call, libraries=libraries_of(rules), alone=not default_rules, targets=names_of(targets, "a target"), devices=devices,
        node=node, bind=sizes_of(bind), max_depth=whole(max_depth, "depth"), intensity=float(intensity), budget=seconds_of(budget),
        max_states=None if max_states is None else whole(max_states, "number of expressions", 1), every=bool(every),
        output=None if output is None else path_of(output, "an output"), program=whole(program, "number of a program", 1),
        measure=bool(measure),
    )  # fmt: skip


def mutants(
    call: str,
    *,
    rules: PathLike | Sequence[PathLike] = (),
    node: str | None = None,
    bind: Mapping[str, int] | None = None,
    depth: int = 4,
    limit: float = 0.25,
    budget: float | str = "20s",
    every: bool = False,
) -> FoundMutants:
    """Programs that compute almost what a call does, where they differ, and how they are corrected.

    Args:
        call: `"conv(X: f32[1, 8, 8, 8], K: f32[8, 8, 3, 3])"`, `FILE.rules::NAME`, or a model with `node`.
        rules: libraries with partial substitutions.
        node: where `call` is a model, the name of a node or its result.
        bind: sizes of symbolic dimensions by name.
        depth: operators and changes of layout of a mutant.
        limit: the share of the result that may be computed again.
        budget: for search and proofs; seconds, or a text.
        every: all mutants, not the ten best.

    Returns:
        `.mutants`, the cheapest corrected ones first by estimated milliseconds, then those that are not corrected.

    Raises:
        DslcError: E0911 and others for wrong calls, regions that are not linear, and unknown sizes.

    Example:
        >>> import dslc
        >>> found = dslc.mutants("conv(X: f32[1, 2, 4, 4], K: f32[2, 2, 3, 3], dilation=[2, 2], pads=[2, 2, 2, 2])", budget=8)
        >>> found.mutants[0].share
        0.0
    """
    from dslc.cli.mutants import mutants_of

    return mutants_of(
        call, libraries=libraries_of(rules), node=node, bind=sizes_of(bind), depth=whole(depth, "depth", 1), limit=float(limit),
        budget=seconds_of(budget), every=bool(every),
    )  # fmt: skip
