"""Templates of libraries that are rendered in the process of the tests: starting one for each takes longer than what it does."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dslc.codegen import custom, sandbox


@contextlib.contextmanager
def rendered_here() -> Iterator[None]:
    """Inside, kernels from templates start no process that renders them, and limit nothing."""
    real = custom.rendered

    def limited(command: Sequence[str], folder: Path, seconds: float, memory: int) -> tuple[int, str]:
        assert tuple(command[1:3]) == ("-m", sandbox.__name__)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", list(command[2:]))
            sandbox.main()
        return 0, ""

    def rendered(source: str, values: Mapping[str, Any]) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(custom, "limited", limited)
            return real(source, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(custom, "rendered", rendered)
        yield
