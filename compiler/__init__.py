"""dslc: a declarative rule language for tensor programs.

On models: `optimize` makes one faster, `optimize_file` from file to file, `session` runs one with its kernels, `register` gives
these to a session of your own, `build` builds them, `bench` times two models, `why_not` says why a rule does not apply. On rules:
`load`, `check`, `test`, `verify`; `show` an operator, `diff` two programs, `derive` others of one, `mutants` are almost one. Each does
what the command of its name does, and returns what that prints as values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dslc.version import __version__

if TYPE_CHECKING:
    from dslc.api import (
        bench,
        build,
        check,
        derive,
        diff,
        load,
        mutants,
        optimize,
        optimize_file,
        register,
        session,
        show,
        test,
        verify,
        why_not,
    )  # fmt: skip
    from dslc.cli.bench import Benched
    from dslc.cli.check import Checked
    from dslc.cli.derive import DerivedPrograms
    from dslc.cli.diff import Compared
    from dslc.cli.mutants import FoundMutants
    from dslc.cli.show import Shown
    from dslc.cli.test import Tested
    from dslc.cli.why_not import WhyNot
    from dslc.errors import Diagnostic, DslcError
    from dslc.kernels import Kernels
    from dslc.prove.verdict import RuleVerdict
    from dslc.report import Report
    from dslc.search.runs.stages import Optimized
    from dslc.semantics.library import Rules

__all__ = [
    "Benched", "Checked", "Compared", "DerivedPrograms", "Diagnostic", "DslcError", "FoundMutants", "Kernels", "Optimized", "Report",
    "RuleVerdict", "Rules", "Shown", "Tested", "WhyNot", "__version__", "bench", "build", "check", "derive", "diff", "load", "mutants",
    "optimize", "optimize_file", "register", "session", "show", "test", "verify", "why_not",
]  # fmt: skip

#: where what is not a function is defined; functions are `dslc.api`'s
_TYPES = {
    "Benched": "dslc.cli.bench", "Checked": "dslc.cli.check", "Compared": "dslc.cli.diff", "DerivedPrograms": "dslc.cli.derive",
    "Diagnostic": "dslc.errors", "DslcError": "dslc.errors", "FoundMutants": "dslc.cli.mutants", "Kernels": "dslc.kernels",
    "Optimized": "dslc.search.pipeline",
    "Report": "dslc.report", "RuleVerdict": "dslc.prove.verdict", "Rules": "dslc.semantics.library", "Shown": "dslc.cli.show",
    "Tested": "dslc.cli.test", "WhyNot": "dslc.cli.why_not",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(_TYPES.get(name, "dslc.api")), name)
    raise AttributeError(f"module 'dslc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
