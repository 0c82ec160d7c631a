"""Locations of libraries: those of dslc, those in the folders of `$DSLC_PATH`, and those that pip has installed."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Mapping
from importlib import metadata, resources
from pathlib import Path

#: the libraries of dslc, and their packages
BUILTIN = {name: f"dslc.rules.{name}" for name in ("std", "einnet", "pet", "targets", "taso", "taso_generated")}


@functools.cache
def _installed() -> Mapping[str, str]:
    """The packages of installed libraries, by the names of these."""
    points = metadata.entry_points(group="dslc.libraries")
    return {point.name: point.value.replace(":", ".") for point in points}


def library_of(name: str) -> str | None:
    """The installed library that a qualified name of a definition begins with (`acme.filters` of `acme.filters.emphasis`)."""
    folder, rest = find_library(name)
    return name[: -len(rest) - 1] if folder and rest else None


def libraries() -> dict[str, Path]:
    """The folders of all libraries that can be named here: those of `$DSLC_PATH`, those of dslc, and the installed ones."""
    found: dict[str, Path] = {}
    for place in filter(None, os.environ.get("DSLC_PATH", "").split(os.pathsep)):
        for folder in sorted(Path(place).glob("*/")):
            if any(folder.glob("*.rules")):
                found.setdefault(folder.name, folder)
    for name in [*BUILTIN, *_installed()]:
        folder_of, rest = find_library(name)
        if folder_of and not rest:
            found.setdefault(name, folder_of)
    return found


def _folder(package: str) -> Path | None:
    """Folder of an installed package. It is not imported: a library is data, and its `__init__.py` would be code."""
    first, *inner = package.split(".")
    try:
        spec = importlib.util.find_spec(first)
    except ValueError:
        return None
    places = (spec.submodule_search_locations if spec is not None else None) or ()
    return next((path for place in places if (path := Path(place).joinpath(*inner)).is_dir()), None)


def find_library(name: str) -> tuple[Path | None, str]:
    """The folder of a library, and what of the dotted name is left (a file).

    Looked for in the folders of `$DSLC_PATH`, then among the libraries of dslc, then among the installed ones.
    """
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        head, rest = ".".join(parts[:size]), ".".join(parts[size:])
        for place in filter(None, os.environ.get("DSLC_PATH", "").split(os.pathsep)):
            if any((Path(place) / head).glob("*.rules")):
                return Path(place) / head, rest
        if head in BUILTIN:
            return Path(str(resources.files(BUILTIN[head]))), rest
        folder = _folder(_installed()[head]) if head in _installed() else None
        if folder:
            return folder, rest
    return None, name
