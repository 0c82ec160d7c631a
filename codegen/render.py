"""Templates: the only place from which kernel text comes."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import jinja2

from dslc.codegen.nest import kind
from dslc.outside import in_code


@cache
def _environment(folder: str) -> jinja2.Environment:
    loader = jinja2.FunctionLoader(lambda name: template(name, folder))
    out = jinja2.Environment(
        loader=loader, undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True
    )
    out.globals["kind"], out.filters["outside"] = kind, in_code
    return out


@cache
def template(name: str, folder: str = "cpp") -> str:
    """The text of a file in a folder of templates/."""
    return resources.files("dslc.templates").joinpath(folder, name).read_text(encoding="utf-8")


@cache
def preamble() -> str:
    """Preamble of every kernel; guarded, so that it may come several times in one file."""
    text = template("kernel.h")
    for name in ("kernel_vector.h", "kernel_math.h"):
        text = text.replace(f'#include "{name}"\n', template(name))
    return text


def render(template_name: str, /, folder: str = "cpp", **values: Any) -> str:
    """A template in a folder of templates/, filled in."""
    return _environment(folder).get_template(template_name).render(**values)
