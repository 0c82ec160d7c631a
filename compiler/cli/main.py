"""The command line: a table of commands that are imported when they run, and what every failure looks like to a user."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import click

from dslc.cli.defaults import COMMANDS as CONFIGURED
from dslc.cli.defaults import defaults
from dslc.prove.garbage import gc_paused
from dslc.terminal import guarded
from dslc.version import __version__

if TYPE_CHECKING:
    from dslc.errors import DslcError

#: name -> (module that defines `command`, one line of help)
COMMANDS = {
    "check": ("dslc.cli.check", "Report mistakes in rule files and libraries."),
    "fmt": ("dslc.cli.fmt", "Format rule files."),
    "lsp": ("dslc.cli.lsp", "Start the language server for editors."),
    "test": ("dslc.cli.test", "Run the `test` and `example` blocks of rule files."),
    "verify": ("dslc.cli.verify", "Prove rules and laws, or find a counterexample."),
    "show": ("dslc.cli.show", "Print what dslc knows about an operator."),
    "list": ("dslc.cli.list", "List operators, rules, libraries, targets or strategies."),
    "explain": ("dslc.cli.explain", "Explain an error code, a rule, an operator or a report."),
    "new": ("dslc.cli.new", "Start a rule library that pip can install."),
    "import-rules": ("dslc.cli.import_rules", "Import and prove rules of TASO, TENSAT or FlexFlow."),
    "export-rules": ("dslc.cli.export_rules", "Write rules in TASO's format."),
    "generate": ("dslc.cli.generate", "Find and prove new rules between graphs of some operators."),
    "optimize": ("dslc.cli.optimize", "Make an ONNX model faster."),
    "report": ("dslc.cli.report", "Turn a JSON report of `dslc optimize` into a page."),
    "bench": ("dslc.cli.bench", "Time two ONNX models against each other."),
    "extract": ("dslc.cli.extract", "Find the cheapest program in an e-graph file."),
    "build": ("dslc.cli.build", "Build the kernels of an optimized model for this machine."),
    "why-not": ("dslc.cli.why_not", "Explain why a rule does not apply to a model."),
    "derive": ("dslc.cli.derive", "Derive other programs that compute an expression."),
    "mutants": ("dslc.cli.mutants", "List programs that almost compute an operator, with their corrections."),
    "diff": ("dslc.cli.diff", "Show where two programs differ, with a proof that they agree elsewhere."),
    "doctor": ("dslc.cli.doctor", "Check the machine, the runtimes and the caches."),
}
#: what `--version` lists beside dslc: the packages whose versions decide how a run behaves
FOUNDATIONS = ("onnx", "onnxruntime", "numpy", "islpy", "sympy", "lark")


class LazyGroup(click.Group):
    """A group that imports a command's module when the command runs, so that `dslc --help` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        found = importlib.import_module(entry[0]).command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from dslc.errors import did_you_mean

            hint = did_you_mean(name, COMMANDS, "`dslc --help` lists all commands.")
            ctx.fail(f"there is no command `{name}`. {hint[0].upper()}{hint[1:]}")
        found = super().resolve_command(ctx, args)
        if name in CONFIGURED and found[1] is not None and not ctx.resilient_parsing:
            ctx.default_map = {name: defaults(name, found[1], args)}
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from importlib import metadata

    click.echo(f"dslc {__version__} (Python {sys.version.split()[0]})")
    for package in FOUNDATIONS:
        try:
            click.echo(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            click.echo(f"{package} is not installed")
    ctx.exit(0)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print versions."
)
def cli() -> None:
    """A declarative rule language for tensor programs: checks rules, and optimizes ONNX models with them."""


def _of_exception(failure: BaseException) -> DslcError:
    """The error that an exception is which reached the top; an unforeseen one is called a bug of dslc."""
    from dslc.errors import DslcError, error

    if isinstance(failure, DslcError):
        return failure
    if isinstance(failure, OSError):
        where = f"cannot read {failure.filename}: " if failure.filename else ""
        return error("E0902", f"{where}{failure.strerror or failure}")
    if isinstance(failure, MemoryError):
        return error("E0905", "not enough memory", hint="`ulimit -v` and other programs limit what is left")
    if isinstance(failure, ImportError):
        return error("E0907", f"a part of the installation is missing: {failure}", hint="`pip install dslc`")
    text = f"dslc failed where it should not: {type(failure).__name__}: {failure}".rstrip(": ")
    hint = "this is a bug in dslc; run again with DSLC_DEBUG=1 for the traceback, and report it"
    return error("E0901", text, hint=hint)


def run(args: Sequence[str] | None = None, began: float | None = None) -> int:
    """Runs one command line and returns the exit code: 0 done, 1 findings, 2 wrong use, 130 interrupted.

    `began`: when the command began, by `time.monotonic`; commands find it as the object of click's context.

    With DSLC_DEBUG set, exceptions other than wrong input propagate.
    """
    if (wanted := os.environ.get("_DSLC_COMPLETE")) and args is None:
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "dslc", "_DSLC_COMPLETE", wanted)
    with guarded():
        return _run(args, began)


def _run(args: Sequence[str] | None, began: float | None) -> int:
    try:
        with cli.make_context("dslc", list(sys.argv[1:] if args is None else args), obj=began) as context:
            result: Any = cli.invoke(context)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        # what a command has written by then it has said
        with suppress(OSError):
            sys.stderr.write("interrupted\n")
        return 130
    except click.ClickException as failure:
        failure.show()
        return failure.exit_code
    except BrokenPipeError:
        # The reader went away (`dslc ... | head`); nothing more may be written, at exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except Exception as failure:
        from dslc.cli.outputs import say_findings
        from dslc.errors import DslcError

        if os.environ.get("DSLC_DEBUG") and not isinstance(failure, DslcError):
            raise
        wrong = _of_exception(failure)
        say_findings(wrong.diagnostics)
        return wrong.exit_code


def main(began: float | None = None) -> NoReturn:
    """Entry point of the console script and of `python -m dslc`; `began` as in `run`."""
    os.environ.setdefault(
        "ORT_DISABLE_TELEMETRY", "1"
    )  # the runtime reports its use to its maker unless told otherwise
    code = 130
    with suppress(KeyboardInterrupt), gc_paused():
        code = run(began=began)
    # all is said: an interrupt changes nothing any more, and what is there need not be looked through once more
    with suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    # where Ctrl-C came while text was run (a dataclass is made that way), Python would end itself by the signal; this forgets it
    exec("")
    sys.exit(code)
