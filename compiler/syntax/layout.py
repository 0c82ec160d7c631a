"""A small pretty printer (after Wadler and Prettier): what may break, and the widest layout that fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from dslc.records import record


@record
class Line:
    """A place to break; `flat` is printed where it does not. A hard one always breaks."""

    flat: str = " "
    hard: bool = False


@record
class Group:
    """Printed flat if it fits on the line, else every Line directly in it breaks."""

    doc: Doc


@record
class Nest:
    """Breaks inside are indented by `by` more."""

    by: int
    doc: Doc


@record
class Align:
    """Breaks inside are indented to the column where it begins."""

    doc: Doc


@record
class Fill:
    """Parts separated by `separator` and a break; as many on each line as fit."""

    parts: tuple[Doc, ...]
    separator: str = ","


@record
class Value:
    """The text behind a `=`: on the same line if it fits, else on the next (indented by `by`) if it fits there, else broken."""

    by: int
    doc: Doc


Doc: TypeAlias = "str | Line | Group | Nest | Align | Fill | Value | tuple[Doc, ...]"
LINE = Line()
HARD = Line(hard=True)

_Command: TypeAlias = "tuple[int, bool, Doc]"  # indentation, flat, what


def join(separator: Doc, parts: Iterable[Doc]) -> Doc:
    """Parts with a separator between them."""
    out: list[Doc] = []
    for part in parts:
        out += [separator, part] if out else [part]
    return tuple(out)


def _fits(room: int, first: _Command, rest: Sequence[_Command]) -> bool:
    """Return whether `first`, flat, and what follows it up to the next break have room."""
    todo, below = [first], len(rest)
    while room >= 0:
        if not todo:
            if not below:
                return True
            below -= 1
            todo.append(rest[below])
        indent, flat, doc = todo.pop()
        if isinstance(doc, str):
            room -= len(doc)
        elif isinstance(doc, Line):
            if not flat or doc.hard:
                return True
            room -= len(doc.flat)
        elif isinstance(doc, Group | Align | Nest):
            todo.append((indent, flat, doc.doc))
        elif isinstance(doc, Fill):
            todo += reversed([(indent, flat, part) for part in _unfilled(doc)])
        elif isinstance(doc, Value):
            todo += [(indent, flat, doc.doc), (indent, flat, " ")]
        else:
            todo += reversed([(indent, flat, part) for part in doc])
    return False


def _unfilled(fill: Fill) -> list[Doc]:
    out: list[Doc] = []
    for part in fill.parts:
        out += [fill.separator, LINE, part] if out else [part]
    return out


def render(doc: Doc, width: int, indent: int = 0) -> list[str]:
    """The lines of a document whose first line begins at column `indent` (without that indentation)."""
    out: list[str] = []
    column = indent
    todo: list[_Command] = [(indent, False, doc)]
    while todo:
        level, flat, here = todo.pop()
        if isinstance(here, str):
            out.append(here)
            column += len(here)
        elif isinstance(here, Line):
            if flat and not here.hard:
                out.append(here.flat)
                column += len(here.flat)
            else:
                out.append("\n" + " " * level)
                column = level
        elif isinstance(here, Group):
            command = (level, True, here.doc)
            todo.append(command if flat or _fits(width - column, command, todo) else (level, False, here.doc))
        elif isinstance(here, Nest):
            todo.append((level + here.by, flat, here.doc))
        elif isinstance(here, Align):
            todo.append((column, flat, here.doc))
        elif isinstance(here, Fill):
            todo += reversed(_fill(here, level, flat))
        elif isinstance(here, Value):
            command = (level, True, here.doc)
            if flat or _fits(width - column - 1, command, todo):
                todo += [command, (level, True, " ")]
            elif _fits(width - level - here.by, command, todo):
                todo += [command, (level + here.by, False, LINE)]
            else:
                todo += [(level, False, here.doc), (level, False, " ")]
        else:
            todo += reversed([(level, flat, part) for part in here])
    return [line.rstrip() for line in "".join(out).split("\n")]


def _fill(fill: Fill, level: int, flat: bool) -> list[_Command]:
    """Each break of a fill is a group with the part after it: it breaks where that part has no room."""
    out: list[_Command] = []
    last = len(fill.parts) - 1
    for index, part in enumerate(fill.parts):
        ended: Doc = (part, fill.separator) if index < last else part
        out.append((level, flat, Group((LINE, Group(ended))) if index else Group(ended)))
    return out
