"""Templates of libraries that are rendered once for the same values: each time is a process of its own."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from dslc.codegen import custom
from dslc.codegen.custom import NotRendered


@contextlib.contextmanager
def rendered_once() -> Iterator[None]:
    """Inside, what `dslc.codegen.custom.rendered` gives or raises is remembered."""
    real, known = custom.rendered, dict[str, str | NotRendered]()

    def rendered(source: str, values: Mapping[str, Any], *limits: float) -> str:
        key = json.dumps([source, values, *limits])
        if key not in known:
            try:
                known[key] = real(source, values, *limits)  # type: ignore[arg-type]
            except NotRendered as problem:
                known[key] = problem
        found = known[key]
        if isinstance(found, NotRendered):
            raise found
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(custom, "rendered", rendered)
        yield
