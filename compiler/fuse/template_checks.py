"""Templates of lowerings as `dslc check` sees them: filled in for a small program that each takes, and compiled. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dslc.codegen.cuda import compiled, shim
from dslc.codegen.cuda.custom import custom_cuda
from dslc.codegen.cuda.nvrtc import NotCompiled
from dslc.codegen.cuda.text import CudaText
from dslc.codegen.custom import NotRendered, custom_kernel
from dslc.codegen.host.compiler import BuildReason, NotBuilt, first_error
from dslc.codegen.host.library import build
from dslc.codegen.text import KernelText, NotGenerated
from dslc.errors import Diagnostic, DslcError, SourceText, Span
from dslc.fuse.templates import TemplatesOn, instances
from dslc.records import record
from dslc.semantics.definitions import LoweringDef, Module
from dslc.semantics.env import EvalError, Mismatch, Unbound
from dslc.semantics.library import Rules
from dslc.semantics.trust import NoTemplate, template_of, template_path, template_text

COMPILING = 60.0  #: seconds that a compiler may take


@record
class _Device:
    """Functions of a device: templates become text, and a compiler's complaint about it, none where there is no compiler."""

    write: Callable[..., Any]
    refused: Callable[[Any], str]


def check_templates(rules: Rules, modules: Iterable[Module], found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Report W0015 for templates that make no text, or one that the compiler refuses.

    Lowerings with findings already are left out, as are those for which no small program is found.
    """
    chosen = frozenset(modules)
    known = [one.span for one in found if one.span and (one.severity == "error" or one.code == "W0015")]
    out = []
    for lowering in rules.lowerings.values():
        if lowering.module in chosen and not any(span.starts_in(lowering.span) for span in known):
            out += _of(rules, lowering)
    return out


def _of(rules: Rules, lowering: LoweringDef) -> list[Diagnostic]:
    statement, device = template_of(lowering), _DEVICES.get(lowering.syntax.device)
    if not statement or not device:
        return []
    program = next(iter(instances(rules, lowering)), None)
    if not program:
        return []
    templates = TemplatesOn(lowering.syntax.device, (rules,), (lowering.module.library,), device.write)
    line, text = 0, ""
    try:
        made = templates.attempt(lowering.name, program)
        if made is None:
            return []
        text = made.text
        problem = device.refused(made)
        where = re.search(rf"\b{re.escape(Path(statement.template).name)}[:(](\d+)", problem)
        line = int(where[1]) if where else 0
    except NotRendered as reason:
        problem, line = str(reason), reason.line
    except (NotGenerated, Mismatch, EvalError, Unbound) as reason:
        problem = str(reason)
    except DslcError as reason:
        problem = reason.diagnostics[0].message
    if not problem:
        return []
    message = f"the template of `{lowering.short}` is left out: {problem}"
    span = _line(lowering, statement.template, line, text) or statement.span
    return [Diagnostic("W0015", message, span, severity="warning")]


def _line(lowering: LoweringDef, name: str, line: int, made: str) -> Span | None:
    """A line of a template: one of its own where nothing was made of it, else that which became such a line of its text."""
    try:
        source = SourceText(str(template_path(lowering.module, name)), template_text(lowering.module, name))
    except NoTemplate:
        return None
    lines = source.text.splitlines()
    if made:
        own = made.partition(f'#line 1 "{Path(name).name}"\n')[2].splitlines()
        wanted = own[line - 1].strip() if 0 < line <= len(own) else ""
        places = [k + 1 for k, one in enumerate(lines) if one.strip() == wanted]
        line = places[0] if wanted and len(places) == 1 else line if len(places) > 1 and line in places else 0
    if not 0 < line <= len(lines):
        return None
    text = lines[line - 1]
    start = source.line_starts[line - 1] + len(text) - len(text.lstrip())
    return Span(source, start, max(start + 1, source.line_starts[line - 1] + len(text.rstrip())))


def _refused_here(text: KernelText) -> str:
    """The C++ compiler's errors for a kernel."""
    with TemporaryDirectory(prefix="dslc-") as folder:
        try:
            build([text], Path(folder), seconds=COMPILING)
        except NotBuilt as problem:
            return "" if problem.reason is not BuildReason.ERROR else first_error(problem.detail)
    return ""


def _refused_there(text: CudaText) -> str:
    """The errors of NVRTC or nvcc for a kernel, and of the C++ compiler, by which it is run on the CPU."""
    if compiled.available():
        try:
            compiled.compile(text.text)
        except NotCompiled as problem:
            return problem.detail or str(problem)
    with TemporaryDirectory(prefix="dslc-") as folder:
        try:
            shim.build([text], Path(folder), sanitize=False, seconds=COMPILING)
        except NotBuilt as problem:
            return "" if problem.reason is not BuildReason.ERROR else problem.detail
    return ""


_DEVICES: Mapping[str, _Device] = {
    "cpu": _Device(custom_kernel, _refused_here),
    "cuda": _Device(custom_cuda, _refused_there),
}
