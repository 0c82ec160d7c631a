"""Settings of a run: every option once, for the command line and for Python."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, get_args

from dslc.codegen.host.processor import NAMES
from dslc.cost.inputs import Given
from dslc.cost.targets import Target, target_named
from dslc.records import record
from dslc.search.options.option import LayoutMode, Option, count, listed, option, options, read_inputs, told
from dslc.search.options.strategies import STRATEGIES, Backtrack, Strategy
from dslc.semantics.targets import DEFAULT, TARGETS

#: how what ONNX has no node for is written: as functions that a library of kernels may stand for, or as the nodes of these functions
Portable = Literal["functions", "inline"]
#: statuses of rules that may be allowed; those of the first two are used anyway
ALLOWED = ("proved", "bounded", "tested", "trusted", "undecided")

#: the budget of whoever names none
AUTO = "auto"

_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|min|h)?")
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, None: 1.0}


def seconds_of(text: str) -> float:
    """`90`, `90s`, `1.5m`, `2h` as seconds; raises ValueError."""
    found = _TIME.fullmatch(text.strip().lower())
    if not found:
        raise ValueError(f"{text!r} is no time; write 60s, 2m or 1h")
    return float(found.group(1)) * _UNITS[found.group(2)]


def seconds(time: float | str) -> float:
    """Seconds as a number, or a time as a text; raises ValueError."""
    try:
        found = seconds_of(time) if isinstance(time, str) else -1.0 if isinstance(time, bool) else float(time)
    except TypeError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise ValueError(f"{time!r} is no time; write 60s, 2m or 1h")
    return found


def _part(share: float) -> float:
    """A share of something that is more than nothing; raises ValueError."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise ValueError(f"{share!r} is no share: more than 0, and at most 1")
    return float(share)


def _paths(given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    return tuple(os.fspath(one) for one in ([given] if isinstance(given, str | os.PathLike) else given))


def _applied(given: bool | str | Sequence[str] | None) -> tuple[str, ...] | None:
    """`"simplify,mine"` as names; nothing for True or an empty text, which mean what is applied by default; raises ValueError."""
    if given is None or given is False:
        return None
    texts = () if given is True else listed(given)
    return tuple(dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip()))


def _statuses(given: str | Sequence[str]) -> tuple[str, ...]:
    """`["tested,trusted"]` as statuses; raises ValueError."""
    found = tuple(dict.fromkeys(status.strip() for text in listed(given) for status in text.split(",")))
    for status in found:
        if status not in ALLOWED:
            raise ValueError(f"{status!r} is none of tested, trusted and undecided")
    return found


def bindings(given: Mapping[str, int | Sequence[int]] | Sequence[str]) -> list[dict[str, int]]:
    """`{"N": [1, 8]}`, or `["N=1,8"]`, as one dictionary for each position of the lists; a single size goes with all of them.

    Raises ValueError for what is no `NAME=N`, and for lists of different lengths.
    """
    if isinstance(given, Mapping):
        return each_binding(given)
    sizes: dict[str, int | Sequence[int]] = {}
    for text in listed(given):
        name, equals, values = text.rpartition("=")
        try:
            numbers = [int(value) for value in values.split(",")]
        except ValueError:
            numbers = []
        if not equals or not name or not numbers or min(numbers) < 0:
            raise ValueError(f"{text!r} is no NAME=N")
        if max(numbers) >= 2**63:
            raise ValueError(f"{text!r} does not fit 64 bits, as sizes must")
        if name.strip() in sizes:
            raise ValueError(f"{name.strip()} is bound twice; several sizes are written {name.strip()}=1,8")
        sizes[name.strip()] = numbers
    return each_binding(sizes)


def each_binding(bind: Mapping[str, int | Sequence[int]]) -> list[dict[str, int]]:
    """One dictionary for each position of the lists of sizes; a single size goes with all of them.

    Raises ValueError for lists of different lengths, and for what is no size.
    """
    sizes: dict[str, list[int]] = {}
    for name, value in bind.items():
        if not isinstance(name, str):
            raise ValueError(f"{name!r} is no name of a dimension")
        several = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
        sizes[name] = [_size(name, one) for one in several]
        if not sizes[name]:
            raise ValueError(f"{name} is bound to no size")
    count = max((len(each) for each in sizes.values()), default=1)
    for name, each in sizes.items():
        if len(each) not in (1, count):
            raise ValueError(f"{name} has {len(each)} sizes where another has {count}")
    return [{name: each[k % len(each)] for name, each in sizes.items()} for k in range(count)]


