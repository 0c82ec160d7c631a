"""Renders the template of a library in a process of its own: `python -m dslc.codegen.sandboxed FILE ANSWER`.

FILE is JSON with `source`, `values` and `most` (characters of the result), ANSWER becomes JSON, too: `text`, or `error`. The caller
limits time and memory; a template reaches nothing but the values that it is given.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


def environment() -> ImmutableSandboxedEnvironment:
    """Where templates of libraries are rendered: no files, no attributes with an underscore, nothing that changes values."""
    return ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True
    )


def rendered(source: str, values: dict[str, Any], most: int) -> str:
    """The text; raises TemplateError, or what an expression in the template raises."""
    parts, size = [], 0
    for part in environment().from_string(source).generate(**values):
        size += len(part)
        if size > most:
            raise TemplateError(f"it makes more than {most} characters")
        parts.append(part)
    return "".join(parts)


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    try:
        answer = {"text": rendered(given["source"], given["values"], given["most"])}
    except MemoryError:
        answer = {"error": "it takes too much memory"}
    except Exception as problem:
        # a template may do anything that Python's operators can; a line is known of mistakes in its form
        line = getattr(problem, "lineno", None)
        said = str(problem) or type(problem).__name__
        answer = {"error": (f"line {line}: " if line else "") + said[:300]}
    Path(sys.argv[2]).write_text(json.dumps(answer), "utf-8")


if __name__ == "__main__":
    main()
