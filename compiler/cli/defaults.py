"""Defaults of a project: `rules`, `budget` and `target` of `[tool.dslc]`, as values of options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

#: key -> the option that it is a value of, and the commands whose option that is
_OPTIONS = {
    "rules": ("--rules", frozenset({"optimize", "why-not", "derive", "diff", "explain"})),
    "budget": ("--budget", frozenset({"optimize"})),
    "target": ("--on", frozenset({"optimize", "build"})),
}
COMMANDS = frozenset().union(*(commands for _, commands in _OPTIONS.values()))


def defaults(name: str, command: click.Command, args: Sequence[str]) -> dict[str, Any]:
    """Values of a command's options from the `pyproject.toml` of the current folder, by the names of its parameters.

    Raises:
        DslcError: E0916 where it says what makes no sense.
    """
    from dslc.checking.project import project_of

    try:
        here = Path.cwd()
    except OSError:  # the folder is gone
        return {}
    project = project_of(here)
    out: dict[str, Any] = {}
    for key, (option, commands) in _OPTIONS.items():
        value = getattr(project, key)
        param = next((one for one in command.params if option in one.opts), None)
        # what is only applied takes no time unless one says so
        applied = key == "budget" and any(arg.partition("=")[0] == "--apply" for arg in args)
        if name not in commands or not value or param is None or applied:
            continue
        if (
            key == "target"
            and name != "optimize"
            and isinstance(param.type, click.Choice)
            and value not in param.type.choices
        ):
            continue
        _checked(project.path, key, value, param)
        out[str(param.name)] = value
    return out


def _checked(path: Path | None, key: str, value: Any, param: click.Parameter) -> None:
    from dslc.checking.project import place
    from dslc.errors import SourceText, error

    hint = ""
    if key == "budget" and value != "auto":
        from dslc.search.options.settings import seconds_of

        try:
            seconds_of(value)
        except ValueError as problem:
            hint = str(problem)
    elif isinstance(param.type, click.Choice) and value not in param.type.choices:
        hint = "one of " + ", ".join(map(str, param.type.choices))
    if hint and path:
        source = SourceText(str(path), path.read_text(encoding="utf-8"))
        raise error("E0916", f"`{key}` cannot be `{value}`", place(source, key), hint=hint)
