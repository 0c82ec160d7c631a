"""The reference of the command line, made from its commands and their options."""

from __future__ import annotations

import inspect
import re
from importlib import import_module

import click

from docs.site.markdown import code, fenced, table


def page() -> str:
    """All commands, in the order of `dslc --help`."""
    from dslc.cli.main import COMMANDS

    out = "# Commands and options\n\nMade from the commands themselves; `dslc COMMAND --help` prints the same. "
    out += "[The command line](../cli.md) says what belongs together.\n\n"
    for name, (module, line) in COMMANDS.items():
        command = import_module(module).command
        assert isinstance(command, click.Command)
        out += _command(name, line, command)
    return out


def _command(name: str, line: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"dslc {name}")
    usage = " ".join([f"dslc {name}", *command.collect_usage_pieces(context)])
    out = f"## dslc {name}\n\n{line}\n\n" + fenced(usage)
    # a form feed ends what `--help` prints
    for part in inspect.cleandoc((command.help or "").split("\f")[0]).split("\n\n"):
        if part.strip() and part.strip() != line:
            out += fenced(part.replace("\b\n", "")) if "\b" in part else plain(part) + "\n\n"
    rows = []
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            spelled = param.get_help_record(context)
            if spelled is not None:
                rows.append((code(spelled[0]), plain(spelled[1])))
    return out + table(("option", "what it does"), rows)


def plain(text: str) -> str:
    """Help as Markdown: what is no code there must not become markup."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([*_<>\[\]])", r"\\\1", part) for part in parts)
