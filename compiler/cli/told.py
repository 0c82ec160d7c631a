"""The story of a result: which rule came when, what it gained, and which later step it made possible."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dslc.errors import Diagnostic, DslcError

SHARE = 1e-3  #: share of what the graph takes; a step that saves less saves nothing


def story_of(path: Path) -> str:
    """What a report of `dslc optimize --report` says about the way to its result, line by line.

    Raises:
        DslcError: E0914 for a file that is no report.
        OSError: it cannot be read.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
        turns = [
            (str(t["rule"]), int(t["count"]), float(t["predicted_ms"]), float(t["gain_ms"])) for t in data["story"]
        ]
        lines = [_outcome(data), *_told(turns)]
    except (ValueError, KeyError, TypeError, RecursionError):
        text = "it is no report of `dslc optimize --report FILE.json`"
        raise DslcError([Diagnostic("E0914", text, path=str(path))]) from None
    lines += [f"note: {note}" for note in data.get("notes", ())]
    return "\n".join(lines) + "\n"


def _outcome(data: Mapping[str, Any]) -> str:
    model = str(data["model"])
    if data["kept_original"]:
        return f"{model}: the original is kept: {data['reason']}"
    before, after = data["before_ms"], data["after_ms"]
    timed = (
        ""
        if before is None or after is None
        else f": {before:.3g} ms -> {after:.3g} ms, {data['ratio']:.2f} times as fast"
    )
    return f"{model}{timed}"


def _told(turns: Sequence[tuple[str, int, float, float]]) -> list[str]:
    """A line for each step; one that saves nothing is told with the next one that does."""
    out: list[str] = []
    for k, (rule, count, after, gain) in enumerate(turns):
        places = f" at {count} places" if count > 1 else ""
        if gain > SHARE * (after + gain):
            text = f"saves {gain:.4g} ms, {after:.4g} ms are left (predicted)"
        else:
            later = next(
                (j for j in range(k + 1, len(turns)) if turns[j][3] > SHARE * (turns[j][2] + turns[j][3])), None
            )
            cost = f"costs {-gain:.4g} ms, and " if -gain > SHARE * after else "saves nothing, and "
            text = cost + ("leads to nothing else" if later is None else f"makes step {later + 1} possible")
        out.append(f"{k + 1:3}. {rule}{places}: {text}")
    return out
