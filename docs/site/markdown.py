"""Pieces of Markdown that several makers of pages use: tables, code, links, and what a page's links and anchors are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

_FENCED = re.compile(r"^( *)```.*?^ *```$", re.M | re.S)
_LINK = re.compile(r"(?<!!)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^()\s]+)\)")
_CODE = re.compile(r"`[^`\n]*`")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, empty without rows; cells are Markdown of one line."""
    lines = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    if not lines:
        return ""
    return "\n".join(["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), *lines, "", ""])


def _cell(text: str) -> str:
    """A cell of one line; a bar in code ends no cell, and would keep its backslash."""
    parts = re.split(r"(`+[^`]*`+)", text.replace("\n", " "))
    return "".join(part if part.startswith("`") else part.replace("|", "\\|") for part in parts)


def fenced(text: str, language: str = "text") -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```\n\n"


def code(text: str) -> str:
    """Code in a line; empty for nothing."""
    one = " ".join(text.split())
    ticks = "``" if "`" in one else "`"
    return f"{ticks}{one}{ticks}" if one else ""


def slug(heading: str) -> str:
    """The anchor of a heading, as Markdown's `toc` makes it."""
    text = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"[-\s]+", "-", text)


def links(text: str) -> list[str]:
    """The targets of the links of a page, those in code left out."""
    return [found["target"] for found in _LINK.finditer(_CODE.sub("``", _FENCED.sub("", text)))]


def anchors(text: str) -> set[str]:
    """What may stand behind `#` in a link to a page."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+?)\s*$", _FENCED.sub("", text), re.M):
        own = slug(re.sub(_LINK, lambda m: m["text"], heading))
        number, first = 1, own
        while own in found:
            own, number = f"{first}_{number}", number + 1
        found.add(own)
    return found | set(re.findall(r'\bid="([^"]+)"', text))


def relinked(text: str, to: Callable[[str], str | None]) -> str:
    """A page whose links to files go where `to(target)` says; None leaves the text without a link. Code stays as it is."""
    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        kept.append(found[0])
        return f"\0{len(kept) - 1}\0"

    def moved(found: re.Match[str]) -> str:
        target = found["target"]
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            return found[0]
        new = to(target)
        return found["text"] if new is None else f"[{found['text']}]({new})"

    out = _LINK.sub(moved, _FENCED.sub(keep, text))
    return re.sub("\0(\\d+)\0", lambda found: kept[int(found[1])], out)
