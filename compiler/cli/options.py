"""Options of commands: those that a dataclass says, and values that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dslc.errors import did_you_mean

if TYPE_CHECKING:
    from dslc.search.options.option import Option

_Command = TypeVar("_Command", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
NEW_FILE = click.Path(path_type=Path, dir_okay=False)


def option(*names: str, **rest: Any) -> Callable[[_Command], _Command]:
    """An option whose default is shown."""
    return click.option(*names, **{"show_default": True, **rest})


def time_option(
    *names: str, help: str, default: str | None = None, least: float = 0.0
) -> Callable[[_Command], _Command]:
    """An option whose value is a time (`90`, `1.5m`), handed on in seconds; no less than `least` of them."""

    def parsed(context: click.Context, param: click.Parameter, text: str | None) -> float | None:
        from dslc.search.options.settings import seconds_of

        if text is None:
            return None
        try:
            seconds = seconds_of(text)
        except ValueError as problem:
            raise click.BadParameter(str(problem), param_hint=names[-1]) from None
        if seconds < least:
            raise click.BadParameter(f"{text} is too short: at least {least:g}s", param_hint=names[-1])
        return seconds

    return option(*names, default=default, metavar="TIME", callback=parsed, help=help)


def timeout_option(help: str, default: str, *also: str) -> Callable[[_Command], _Command]:
    """`--timeout TIME`, in seconds, at least a tenth of one; with other names for it."""
    return time_option("timeout", *also, "--timeout", help=help, default=default, least=0.1)


def rules_option(
    help: str = "Also load this library or .rules file; may be repeated.", also: Sequence[str] = ()
) -> Callable[[_Command], _Command]:
    """`--rules LIB`, as often as one likes."""
    return click.option(*also, "--rules", "rules", multiple=True, metavar="LIB", help=help)


def bind_option(help: str = "Size of a symbolic dimension; may be repeated.") -> Callable[[_Command], _Command]:
    """`--bind NAME=N`, as often as one likes, as one dictionary `bind`."""

    def parsed(context: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, int]:
        return binding(texts)

    return click.option("--bind", multiple=True, metavar="NAME=N", callback=parsed, help=help)


def form_option(*forms: str, help: str = "How the result is printed.") -> Callable[[_Command], _Command]:
    """`--output-format`: `full`, and other forms (`json` where none is said), as `output_format`."""
    found = click.Choice(["full", *(forms or ("json",))])
    return option("--output-format", type=found, default="full", help=help)


def html_option(what: str) -> Callable[[_Command], _Command]:
    """`--html FILE`, a page that is written beside what is printed."""
    return click.option("--html", type=NEW_FILE, metavar="FILE", help=f"Also write a page {what}.")


def print_record(command: str, found: Any) -> None:
    """Prints a command's JSON."""
    from dslc.reporting.records import record_text

    click.echo(record_text(command, found), nl=False)


def binding(texts: Sequence[str]) -> dict[str, int]:
    """`["N=1", "S=64"]` as one dictionary.

    Raises click.BadParameter for what is no `NAME=N`, and for several sizes of one name.
    """
    from dslc.search.options.settings import bindings

    try:
        out = bindings(texts)
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint="--bind") from None
    if len(out) > 1:
        raise click.BadParameter("several sizes are for `dslc optimize`; give one here", param_hint="--bind")
    return out[0]


def options_of(
    dataclass: type, others: Mapping[str, Option] | None = None, on: Collection[str] = ()
) -> Callable[[_Command], _Command]:
    """The options of a dataclass' fields, in their order, and others after them; what is not given is None.

    `on`: the others that are on by themselves.
    """
    from dslc.search.options.option import options

    found = [(one.name, about, one.default) for one, about in options(dataclass)]
    found += [(name, about, True if name in on else None) for name, about in (others or {}).items()]

    def decorated(command: _Command) -> _Command:
        for name, about, default in reversed(found):
            command = _option(name, about, default)(command)
        return command

    return decorated


def _option(name: str, about: Option, default: Any) -> Callable[[_Command], _Command]:
    from dslc.search.options.option import flag

    written = flag(name, about, default)
    if about.type is bool and default is True:
        # what is on may be said, too; help has what turns it off
        off = click.option(written, name, is_flag=True, flag_value=False, default=None, help=about.help)
        on = click.option(f"--{name.replace('_', '-')}", name, is_flag=True, flag_value=True, default=None, hidden=True)
        return lambda command: off(on(command))
    if about.type is bool:
        return click.option(written, name, is_flag=True, flag_value=True, default=None, help=about.help)
    rest: dict[str, Any] = {"metavar": about.metavar} if about.metavar else {}
    if about.bare is not None:
        rest |= {"is_flag": False, "flag_value": about.bare}
    if about.shown is not None:
        rest |= {"default": about.shown}
    return option(*about.also, written, name, type=_type(about), multiple=about.many, help=about.help, **rest)


class _Choice(click.Choice[str]):
    def get_invalid_choice_message(self, value: str, ctx: click.Context | None) -> str:
        hint = did_you_mean({"gpu": "cuda"}.get(value, value), self.choices)
        return f"{super().get_invalid_choice_message(value, ctx)} {hint.capitalize()}".rstrip()


def _type(about: Option) -> Any:
    if about.choices:
        return _Choice(about.choices, case_sensitive=False)
    if about.type is Path:
        return PATH
    if about.least is not None:
        if about.type is int:
            return click.IntRange(min=int(about.least), max=None if about.most is None else int(about.most))
        return click.FloatRange(min=about.least, max=about.most)
    return about.type
