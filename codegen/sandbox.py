"""Renders the template of a library in a process of its own: `python -m dslc.codegen.sandbox FILE ANSWER`.

FILE is JSON with `source`, `values` and `most` (characters of the result), ANSWER becomes JSON, too: `text`, or `error`. The caller
limits time and memory; a template reaches nothing but the values that it is given.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from traceback import extract_tb
from typing import Any

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


def environment() -> ImmutableSandboxedEnvironment:
    """Sandboxed environment of libraries' templates: no files, no attributes with an underscore, no mutation."""
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


def _line(problem: BaseException) -> int:
    """The line of a template in which something was raised; 0 where it was not there."""
    lines = [frame.lineno or 0 for frame in extract_tb(problem.__traceback__) if frame.filename == "<template>"]
    return lines[-1] if lines else 0


def main() -> None:
    """Render the template that the file of the first argument names, and write the outcome as JSON."""
    given = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    try:
        answer: dict[str, Any] = {"text": rendered(given["source"], given["values"], given["most"])}
    except MemoryError:
        answer = {"error": "it takes too much memory"}
    except Exception as problem:
        # a template may do anything that Python's operators can
        line = getattr(problem, "lineno", None) or _line(problem)
        said = str(problem) or type(problem).__name__
        answer = {"error": (f"line {line}: " if line else "") + said[:300], "line": line}
    Path(sys.argv[2]).write_text(json.dumps(answer), "utf-8")


if __name__ == "__main__":
    main()
