"""Pages of templates: one file that needs no network, in which nothing of a model or a rule is read as HTML."""

from __future__ import annotations

import base64
import hashlib
import math
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2


def page(template: str, title: str, **values: Any) -> str:
    """A whole page. Its policy of contents allows no network, and no script but the one that it has."""
    script = _text("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    found = (
        _environment()
        .get_template(template)
        .render(title=title, style=_text("page.css"), script=script, digest=digest, **values)
    )
    # half of a character is none, and no file has it
    return found.encode("utf-8", "replace").decode("utf-8")


def fragment(template: str, **values: Any) -> str:
    """A part of a page for a notebook, with its style and without scripts."""
    return _environment().get_template(template).render(style=_text("page.css"), **values)


def number(value: float | None, digits: int = 3) -> str:
    """A few digits: `0.358`, `17.7`, `1,230`; `?` for what is not known."""
    if value is None or not math.isfinite(value):
        return "?"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.{digits}g}"


@cache
def _text(name: str) -> str:
    return (resources.files("dslc.templates") / "report" / name).read_text("utf-8")


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    found.filters["number"] = number
    return found
