"""Shared by all tests."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from dslc.semantics.library import Rules

# Tests report nothing to anyone, and must not depend on luck or on the machine's mood.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# Libraries that are loaded again and again make many objects and little cyclic garbage: looking for it took half of the time.
gc.set_threshold(200_000, 20, 20)
settings.register_profile("dslc", deadline=None, derandomize=True)
settings.load_profile("dslc")


#: files that take longest, which begin first where tests are distributed; by seconds of processor time
LONG: tuple[str, ...] = ()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first: a core that ends with one would leave the others without work."""
    first = {name: k for k, name in enumerate(LONG)}
    items.sort(key=lambda item: first.get(item.path.name, len(first)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests run in one process, in the order of the files, unless `--dist` says otherwise: they share what they build."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


@pytest.fixture(scope="session")
def std() -> Rules:
    """The standard library."""
    from dslc.semantics.library import standard

    return standard()
