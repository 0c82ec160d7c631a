"""Templates of lowerings: files of a library that become code on this machine, where the user trusts the library."""

from __future__ import annotations

from collections.abc import Collection
from importlib import resources
from pathlib import Path, PurePosixPath

from dslc.semantics.definitions import LoweringDef, Module
from dslc.syntax import tree as t

LARGEST = 1 << 18  #: bytes of a template


class NoTemplate(Exception):
    """A template that cannot be read; the message says why."""


def template_of(lowering: LoweringDef) -> t.RenderTemplate | None:
    """The template that a lowering names."""
    return next((one for one in lowering.syntax.statements if isinstance(one, t.RenderTemplate)), None)


def trusted(module: Module, trust: Collection[str]) -> bool:
    """Return whether the templates of a file may run: it is a part of dslc, or `trust` has its library, by its name or its path."""
    path = module.place
    if path.is_relative_to(Path(str(resources.files("dslc.rules"))).resolve()):
        # by its place: whoever calls a file `std` is not std
        return True
    return any(belongs(module, name) for name in trust)


def belongs(module: Module, name: str) -> bool:
    """Return whether a file is of the library of that name or path."""
    if name in (module.library, module.name):
        return True
    path = module.place
    return Path(name).exists() and Path(name).resolve() in (path, path.parent)


def template_path(module: Module, name: str) -> Path:
    """Path of a template that a file names."""
    return module.place.parent / PurePosixPath(name)


def template_text(module: Module, name: str) -> str:
    """The text of a template, a file in the folder of the one that names it, or below. Raises NoTemplate."""
    folder = module.place.parent
    parts = PurePosixPath(name)
    if not name or parts.is_absolute() or ".." in parts.parts or "\\" in name or "\0" in name:
        raise NoTemplate(f"`{name}` is no file of the library's folder")
    path = folder / parts
    try:
        if not path.resolve().is_relative_to(folder):
            raise NoTemplate(f"`{name}` is no file of the library's folder")
        if not path.is_file():
            raise NoTemplate(f"there is no file `{name}` in {folder}")
        with path.open("rb") as stream:
            data = stream.read(LARGEST + 1)
    except OSError as problem:
        raise NoTemplate(f"`{name}` cannot be read: {problem.strerror or problem}") from None
    if len(data) > LARGEST:
        raise NoTemplate(f"`{name}` has more than {LARGEST} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise NoTemplate(f"`{name}` is no UTF-8") from None


def mistake(text: str) -> str:
    """Problem with the form of a template; empty where there is none. It is only read."""
    from jinja2 import TemplateSyntaxError
    from jinja2.sandbox import SandboxedEnvironment

    try:
        SandboxedEnvironment().parse(text)
    except TemplateSyntaxError as problem:
        return f"line {problem.lineno}: {problem.message}"
    except RecursionError:
        return "it is nested too deeply"
    return ""
