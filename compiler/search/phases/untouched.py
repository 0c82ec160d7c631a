"""Reading that Ctrl-C may end: from the moment that the model's file was read, the original is what there is to write."""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto

from dslc.onnx.functions import inlined
from dslc.report import Report
from dslc.search.phases.reading import read
from dslc.search.phases.writing import size_of
from dslc.search.runs.progress import Run
from dslc.search.runs.settings import Settings
from dslc.search.runs.stages import Optimized, Task


def begun(source: str | Path | ModelProto, settings: Settings, run: Run) -> Task | Optimized:
    """What was read; the original where that was interrupted.

    Raises:
        KeyboardInterrupt: it was interrupted before the model's file was read.
    """
    try:
        return read(source, settings, run)
    except KeyboardInterrupt:
        pass
    except Exception:
        # libraries in C may turn Ctrl-C into an error of their own
        if not settings.interrupts():
            raise
    if run.original is None:
        raise KeyboardInterrupt
    model, where = run.original
    size = size_of(model)
    report = Report(
        where, str(settings.target().machine), round(run.clock.seconds, 3), ratio=1.0, before=size, after=size, interrupted=True,
        reason="interrupted while rules and the model were read", notes=tuple(run.notes), budget=settings.budget,
        phases={name: round(seconds, 3) for name, seconds in run.clock.phases.items()},
    )  # fmt: skip
    return Optimized(inlined(model) if settings.portable == "inline" else model, report)
