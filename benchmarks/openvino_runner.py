"""Runs models by OpenVINO in 32 bits: a process like `dslc.cost.worker`. By itself it would compute products in 16 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.runner import Runner, serve


class OpenVino(Runner):
    """A compiled model."""

    def __init__(self, model: bytes, threads: int) -> None:
        import openvino

        core = openvino.Core()
        options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        self.request = core.compile_model(core.read_model(model), "CPU", options).create_infer_request()

    def bind(self, feeds: Mapping[str, Any]) -> Callable[[], Any]:
        import openvino

        # a tensor of shared memory does not keep its array alive
        self.feeds = dict(feeds)
        for name, array in self.feeds.items():
            self.request.set_tensor(name, openvino.Tensor(array, shared_memory=True))
        return self.request.infer  # type: ignore[no-any-return]


if __name__ == "__main__":
    serve(OpenVino)
