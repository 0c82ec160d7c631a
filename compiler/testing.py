"""Rule files as tests of pytest: every `test`, `example`, `property` and `substitution` is an item with its own failure text.

pytest loads this module in every project that has dslc installed (entry point `pytest11`), so it imports nothing of dslc until it
meets a rule file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dslc.checking.rule_tests import StatedCase
    from dslc.checking.verification import Verification
    from dslc.errors import Diagnostic
    from dslc.syntax import tree as t

#: the first statement of a rule file, behind comments: other programs have files of this suffix, too (udev, for one)
_HEADER = re.compile(r"\A\ufeff?(?:\s|#[^\n]*)*dslc\b")


HEAD = 65536  #: characters in which the header is looked for


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options `--dslc-*` and the setting `dslc_files`."""
    group = parser.getgroup("dslc", "rule files of dslc")
    group.addoption("--dslc-verify", action="store_true", help="prove the rules and laws of rule files, too")
    group.addoption(
        "--dslc-require",
        choices=("proved", "bounded"),
        help="with --dslc-verify: fail where a rule or law is less than this",
    )
    group.addoption(
        "--dslc-trials", type=int, default=3, metavar="N", help="random instances of each rule and law (3; 0: none)"
    )
    group.addoption("--dslc-seed", type=int, default=0, metavar="N", help="seed of the random instances (0)")
    parser.addini("dslc_files", "rule files that are tests", type="args", default=["tests/*.rules", "*_test.rules"])


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> RuleFile | None:
    """A rule file where it is named on the command line, or its name is one of `dslc_files` and it begins as rule files do."""
    if file_path.suffix != ".rules":
        return None
    if not parent.session.isinitpath(file_path):
        if not any(file_path.match(pattern) for pattern in parent.config.getini("dslc_files")):
            return None
        try:
            with file_path.open(encoding="utf-8", errors="replace") as file:
                if not _HEADER.match(file.read(HEAD)):
                    return None
        except OSError:
            return None
    made: RuleFile = RuleFile.from_parent(parent, path=file_path)
    return made


def _rendered(findings: Sequence[Diagnostic]) -> str:
    from dslc.diagnostics.render import render

    return render(findings, "full").rstrip()


class _Failed(Exception):
    """A test that did not pass, with what is shown of it."""


class RuleFile(pytest.File):
    """One rule file. It is parsed to be collected; it is loaded, with all that it imports, when its first item runs."""

    _cases: dict[int, StatedCase] | None = None
    _proofs: Verification | None = None

    def collect(self) -> Iterator[RuleItem]:
        from dslc.checking.rule_tests import parts_of
        from dslc.errors import DslcError
        from dslc.syntax import tree as t
        from dslc.syntax.kept import parse_kept
        from dslc.syntax.parser import read_source

        try:
            file = parse_kept(read_source(self.path))
        except DslcError as problem:
            raise self.CollectError(_rendered(problem.diagnostics)) from None
        options = self.config.option
        for item, kind, name, number in parts_of(file, options.dslc_trials):
            shown = f"{name}[{number}]" if kind == "example" else name
            yield RuleCheck.from_parent(self, name=f"{kind}:{shown}", piece=item)
        proved = (t.Substitution, t.Property, t.Derivation) if options.dslc_verify or options.dslc_require else ()
        for item in file.items:
            if isinstance(item, proved):
                yield RuleProof.from_parent(self, name=f"verify:{item.name}", piece=item)

    def case_at(self, place: int) -> StatedCase:
        """The claim at a place of the file, ready to run. Raises DslcError where the file cannot be loaded."""
        if self._cases is None:
            from dslc.checking.rule_tests import cases
            from dslc.semantics.library import load_many, modules_of

            names, options = [str(self.path)], self.config.option
            rules = load_many(names)
            found = cases(rules, modules_of(rules, names), options.dslc_seed, options.dslc_trials)
            self._cases = {
                case.span.start: case for case in found if Path(case.span.source.path).resolve() == self.path.resolve()
            }
        return self._cases[place]

    def proofs(self) -> Verification:
        """The verdicts of all rules and laws of the file that are among the items of this run: one prover for all of them."""
        if not self._proofs:
            from dslc.checking.verification import Verification

            wanted = [item.rule for item in self.session.items if isinstance(item, RuleProof) and item.parent is self]
            seed = self.config.option.dslc_seed
            found = Verification((str(self.path),), wanted, jobs=1, no_lock=True, seed=seed)
            found.run()
            self._proofs = found
        return self._proofs


class RuleItem(pytest.Item):
    """One piece of a rule file; what fails is shown as diagnostics, with file, line and caret."""

    def __init__(self, *, piece: t.Node, **rest: Any) -> None:
        super().__init__(**rest)
        self.span = piece.span
        # plugins take items for functions (pytest-lsp fails where there are no arguments)
        self.funcargs: dict[str, Any] = {}

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.span.source.position(self.span.start)[0] - 1, self.name

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from dslc.errors import DslcError

        if isinstance(excinfo.value, _Failed):
            return str(excinfo.value)
        if isinstance(excinfo.value, DslcError):
            return _rendered(excinfo.value.diagnostics)
        return super().repr_failure(excinfo, style)

    @property
    def rule_file(self) -> RuleFile:
        assert isinstance(self.parent, RuleFile)
        return self.parent


class RuleCheck(RuleItem):
    """A test or an example, or a rule or law at random sizes."""

    def runtest(self) -> None:
        found = self.rule_file.case_at(self.span.start).run()
        if not found.passed:
            raise _Failed(_rendered(found.diagnostics))


class RuleProof(RuleItem):
    """A proof of a rule or law; it fails where the rule is refuted or wrong, or less than `--dslc-require` says."""

    @property
    def rule(self) -> str:
        return self.name.partition(":")[2]

    def holds(self, found: Diagnostic) -> bool:
        """Return whether a finding is about this rule; files are parsed more than once, so places are compared by path."""
        span = found.span
        same = span is not None and Path(span.source.path).resolve() == self.path.resolve()
        return same and span is not None and self.span.start <= span.start < self.span.end

    def runtest(self) -> None:
        from dslc.checking.verification import below

        found = self.rule_file.proofs()
        verdicts = [one for one in found.verdicts if one.rule.rpartition(".")[2] == self.rule]
        wrong = [one for one in found.findings if self.holds(one)]
        if any(one.status == "undecided" and not one.verdicts for one in verdicts):
            # nothing was tried of a rule with a mistake, which may be in an operator that it uses
            wrong = wrong or found.findings
        if wrong:
            raise _Failed(_rendered(wrong))
        required = self.config.option.dslc_require
        for verdict in verdicts if below(verdicts, required) else ():
            why = f" ({verdict.reason})" if verdict.reason else ""
            raise _Failed(f"{self.span}: `{verdict.rule}` is {verdict.status}, less than {required}{why}")