def _size(name: str, given: Any) -> int:
    """A size of whatever type of whole numbers; raises ValueError."""
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise ValueError(f"{given!r} is no size of {name}, which is a whole number, or a list of them")
    if int(given) >= 2**63:
        raise ValueError(f"{given!r} does not fit 64 bits, as sizes must")
    return int(given)


@record
class Progress:
    """Callbacks that show progress: a phase by name, steps done, and how many times as fast the best so far is."""

    phase: Callable[[str], None] = lambda _: None
    step: Callable[[int], None] = lambda _: None
    best: Callable[[float, int], None] = lambda _ratio, _steps: None


@record
class Settings:
    """Options of a run, and where it tells what it does."""

    rules: Sequence[str | Path] = option(
        (), "Also use the rules of this library or .rules file; may be repeated.", metavar="LIB", many=True, read=_paths,
        more="One, or several, beside the standard library.",
    )  # fmt: skip
    on: str | Target = option(
        DEFAULT, "Where the model will run; `dslc list targets` describes each.", choices=tuple(TARGETS), shown=DEFAULT,
        more="`cpu` writes kernels into the model where they were measured to be faster; `ort_cpu` does not. `cuda` writes a plan for "
        "`dslc.cuda.Session`, priced by the data sheet of `device`; `cpu_sheet` is another processor, by two numbers. Or a target of "
        "your own (`dslc.cost.targets.Target`).",
    )  # fmt: skip
    bind: Sequence[Mapping[str, int]] = option(
        ({},), "Size of a symbolic dimension, or INPUT.AXIS=N; N=1,8 for several sizes.", metavar="NAME=N", many=True, read=bindings,
        more="Sizes of symbolic dimensions by name or `INPUT.AXIS`, and values of integer inputs by name. With a list of sizes, the "
        "result must be slower at none of them.",
    )  # fmt: skip
    budget: float = option(
        60.0, "Time limit of the whole command (auto: 60s, or 0 with --apply); 0 only rewrites, without timing.", metavar="TIME",
        shown=AUTO, read=seconds,
        more='Seconds, or a text (`"20s"`, `"2m"`). `"auto"`: 60 s, and 0 with `apply`. 0: import, canonical form, export, and nothing '
        "is measured.",
    )  # fmt: skip
    apply: Sequence[str] | None = option(
        None, "Apply rules wherever they match, without timing: the named ones, or `simplify`.", metavar="[NAME,...]", read=_applied,
        bare="",
        more="True: the standard library's rule set `simplify`, and what other libraries say `always` of; or names of rule sets and "
        "rules. Nothing is timed unless a budget is given, too: then the search goes on from there.",
    )  # fmt: skip
    specialize: bool = option(False, "Write the sizes given by --bind into the model.", type=bool, group="Output")
    file_growth: float = option(
        0.1, "How much larger the weights may get by precomputing what depends on weights alone.", type=float, metavar="SHARE",
        least=0, shown=0.1,
        more="What depends on weights alone and would make the file larger than that (8-bit weights, scaled) is left as nodes, which "
        "runtimes compute when they load it.",
    )  # fmt: skip
    trust: Sequence[str] = option(
        (), "Let the kernel templates of this library run as code; may be repeated.", metavar="LIB", many=True, read=listed,
        group="Rules",
        more="The names of libraries whose lowerings' templates are compiled and run on this machine. By default only dslc's own are.",
    )  # fmt: skip
    trust_lock: bool = option(
        False, "Accept the proofs recorded in a dslc.lock, whoever wrote it.", type=bool,
        more="By default only dslc's own locks are, and what this user's runs have proved; all other rules are proved again.",
    )  # fmt: skip
    only: Sequence[str] = option(
        (), "Use only this rule set, rule or pattern; may be repeated.", metavar="RULESET", many=True, read=listed,
        more="One name, or several. By default each library's rule set `default`, and all rules of a library that has none.",
    )  # fmt: skip
    disable: Sequence[str] = option(
        (), "Leave out a rule; may be repeated.", metavar="RULE", many=True, read=listed,
        more="One name, or several.",
    )  # fmt: skip
    allow: Sequence[str] = option(
        (), "Also use rules that are only tested, trusted or undecided; a,b for several.", metavar="STATUS", many=True, read=_statuses,
        more="The outputs are compared in any case.",
    )  # fmt: skip
    strict_floats: bool = option(
        False, "Leave out rules that may change infinities, NaN or overflows.", type=bool,
        more="These are the rules that declare that infinities, NaN, overflows or divisions by 0 may become something else.",
    )  # fmt: skip
    patience: float | None = option(
        None, "Stop searching after this long without a gain (default: a quarter of the budget).", metavar="TIME", read=seconds,
        group="Timing",
    )  # fmt: skip
    timing: bool = option(
        True, "Take the search's choice without timing it.", type=bool,
        more="False takes the search's choice, checked but not timed.",
    )  # fmt: skip
    threads: int | None = count(
        None, "Threads of the runtime (default: one per core).",
        more="By default one for each core.",
    )  # fmt: skip
    inputs: Given | None = option(
        None, "Representative inputs (default: random).", type=Path, metavar="FILE.npz|DIR", read=read_inputs,
        more='An `.npz` file or a folder of them, or arrays by the names of inputs (`{"x": array}`), one set or a list of sets; by '
        "default random ones that are valid for the model.",
    )  # fmt: skip
    tolerance: float | None = option(
        None, "Largest relative error allowed in an output (default: by data type).", type=float, least=0, metavar="E",
        more="1e-4 for float32, 1e-2 for float16.",
    )  # fmt: skip
    cache: str | Path | None = option(
        None, "Folder of cached costs and timings.", type=Path, metavar="DIR", read=os.fspath,
    )  # fmt: skip
    device: str | None = option(
        None, "Device whose data sheet gives the prices, where --on measures nothing.", metavar="NAME", group="Target",
        more="`dslc list targets` has the names; by default the first one of the target. Nothing is measured.",
    )  # fmt: skip
    isa: str | None = option(
        None, "Write kernels for this instruction set, not for all that this machine supports.", choices=NAMES,
        more="`x86-64-v3` is what most machines have (AVX2 and FMA). `DSLC_ISA` is the default, and `native` without it.",
    )  # fmt: skip
    library_only: bool = option(
        False, "Accept a model that needs its kernel library to be faster than the original.", type=bool,
        more="By default a result is also no slower than the original in a runtime without its library of kernels: that is "
        "measured, and the report has both ratios.",
    )  # fmt: skip
    portable: Portable = option(
        "functions", "How operators without an ONNX node are written: as functions, which kernels can replace, or inlined.",
        choices=get_args(Portable), shown="functions", more="`inline` writes plain nodes and no kernels.",
    )  # fmt: skip
    layouts: LayoutMode = option(
        "joint", "Choose layouts together with rules, after them, instead of them, or not at all.", choices=get_args(LayoutMode),
        shown="joint", group="Search", more="`joint`, `after`, `only` or `none`.",
    )  # fmt: skip
    derive: bool = option(
        True, "Don't derive programs from the equations of operators.", type=bool,
        more="Programs are derived for sums of products that take much of the time; False: only rules and kernels.",
    )  # fmt: skip
    strategy: Strategy = option(
        Backtrack(), "Search algorithm; `dslc list strategies` describes each.", choices=tuple(STRATEGIES),
        shown=next(iter(STRATEGIES)), also=("--search",),
        more="`backtrack`, `saturate`, `mcts` or `auto`; a strategy's own options (`simulations=64`) go with it.",
    )  # fmt: skip
    steps: int | None = count(
        None, "Stop after this many steps of the search.", least=0,
        more="However long that takes.",
    )  # fmt: skip
    alpha: float = option(
        1.05, "Explore graphs up to this many times as slow as the best one.", type=float, least=1, shown=1.05, metavar="A",
        more="As predicted.",
    )  # fmt: skip
    seed: int = option(
        0, "Order in which rules are tried.", type=int, shown=0, metavar="N",
        more="0: that of the files; other seeds: other orders.",
    )  # fmt: skip
    dump_egraph: Path | None = option(
        None, "Write the search's e-graph, for `dslc extract`.", type=Path, metavar="FILE.json", python=False,
    )  # fmt: skip
    mutate: bool = option(
        True, "Don't search for mutants (almost equal programs, each with a correction).", type=bool, group="Mutants",
        more="Mutants are looked for of linear operators that take much of the time; False: none, and no partial substitutions.",
    )  # fmt: skip
    mutant_limit: float = option(
        0.25, "Largest share of a result that a correction may recompute.", type=float, metavar="SHARE", shown=0.25, read=_part,
        more="More than 0 and at most 1; a partial substitution's own `limit` holds for it.",
    )  # fmt: skip
    mutant_depth: int = count(
        4, "Largest number of operators and layout changes in a mutant.", shown=4,
    )  # fmt: skip
    mutant_operators: int = count(
        4, "Largest number of operators that one mutant replaces.", shown=4,
    )  # fmt: skip
    mutant_rounds: int = count(
        4, "How many times a mutated program may be mutated again.", shown=4,
    )  # fmt: skip
    mutants_kept: int = count(
        32, "Mutants kept per group of operators, cheapest first.", shown=32,
        more="The search goes on from as many after each step of a chain of operators.",
    )  # fmt: skip
    progress: Progress = field(default_factory=Progress)
    #: how often Ctrl-C was pressed, where someone counts: libraries in C may turn the exception into an error of their own
    interrupts: Callable[[], int] = lambda: 0
    #: whether the report says what a page shows (`dslc.report.Details`); how the run was started
    detailed: bool = False
    command: str = ""

    def target(self) -> Target:
        """Return the target of the model. Raises DslcError E0909 for a device that the target does not know."""
        return (
            target_named(self.on, self.device, self.threads, tuple(self.trust)) if isinstance(self.on, str) else self.on
        )


