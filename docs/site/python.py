"""The reference of the Python interface, made from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from typing import Any

import dslc
from docs.site.commands import plain
from docs.site.markdown import fenced, table

# columns of a signature on one line
_WIDTH = 100
_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Example|Attributes):[ ]*(.*)$")


def page() -> str:
    """What `dslc` offers, by name; dunder names are left out."""
    out = "# Python\n\nMade from the docstrings of `dslc`. `import dslc` is quick: heavy parts are imported where they are used.\n\n"
    for name in dslc.__all__:
        if not name.startswith("__"):
            out += _documented(name, getattr(dslc, name))
    return out


def _documented(name: str, thing: Any) -> str:
    out = f"## dslc.{name}\n\n" + fenced(_signature(f"dslc.{name}", thing), "python")
    out += _docstring(inspect.getdoc(thing) or "")
    if inspect.isclass(thing):
        rows = []
        for member, value in vars(thing).items():
            about = inspect.getdoc(value) if callable(value) or isinstance(value, property | staticmethod) else None
            if not member.startswith("_") and about:
                kind = f"{member}()" if callable(value) else member
                rows.append((f"`{kind}`", plain(about.split("\n\n")[0])))
        out += table(("member", "what it is"), rows)
    return out


def _signature(name: str, thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    lines, keyword = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword:
            lines.append("*")
            keyword = True
        star = (
            "**"
            if parameter.kind is parameter.VAR_KEYWORD
            else "*"
            if parameter.kind is parameter.VAR_POSITIONAL
            else ""
        )
        kind = "" if parameter.annotation is parameter.empty else f": {_annotation(parameter.annotation)}"
        default = "" if parameter.default is parameter.empty else f"{' = ' if kind else '='}{parameter.default!r}"
        lines.append(f"{star}{parameter.name}{kind}{default}")
    returns = (
        "" if signature.return_annotation is signature.empty else f" -> {_annotation(signature.return_annotation)}"
    )
    one = f"{name}({', '.join(lines)}){returns}"
    return one if len(one) <= _WIDTH else "\n".join([f"{name}(", *(f"    {line}," for line in lines), f"){returns}"])


def _annotation(kind: Any) -> str:
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def _docstring(text: str) -> str:
    """A docstring in Google's style as Markdown: paragraphs, and its sections as tables or code."""
    out, section, inside = "", "", list[str]()
    for line in [*text.splitlines(), "Returns:"]:
        found = _SECTION.match(line)
        if found is None:
            inside.append(line)
            continue
        out += _section(section, inspect.cleandoc("\n".join(inside)))
        section, inside = found[1], [found[2]] if found[2] else []
    return out


def _section(name: str, text: str) -> str:
    if not text.strip():
        return ""
    if name == "Example":
        return fenced(text, "pycon")
    if name in ("Args", "Raises", "Attributes"):
        rows: list[tuple[str, str]] = []
        for line in text.splitlines():
            entry = re.match(r"(\*{0,2}\w[\w, *]*): (.*)", line)
            if entry is not None:
                rows.append((f"`{entry[1]}`", entry[2]))
            elif rows:
                rows[-1] = (rows[-1][0], f"{rows[-1][1]} {line.strip()}")
            else:
                rows.append(("", line.strip()))
        return table(
            ({"Args": "argument", "Raises": "raises", "Attributes": "attribute"}[name], "what it means"),
            [(a, plain(b)) for a, b in rows],
        )
    head = f"**{name}.** " if name else ""
    return head + "\n\n".join(plain(part) for part in text.split("\n\n")) + "\n\n"
