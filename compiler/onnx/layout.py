"""The runtime's own layout nodes: ONNX Runtime computes convolutions and what is near them on blocks of channels."""

from __future__ import annotations

import json
from pathlib import Path

#: nodes that ONNX Runtime puts in where a value enters or leaves its blocked layout
INTO, OUT_OF = "ReorderInput", "ReorderOutput"


def layout_times(profile: str | Path) -> tuple[int, float, float]:
    """How many values enter the blocked layout, and the seconds for entering and for leaving it, from ONNX Runtime's profile.

    Times are the least of several runs, resolved to a microsecond.
    """
    least: dict[tuple[str, str], float] = {}
    for event in json.loads(Path(profile).read_text("utf-8")):
        args = event.get("args", {})
        kind = args.get("op_name")
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time") and kind in (INTO, OUT_OF):
            place = (kind, str(args.get("node_index")))
            least[place] = min(event["dur"] * 1e-6, least.get(place, 1e9))
    entering = [seconds for (kind, _), seconds in least.items() if kind == INTO]
    return len(entering), sum(entering), sum(seconds for (kind, _), seconds in least.items() if kind == OUT_OF)