class WrongOption(ValueError):
    """A value that an option cannot have."""

    def __init__(self, name: str, about: Option, problem: str) -> None:
        super().__init__(problem)
        self.name, self.about = name, about


def strategy_options() -> dict[str, Option]:
    """The options that some strategy has beside those of every run."""
    return {one.name: about for strategy in STRATEGIES.values() for one, about in options(strategy)}


def switched_on() -> frozenset[str]:
    """Return those of them that are on by themselves, so that the command line turns them off."""
    return frozenset(
        one.name for strategy in STRATEGIES.values() for one, _ in options(strategy) if one.default is True
    )


def settings_of(given: Mapping[str, Any]) -> Settings:
    """Settings of what was given by name, as texts of a command line or as values of Python; what is not given is at its default.

    `strategy` is a name, or a strategy; its own options are among the given ones.

    Raises:
        WrongOption: for a value that an option cannot have, or an option that the strategy does not have.
    """
    values: dict[str, Any] = {}
    known = dict(options_by_name(Settings))
    for name, value in given.items():
        if name in known and name != "strategy" and not (name == "budget" and value == AUTO):
            # a target of one's own is one already
            values[name] = value if name == "on" and hasattr(value, "lowerings") else _value(name, known[name], value)
    if values.get("apply") is not None:
        values.setdefault("budget", 0.0)
    wanted = given.get("strategy")
    if isinstance(wanted, str) or not hasattr(wanted, "explore"):
        name = next(iter(STRATEGIES)) if wanted is None else wanted.lower() if isinstance(wanted, str) else ""
        if name not in STRATEGIES:
            raise WrongOption("strategy", known["strategy"], f"{told(wanted)} is none of {', '.join(STRATEGIES)}")
        own = options_by_name(STRATEGIES[name])
        for other, about in strategy_options().items():
            if other in given and other not in own:
                having = " and ".join(each for each, one in STRATEGIES.items() if other in options_by_name(one))
                raise WrongOption(other, about, f"the strategy {name} has no such option; {having} has it")
        chosen = {one: _value(one, about, given[one]) for one, about in own.items() if one in given}
        values["strategy"] = STRATEGIES[name](**chosen)
        if values.get("dump_egraph") is not None and not STRATEGIES[name].egraphs:
            raise WrongOption("dump_egraph", known["dump_egraph"], f"the strategy {name} makes no e-graph")
    else:
        values["strategy"] = wanted
    return Settings(**values)


def options_by_name(of: type) -> dict[str, Option]:
    """Return the options of a dataclass by the names of its fields."""
    return {one.name: about for one, about in options(of)}


def _value(name: str, about: Option, given: Any) -> Any:
    try:
        return about.value(given)
    except ValueError as problem:
        raise WrongOption(name, about, str(problem)) from None
