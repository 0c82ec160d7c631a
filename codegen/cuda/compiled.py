"""Binaries of CUDA kernels by whichever compiler is here: NVRTC, else nvcc. No driver and no device is needed."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from dslc.codegen.cuda import nvrtc
from dslc.codegen.cuda.nvrtc import FLAGS, Binary, NotCompiled, NvrtcReason, usages
from dslc.codegen.host.compiler import NotBuilt, first_error, limited

SECONDS = 120.0  #: seconds that nvcc may take
MEMORY = 8 << 30  #: bytes that nvcc may take


def available() -> bool:
    """Return whether one of them is here."""
    return nvrtc.available() or shutil.which("nvcc") is not None


def compile(text: str, arch: str = "sm_80") -> Binary:
    """The binary of a text for an architecture, such as `sm_90`.

    Raises:
        NotCompiled: with the reason; the detail of ERROR is what the compiler says first.
    """
    path = None if nvrtc.available() else shutil.which("nvcc")
    if path is None:
        return nvrtc.compile(text, arch)
    with TemporaryDirectory(prefix="dslc-") as folder:
        source, cubin = Path(folder) / "kernel.cu", Path(folder) / "kernel.cubin"
        source.write_text(text, "utf-8")
        command = (path, *FLAGS, "-cubin", f"-arch={arch}", "-o", str(cubin), str(source))
        try:
            code, said = limited(command, Path(folder), SECONDS, MEMORY)
        except NotBuilt as problem:
            raise NotCompiled(NvrtcReason.FAILED, str(problem)) from None
        if code != 0 and "gpu-architecture" in said:
            raise NotCompiled(NvrtcReason.DEVICE, arch)
        if code != 0:
            raise NotCompiled(NvrtcReason.ERROR, first_error(said))
        return Binary(arch, cubin.read_bytes(), tuple(usages(said)))
