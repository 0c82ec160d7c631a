"""The interface that launchers on a device share with the recording device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any, Protocol

from dslc.errors import Diagnostic, DslcError
from dslc.ir.dtype import DType
from dslc.ir.graph import Graph
from dslc.records import record


class Reason(Enum):
    """Reason why a plan does not run; decisions depend on it, never on the words of a message."""

    NO_LAUNCHER = "neither PyCUDA nor cuda.core is installed"
    NO_DEVICE = "no CUDA device"
    TOO_OLD = "the device is too old"
    MEMORY = "the device has too little memory"
    BINDING = "a vendor's library or its binding is missing"
    COMPILE = "a kernel does not compile"
    LOAD = "a kernel does not load"
    LAUNCH = "a kernel or a call failed"
    NO_ENGINE = "a vendor's library has nothing that computes it at once"
    PLAN = "there is no plan for the model"
    #: a failure of the launcher without a known cause
    UNKNOWN = "the launcher failed"


#: where no other device could do it better, so that the CPU may serve
LASTING = frozenset({Reason.NO_LAUNCHER, Reason.NO_DEVICE, Reason.TOO_OLD, Reason.MEMORY, Reason.BINDING, Reason.PLAN})


class CudaFailure(DslcError):
    """A plan that does not run: the reason, and the kernel or function with the rules that it comes from."""

    def __init__(self, reason: Reason, detail: str = "", kernel: str = "", rule: str = "") -> None:
        what = f"`{kernel}` ({rule}): " if kernel else ""
        words = f"{what}{reason.value}" + (f": {detail}" if detail else "")
        super().__init__([Diagnostic("E0816", words)])
        self.reason, self.detail, self.kernel, self.rule = reason, detail, kernel, rule

    def of(self, kernel: str, rule: str) -> CudaFailure:
        """The same, of a kernel or function where none was known."""
        return self if self.kernel else CudaFailure(self.reason, self.detail, kernel, rule)


def first_line(problem: BaseException) -> str:
    """Return the first line of what an error says, or its name."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:300]


@record
class Tensor:
    """Elements on a device: the address of the first one, and strides in elements."""

    pointer: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@record
class Code:
    """A kernel: its name, the rules that it comes from, what it computes, and its text where one is needed (a `CudaText`)."""

    name: str
    rule: str
    program: Graph
    text: Any = None


@record
class Invoked:
    """A vendor's call with its tensors at their addresses. `workspace` is an address and a number of bytes; 0: none."""

    function: str
    rule: str
    arguments: Mapping[str, int | float | str | tuple[int, ...] | Tensor] = field(default_factory=dict)
    workspace: tuple[int, int] = (0, 0)


class Launcher(Protocol):
    """Runs what a plan says. Addresses are numbers; streams are numbered from 0. Everything raises CudaFailure."""

    #: what it is called
    name: str
    #: compute capability of the device
    capability: tuple[int, int]
    #: whether what fails may be seen only when something waits for it
    delayed: bool
    #: whether kernels are computed from their programs, so that no text of one is wanted
    interprets: bool

    def allocate(self, bytes: int) -> int:
        """The address of new memory."""

    def free(self, pointer: int) -> None: ...

    def upload(self, pointer: int, data: bytes) -> None:
        """Copies to the device, and waits."""

    def download(self, pointer: int, bytes: int) -> bytes:
        """Copies from the device, and waits for all streams first."""

    def load(self, code: Code) -> Any:
        """Compiles a kernel and loads it; what `kernel` takes."""

    def kernel(
        self, loaded: Any, reads: Sequence[Tensor], writes: Sequence[Tensor], scratch: Sequence[int], stream: int
    ) -> None:
        """Starts a kernel."""

    def call(self, invoked: Invoked, stream: int) -> None:
        """Starts a vendor's call."""

    def record(self, stream: int) -> Any:
        """An event after what was started on a stream so far."""

    def wait(self, stream: int, event: Any) -> None:
        """Make work started on a stream from now on wait for an event."""

    def begin(self) -> None:
        """Start to capture a graph where the launcher can; else work runs at once."""

    def end(self) -> Any | None:
        """Return the graph captured since `begin`; None where everything was run."""

    def replay(self, recorded: Any) -> None:
        """Starts what was recorded."""

    def synchronize(self) -> None:
        """Waits for everything."""

    def close(self) -> None: ...
