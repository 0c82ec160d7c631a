"""What `dslc derive` shows for a call, each program compared with the call at random numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

from dslc.api.calls import called_as
from dslc.cli.derive import command
from dslc.interpret.floats import Floats
from dslc.interpret.run import run_scopes
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules
from dslc.semantics.written import read_program
from tests.libraries import libraries


def library(*own: Path) -> Rules:
    return libraries("std", "einnet", *map(str, own))


def derived(text: str, *options: str) -> list[dict[str, Any]]:
    """The programs that are shown, each of which computes what the call does on random numbers, too."""
    done = CliRunner().invoke(command, [text, *options, "--output-format", "json"], catch_exceptions=False)
    programs: list[dict[str, Any]] = json.loads(done.output)["programs"]
    file, _, _ = text.rpartition("::")
    rules = library(*[Path(file)] * bool(file))
    called = called_as(rules, text, None, {})
    feeds = {
        value: np.random.default_rng(k).standard_normal(value.type.shape) for k, value in enumerate(called.graph.inputs)
    }
    (want,) = run_scopes([*expand(rules, called.graph.outputs)], feeds, Floats(rounded=False))
    for each in programs:
        assert each["proved"]
        graph = read_program(rules, each["program"])
        own = dict(zip(graph.inputs, feeds.values(), strict=True))
        (got,) = run_scopes([*expand(rules, graph.outputs)], own, Floats(rounded=False))
        assert np.allclose(got, want), each["program"]
    return programs


def names(program: dict[str, Any]) -> list[str]:
    return [call["operator"] for call in program["calls"]]


def shapes(program: dict[str, Any]) -> list[list[list[int]]]:
    """Of each call the sizes of its operands, transposed or not."""
    return sorted(
        sorted(sorted(size for size in shape if size > 1) for shape in call["shapes"]) for call in program["calls"]
    )
