"""Shared by all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator
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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each process goes through its part in the order of the files, whose tests share what they build; one that is done takes half of
    what another has left, so that nobody needs to know how long what takes. `--dist` says otherwise."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Ctrl-C interrupts, also where a shell started the tests in the background and ignores it there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """An interrupt that a test makes, and that nobody catches, is the test's failure, and not the end of all tests."""
    try:
        return (yield)
    except KeyboardInterrupt:
        if "interrupts" not in pyfuncitem.fixturenames:
            raise
        pytest.fail("the interrupt was not caught")


@pytest.fixture(scope="session")
def std() -> Rules:
    """The standard library."""
    from dslc.semantics.library import standard

    return standard()


@pytest.fixture(scope="session", autouse=True)
def workers() -> Iterator[None]:
    """Processes that run models are forked, and measure no longer than a test needs."""
    from dslc.cost import measure
    from tests.workers import forked_workers

    measure.LONGEST = measure.AGAIN = 0.08
    # what is said must not depend on what else runs
    os.getloadavg = lambda: (0.0, 0.0, 0.0)
    with forked_workers():
        yield


def pytest_sessionfinish() -> None:
    """What is alive at the end is not looked through for garbage: pytest does that ten times, which took six seconds."""
    gc.freeze()
