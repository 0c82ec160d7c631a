"""`dslc new`: a library that checks, formats and tests from the first minute."""

from __future__ import annotations

import re
from pathlib import Path

import click

from dslc.errors import error
from dslc.semantics.installed import libraries
from dslc.store import write_file

_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")

_ROOT = """dslc 1
# A line about this library.
library {name} 0.1.0
requires std >=0.1

import std.pointwise (add)
export double, add_same

operator double(X: T[*S]) -> Y: T[*S] {{
  \"\"\"Twice its input.\"\"\"
  Y[*i] = 2 * X[*i]
  example double([1, 2]) == [2, 4]
}}

substitution add_same(X: T[*S]) -> Y {{
  \"\"\"x + x is 2 x.\"\"\"
  Y = add(X, X)
  =>
  Y = double(X)
}}

test add_same {{
  given  X: f32[2, 3], Z: f32[2, 3]
  fires  {{ Y = add(X, X) }}
  silent {{ Y = add(X, Z) }}
}}
"""

_PROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{project}"
version = "0.1.0"
dependencies = ["dslc"]

[project.entry-points."dslc.libraries"]
"{name}" = "{module}"

[tool.setuptools]
packages = ["{module}"]

[tool.setuptools.package-data]
"{module}" = ["*.rules", "**/*.j2", "dslc.lock"]
"""


@click.command()
@click.argument("name")
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Where to write (default: a folder of the library's name)."
)
def command(name: str, folder: Path | None) -> None:
    """Start a rule library: a folder with a rule file, and a pyproject.toml so that pip can install it."""
    if not _NAME.fullmatch(name):
        hint = "lower-case words joined by dots, such as acme.conv"
        raise error("E0906", f"`{name}` cannot be the name of a library", hint=hint)
    if name in libraries():
        raise error("E0906", f"there is a library `{name}` already", hint="`dslc list libraries` names them")
    root = folder or Path(name)
    module = name.replace(".", "_")
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise error("E0908", f"{root} exists and is not empty", path=str(root))
    texts = {
        root / module / f"{name.rpartition('.')[2]}.rules": _ROOT.format(name=name),
        root / module / "__init__.py": "",
        root / "pyproject.toml": _PROJECT.format(name=name, module=module, project=name.replace(".", "-")),
    }
    for path, text in texts.items():
        write_file(path, text, parents=True)
        click.echo(f"wrote {path}")
    click.echo(f"next: dslc check {root / module} && dslc test {root / module}")
