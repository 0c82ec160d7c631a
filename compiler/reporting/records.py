"""Records: what a command found, as JSON that says what it is and in which version of its format."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

#: the version of each command's record: a field that goes or means another thing gives a new one, a field that comes does not
_VERSIONS = {
    "bench": 1, "derive": 1, "diff": 1, "extract": 1, "generate": 1, "import-rules": 1, "mutants": 1, "optimize": 1, "show": 1,
    "verify": 1,
}  # fmt: skip


def record_text(command: str, found: Any) -> str:
    """JSON of what a command found: an object begins with its `format`, a list has none; infinities and NaN become null."""
    if isinstance(found, Mapping):
        found = {"format": f"dslc {command} {_VERSIONS[command]}", **found}
    return json.dumps(_finite(found), indent=2) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
