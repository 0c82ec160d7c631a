"""Rules in Python: load, check, test and prove them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from dslc.api.arguments import libraries_of, names_of, path_of, whole
from dslc.checking.fixes import Checked, checked
from dslc.checking.rule_tests import run_tests
from dslc.diagnostics.render import render
from dslc.errors import Diagnostic, error
from dslc.interpret.check_rule import CaseOutcome
from dslc.prove.run.verify import chosen
from dslc.prove.run.verify import verify as prove
from dslc.prove.verdict import RuleVerdict
from dslc.search.options.types import PathLike
from dslc.semantics.library import Rules, load_many, modules_of
from dslc.semantics.library import load as load_library


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
    name = path_or_library
    return load_library(name if isinstance(name, str) else path_of(name, "a library's name, or a file of rules,"))


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
    return checked(libraries_of(rules), bool(overlaps))


@dataclass(frozen=True, slots=True)
class Tested:
    """Outcomes of the tests and examples of rule files, and of their laws and rules at random sizes; `seconds` for all of them."""

    outcomes: tuple[CaseOutcome, ...]
    seconds: float

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Reasons why some failed."""
        return tuple(one for outcome in self.outcomes for one in outcome.diagnostics)

    @property
    def failed(self) -> tuple[CaseOutcome, ...]:
        return tuple(outcome for outcome in self.outcomes if not outcome.passed)

    @property
    def ok(self) -> bool:
        """True where all passed."""
        return not self.failed

    @property
    def summary(self) -> str:
        """`12 passed, 1 failed in 0.3 s`."""
        return f"{len(self.outcomes) - len(self.failed)} passed, {len(self.failed)} failed in {self.seconds:.1f} s"

    def __repr__(self) -> str:
        return f"<Tested: {self.summary}>"

    def __str__(self) -> str:
        return "\n".join([*([render(self.diagnostics, "full")] if self.diagnostics else []), self.summary])


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
    listed, patterns = libraries_of(rules), names_of(names, "what is run")
    known, start = load_many(listed), time.perf_counter()
    outcomes = run_tests(
        known, patterns or None, modules_of(known, listed), whole(seed, "seed"), whole(trials, "number of trials")
    )
    if patterns and not outcomes:
        raise error("E0909", f"nothing is named {', '.join(patterns)}", exit_code=2)
    return Tested(tuple(outcomes), time.perf_counter() - start)


# this is a command, not a test
test.__test__ = False  # type: ignore[attr-defined]


def verify(
    rules: PathLike | Sequence[PathLike] | Rules = "std",
    *,
    names: str | Sequence[str] | None = None,
    workers: int = 2,
    lock: bool = False,
) -> tuple[RuleVerdict, ...]:
    """Proves the substitutions and laws of a library: each is proved, refuted with a counterexample, or neither, with the reason.

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
    if isinstance(rules, Rules):
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
    return prove(loaded, inside, workers, "beside" if lock else None)
