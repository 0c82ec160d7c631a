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


#: files that take ten seconds of processor time and more, the longest first
LONG = (
    "test_optimize.py", "test_fusions.py", "test_convolutions.py", "test_regions.py", "test_budget.py", "test_attack.py",
    "test_kernels.py", "test_derivations.py", "test_in_bounds.py", "test_agreement.py", "test_library.py", "test_guards.py",
    "test_cluster.py", "test_blocks.py", "test_field.py", "test_law_strength.py", "test_renamed.py", "test_rulesets.py",
    "test_readme.py", "test_differential.py", "test_generate.py", "test_generated.py", "test_import.py", "test_check.py", "test_fmt.py",
    "test_exact_steps.py", "test_interpret_rules.py", "test_egraph_searches.py", "test_backend_suite.py", "test_node_cases.py",
    "test_verify.py", "test_export_more.py", "test_counterparts.py", "test_merging.py", "test_properties.py", "test_terms.py",
)  # fmt: skip


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
