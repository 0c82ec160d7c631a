"""Templates: the only place from which kernel text comes."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import jinja2

from dslc.codegen.nest import kind


@cache
def _environment() -> jinja2.Environment:
    loader = jinja2.FunctionLoader(template)
    out = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True)
    out.globals["kind"] = kind
    return out


@cache
def template(name: str) -> str:
    """The text of a file under templates/cpp."""
    return resources.files("dslc.templates").joinpath("cpp", name).read_text(encoding="utf-8")


@cache
def preamble() -> str:
    """What every kernel stands on; guarded, so that it may come several times in one file."""
    return template("kernel.h").replace('#include "kernel_math.h"\n', template("kernel_math.h"))


def render(template_name: str, /, **values: Any) -> str:
    """A template of templates/cpp, filled in."""
    return _environment().get_template(template_name).render(**values)


__all__ = ["preamble", "render", "template"]
