"""Kernels for AArch64 on any machine: made by a cross compiler, and run by an emulator of its instructions."""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dslc.codegen.host.compiler import NotBuilt, compiler
from dslc.codegen.host.processor import of_level
from dslc.codegen.text import KernelText
from dslc.ir.constants import NUMPY
from tests.codegen.native import Library, NotRun, build

LEVEL = "armv8-a"
EMULATOR = "qemu-aarch64"
#: seconds that one run may take
SECONDS = 120.0

#: runs a kernel of a library: what to run is read from a file, its outputs are written to another. Every array ends where memory does.
RUNNER = r"""
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>
static FILE* from;
static void* library;
static std::string kernel;
static int64_t number() {
    int64_t n;
    if (fread(&n, sizeof(n), 1, from) != 1) abort();
    return n;
}
static char* memory(int64_t bytes) {
    const int64_t page = sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    char* at = (char*)mmap(nullptr, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + whole, page, PROT_NONE)) abort();
    return at + whole - bytes;
}
template <class F> static F* function(const char* part) {
    void* found = dlsym(library, (kernel + part).c_str());
    if (!found) { fprintf(stderr, "%s\n", dlerror()); exit(2); }
    return (F*)found;
}
int main(int, char** argument) {
    library = dlopen(argument[1], RTLD_NOW);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return 2; }
    kernel = argument[2];
    from = fopen(argument[3], "rb");
    FILE* to = fopen(argument[4], "wb");
    if (!from || !to) return 2;
    const int64_t shares = number(), inputs = number(), outputs = number();
    std::vector<std::vector<int64_t>> dims(inputs);
    std::vector<const int64_t*> listed;
    std::vector<const void*> in;
    std::vector<void*> out;
    for (auto& each : dims) {
        each.resize(number() + 1);
        for (size_t k = 0; k + 1 < each.size(); k++) each[k] = number();
        listed.push_back(each.data());
        const int64_t bytes = number();
        in.push_back(memory(bytes));
        if (bytes && fread((void*)in.back(), bytes, 1, from) != 1) abort();
    }
    int64_t sizes[64];
    const int64_t fits = function<int(const int64_t* const*, int64_t*)>("_sizes")(listed.data(), sizes);
    fwrite(&fits, sizeof(fits), 1, to);
    if (!fits) return fclose(to);
    std::vector<int64_t> widths;
    for (int64_t k = 0; k < outputs; k++) {
        int64_t bytes = number(), shape[16] = {};
        const int64_t rank = number();
        function<void(const int64_t*, int, int64_t*)>("_shape")(sizes, (int)k, shape);
        for (int64_t axis = 0; axis < rank; axis++) bytes *= shape[axis];
        fwrite(shape, sizeof(int64_t), rank, to);
        out.push_back(memory(bytes));
        widths.push_back(bytes);
    }
    const int64_t scratch = (function<int64_t(const int64_t*)>("_scratch")(sizes) + 63) / 64 * 64;
    char* const room = memory(scratch);
    auto tasks = function<int64_t(const int64_t*, int)>("_tasks");
    auto run = function<void(const int64_t*, const void* const*, void* const*, void*, int, int64_t, int64_t)>("_run");
    const int stages = function<int()>("_stages")();
    if (fits == 1)
        for (int stage = 0; stage < stages; stage++) {
            const int64_t all = tasks(sizes, stage);
            for (int64_t k = 0; k < shares && all > 0; k++)
                run(sizes, in.data(), out.data(), room, stage, all * k / shares, all * (k + 1) / shares);
        }
    for (int64_t k = 0; k < outputs; k++) fwrite(out[k], 1, widths[k], to);
    return fclose(to);
}
"""


@cache
def missing() -> str:
    """What is not there of what it takes; empty where all is."""
    try:
        compiler(of_level(LEVEL))
    except NotBuilt as problem:
        return str(problem)
    return "" if shutil.which(EMULATOR) else f"there is no {EMULATOR}"


@cache
def runner() -> tuple[str, ...]:
    """The command that runs a kernel: the emulator, the place of the system's libraries, and a program."""
    used = compiler(of_level(LEVEL)).command
    folder = Path(tempfile.mkdtemp(prefix="dslc-aarch64-"))
    (folder / "run.cpp").write_text(RUNNER, "utf-8")
    program = folder / "run"
    subprocess.run(
        [*used, "-std=c++17", "-O1", "-o", str(program), str(folder / "run.cpp"), "-ldl"], check=True, timeout=300
    )
    said = subprocess.run([*used, "-print-file-name=libc.so.6"], capture_output=True, text=True, check=True, timeout=60)
    return EMULATOR, "-L", str(Path(said.stdout.strip()).resolve().parent.parent), str(program)


class Emulated(Library):
    """A library for AArch64. Threads are parts of the tasks, one after another."""

    def _run(self, text: KernelText, arrays: Sequence[Any], threads: int) -> tuple[Any, ...]:
        out = [struct.pack("<3q", threads, len(arrays), len(text.outputs))]
        for array in arrays:
            out.append(struct.pack(f"<{array.ndim + 2}q", array.ndim, *array.shape, array.nbytes) + array.tobytes())
        out += [struct.pack("<2q", type.dtype.bytes, type.rank) for type in text.outputs]
        with tempfile.TemporaryDirectory() as folder:
            given, made = Path(folder) / "given", Path(folder) / "made"
            given.write_bytes(b"".join(out))
            command = [*runner(), str(self.path), text.name, str(given), str(made)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
            assert done.returncode == 0, f"{text.name} ends with {done.returncode}: {done.stderr[-2000:]}"
            content = made.read_bytes()
        (fits,) = struct.unpack_from("<q", content)
        at = 8
        shapes = []
        for type in text.outputs if fits else ():
            shapes.append(struct.unpack_from(f"<{type.rank}q", content, at))
            at += 8 * type.rank
        if not fits or (fits == 2 and any(0 not in shape for shape in shapes)):
            raise NotRun("the kernel was not made for these sizes")
        outputs = []
        for type, shape in zip(text.outputs, shapes, strict=True):
            kind = np.dtype(NUMPY[type.dtype])
            count = int(np.prod(shape, dtype=np.int64))
            outputs.append(np.frombuffer(content, kind, count, at).reshape(shape))
            at += count * kind.itemsize
        assert at == len(content)
        return tuple(outputs)


def built(kernels: Any, folder: Path | None = None, seconds: float = 600.0) -> Emulated:
    """As `build`, for AArch64."""
    made = build(kernels, folder, seconds=seconds, processor=of_level(LEVEL))
    return Emulated(made.path, made.kernels, made.failed)
