"""The registry of targets: where programs can run, by the names of `--on`. Adding one is a file, and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from dslc.records import record


@record
class Entry:
    """A target that is not loaded yet.

    made: `module:function`, imported when the target is asked for; takes a device (None: the first), threads and
        trusted libraries, gives a `Target`.
    devices: what lowerings that it runs say after `on`; the last one is that of templates, where there are kernels.
    sheets: `module:NAME` of the data sheets that `--device` names; empty for the machine at hand.
    kernels: whether dslc writes kernels for it.
    """

    doc: str
    made: str
    devices: tuple[str, ...]
    sheets: str = ""
    kernels: bool = False

    def make(self, device: str | None, threads: int | None, trust: tuple[str, ...] = ()) -> Any:
        """The target itself. Raises DslcError E0909 for a device that it has no sheet of."""
        return loaded(self.made)(device, threads, trust)

    @property
    def sheet_names(self) -> tuple[str, ...]:
        """Values of `--device`, the default first."""
        return tuple(loaded(self.sheets)) if self.sheets else ()


def loaded(place: str) -> Any:
    """Import the object at `module:name`."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


#: what `--on` takes; the first one is the default
TARGETS: Mapping[str, Entry] = MappingProxyType({
    "cpu": Entry("ONNX Runtime on this machine, with generated kernels", "dslc.cost.targets:with_kernels", ("ort", "ort_cpu", "cpu"),
                 kernels=True),
    "ort_cpu": Entry("ONNX Runtime on this machine, its operators alone", "dslc.cost.targets:ort_cpu", ("ort", "ort_cpu")),
    "cuda": Entry("a CUDA device, priced by a data sheet", "dslc.cuda.target:target", ("cuda",), "dslc.cuda.devices:DEVICES", True),
    "cpu_sheet": Entry("ONNX Runtime on another processor, priced by two numbers", "dslc.cost.sheet:target", ("ort", "ort_cpu"),
                       "dslc.cost.sheet:PROCESSORS"),
})  # fmt: skip
DEFAULT = next(iter(TARGETS))
#: that of ONNX Runtime on CUDA devices has lowerings, and is no target yet
DEVICES: tuple[str, ...] = tuple(
    dict.fromkeys([*(one for entry in TARGETS.values() for one in entry.devices), "ort_cuda"])
)
#: those that run more than one runtime's own words: what `dslc derive --on` takes
RUNNING: tuple[str, ...] = tuple(one for one in DEVICES if one != "ort")
#: those whose kernels `dslc build --on` shows
BUILT: tuple[str, ...] = tuple(name for name, entry in TARGETS.items() if entry.kernels)
#: the devices whose lowerings' templates become kernels
TEMPLATED: tuple[str, ...] = tuple(TARGETS[name].devices[-1] for name in BUILT)
