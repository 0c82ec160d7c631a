"""The registered codes. Each has a section in `pages/*.md`: a title, what it means, a wrong and a right example."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib import resources

from dslc.records import record

_SECTION = re.compile(r"^## ([EW]\d{4}): (.+)$", re.M)
_EXAMPLE = re.compile(r"^```rules (wrong|right)\n(.*?)^```$", re.M | re.S)


@record
class Page:
    """The text of `dslc explain CODE`. The examples are run by tests: `wrong` has this code, `right` does not."""

    code: str
    title: str
    text: str
    wrong: tuple[str, ...]
    right: tuple[str, ...]


@functools.cache
def pages() -> Mapping[str, Page]:
    """All pages by code, in order.

    Raises:
        ValueError: where two sections have one code.
    """
    found: dict[str, Page] = {}
    folder = resources.files("dslc.diagnostics").joinpath("pages")
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".md"):
            continue
        _, *parts = _SECTION.split(file.read_text(encoding="utf-8"))
        for code, title, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            if code in found:
                raise ValueError(f"{code} has two pages")
            examples = _EXAMPLE.findall(body)
            found[code] = Page(
                code,
                title,
                body.strip(),
                tuple(text for kind, text in examples if kind == "wrong"),
                tuple(text for kind, text in examples if kind == "right"),
            )
    return found
