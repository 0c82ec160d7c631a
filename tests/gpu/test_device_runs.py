"""What runs on a device, against the interpreter. Without one these are skipped; `tests/codegen/test_cuda_launchers.py` runs the same
checks on bindings that record."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dslc.cuda import CudaFailure, Reason, Session
from dslc.cuda.launch import Launcher
from dslc.cuda.launchers import launcher
from tests.codegen.test_cuda_session import by_runtime, model, rows
from tests.gpu.checks import CHECKS

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device() -> Iterator[Launcher]:
    try:
        found = launcher()
    except CudaFailure as problem:
        pytest.skip(f"{problem.diagnostics[0].message}")
    yield found
    found.close()


@pytest.mark.parametrize("name", CHECKS)
def test_on_a_device(device: Launcher, name: str) -> None:
    CHECKS[name](device)


def test_a_session_of_its_own(device: Launcher) -> None:
    session = Session(model())
    for count in (5, 3, 5, 5):
        np.testing.assert_allclose(
            session.run(None, {"x": rows(count)})[0], by_runtime(rows(count)), rtol=1e-4, atol=1e-6
        )
    session.close()


def test_more_memory_than_there_is(device: Launcher) -> None:
    with pytest.raises(CudaFailure) as caught:
        device.allocate(1 << 46)
    assert caught.value.reason is Reason.MEMORY
    # and the device goes on
    device.free(device.allocate(64))
