"""Models on a CUDA device: the original by vendors' calls and kernels, the optimized one, and torch.compile, side by side.

    python3 benchmarks/gpu.py --carry WHEELS                  # where there is a network: all packages that are needed
    python3 benchmarks/gpu.py --wheels WHEELS --device h100   # on the device's machine, which may be offline: tests, then the table
    python -m benchmarks.gpu --fake                           # no device: the same code, with times that say nothing
    python -m benchmarks.gpu --priced --networks              # no device: whole networks by the data sheet, and what was chosen

`--python 3.12 --have FILE` carries for another Python, without what that machine has (its `pip freeze`). `--networks` takes real
networks instead of small models, `--zoo` those of the papers.

Rows are kept in a file as they are made, so that a run that is stopped goes on where it was. Times are medians of rounds in which the
programs take turns, of runs whose inputs are on the device; the values of each are compared with ONNX Runtime's on the CPU first.
Where there is no device, it says so and ends with 0.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.gpu_cases import Built, Case, Network
    from dslc.cuda.launch import Launcher

ROOT = Path(__file__).resolve().parents[1]
#: what the tests of a device need
TESTS = ("pytest", "hypothesis")
#: what is carried in a version that needs less: later ones bring compilers, 200 MB, which nothing here calls
LIGHT = ("nvidia-cudnn-frontend<1.19",)
#: rounds in which programs take turns, runs of a round, and how far values may be apart (as a part of the largest one)
ROUNDS, RUNS, APART = 9, 50, {"f32": 2e-3, "f16": 3e-2}
#: seconds that the device which records may take for a network
RECORDED = 150.0


@dataclass(frozen=True)
class Row:
    """What was found of one model; seconds of one run, None with a word in `note` where there is none."""

    case: str
    device: str
    before: float | None = None
    after: float | None = None
    torch: float | None = None
    #: what the data sheet says of both
    priced_before: float | None = None
    priced_after: float | None = None
    apart: float | None = None
    note: str = ""


def searched(case: Case | Network | Built, sheet: str, fake: bool, budget: float, cache: Path) -> tuple[Any, str]:
    """The optimized model, and what was applied."""
    import dslc
    from benchmarks.gpu_cases import Case

    model, _, bind = case.given(fake)
    # a dry run of a small model proves no rules
    search: Any = {"only": ["std.double_neg"], "steps": 2} if fake and isinstance(case, Case) else {}
    done = dslc.optimize(model, on="cuda", device=sheet, budget=budget, bind=bind, cache=cache, threads=1, **search)
    return done.model, _rules(done.report)


def ahead(
    cases: Sequence[Case | Network | Built], options: argparse.Namespace, cache: Path
) -> dict[str, tuple[Any, str]]:
    """Searches of several models at a time, each in a process of its own; nothing is timed while they run. One that fails is
    searched again where it is measured, and its reason is in its row."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        began = {
            case.label: pool.submit(searched, case, options.device, options.fake, options.budget, cache)
            for case in cases
        }
        return {label: one.result() for label, one in began.items() if one.exception() is None}


def measured(
    case: Case | Network | Built, launcher: Launcher, sheet: str, fake: bool, budget: float, cache: Path,
    found_before: tuple[Any, str] | None = None,
) -> Row:  # fmt: skip
    """A row: a failure is one as well, with its reason, and the next row is made all the same."""
    import onnxruntime

    from dslc.cuda import Session
    from dslc.errors import DslcError

    try:
        model, feeds, _ = case.given(fake)
    except (RuntimeError, OSError) as problem:
        return Row(case.label, _name(launcher, sheet), note=f"it is not at hand: {str(problem).splitlines()[0]}")
    wanted = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, feeds
    )
    name = _name(launcher, sheet)
    sessions: dict[str, Any] = {}
    notes: list[str] = []
    apart = 0.0
    try:
        optimized, applied = found_before or searched(case, sheet, fake, budget, cache)
        notes.append(applied)
        for which, one in (("before", model), ("after", optimized)):
            sessions[which] = Session(one, launcher=launcher)
            for _ in range(2):
                # the second run is recorded
                found = sessions[which].run(None, feeds)
            apart = max(apart, *(_apart(a, b) for a, b in zip(found, wanted, strict=True)))
        if apart > APART[case.dtype]:
            notes.append(f"the values are apart by {apart:.2g}")
    except DslcError as problem:
        return Row(case.label, name, note=str(problem.diagnostics[0].message))
    runners = {which: session.runner(feeds) for which, session in sessions.items()}
    if fake:
        from tests.codegen.plan_checks import faults

        notes += [f"{which}: {fault}" for which, runner in runners.items() for fault in faults(runner.plan)[:2]]
    programs: dict[str, Callable[[int], float]] = {which: runner.seconds for which, runner in runners.items()}
    torch, why = (None, "") if fake else _torch(model, feeds, wanted, APART[case.dtype])
    if torch is not None:
        programs["torch"] = torch
    notes += [why] if why else []
    times = _in_turns(programs, *((1, 1) if fake else (ROUNDS, RUNS)))
    priced = {f"priced_{which}": runner.plan.seconds for which, runner in runners.items()}
    row = Row(case.label, name, **times, **priced, apart=apart, note="; ".join(notes))
    for session in sessions.values():
        session.close()
    return row


def priced(case: Case | Network | Built, sheet: str, budget: float, cache: Path) -> Row:
    """A row without a device: plans of both by the data sheet, looked through for faults; values by ONNX Runtime, which runs what the
    kernels compute as functions, and by the device that records where the interpreter is not too slow for that."""
    import onnxruntime

    import dslc
    from benchmarks.fake_device import FakeDevice
    from dslc.codegen.limits import TooLong, within
    from dslc.cuda import Session
    from dslc.cuda.code import generable
    from dslc.cuda.costs import plan_model
    from dslc.cuda.devices import device_named
    from dslc.errors import DslcError
    from dslc.onnx.importer import import_model
    from dslc.semantics.library import standard
    from tests.codegen.plan_checks import faults

    name = f"{sheet} by its data sheet"
    try:
        model, feeds, bind = case.given(False)
        done = dslc.optimize(model, on="cuda", device=sheet, budget=budget, bind=bind, cache=cache, threads=1)
        rules, device = standard(), device_named(sheet)
        plans = [
            plan_model(rules, one, import_model(one, rules), device, bind, feeds, generable(rules, device)).plan
            for one in (model, done.model)
        ]
        wanted, found = (
            onnxruntime.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
            for one in (model, done.model)
        )
        apart = max(_apart(a, b) for a, b in zip(found, wanted, strict=True))
        notes = [f"{_told(plans[0])} -> {_told(plans[1])}", _rules(done.report)]
        notes += [fault for plan in plans for fault in faults(plan)[:2]]
        try:
            recorded = within(
                RECORDED, lambda: Session(done.model, launcher=FakeDevice(rules, order=0)).run(None, feeds)
            )
            apart = max(apart, *(_apart(a, b) for a, b in zip(recorded, wanted, strict=True)))
            notes.append("recorded")
        except TooLong:
            notes.append("not recorded: the interpreter takes too long")
    except DslcError as problem:
        return Row(case.label, name, note=str(problem.diagnostics[0].message))
    except (RuntimeError, OSError) as problem:
        return Row(case.label, name, note=f"it is not at hand: {str(problem).splitlines()[0]}")
    before, after = (plan.seconds for plan in plans)
    return Row(case.label, name, priced_before=before, priced_after=after, apart=apart, note="; ".join(notes))


def _told(plan: Any) -> str:
    """What a plan consists of: calls, and what their prices count on; kernels; parts for the CPU."""
    words = {"CallStep": "calls", "KernelStep": "kernels", "HostStep": "on the CPU"}
    kinds = Counter(words[type(step).__name__] for step in plan.steps)
    counted = Counter(step.rule.rpartition(", priced with ")[2] for step in plan.steps if ", priced with " in step.rule)
    found = [f"{kinds['calls']} calls" + "".join(f" ({count} {how})" for how, count in counted.items())]
    return ", ".join([*found, *(f"{kinds[kind]} {kind}" for kind in ("kernels", "on the CPU") if kinds[kind])])


def _rules(report: Any) -> str:
    """The rules of a report, and how often each was applied."""
    found = Counter[str]()
    for step in report.steps:
        found[step.rule.rpartition("std.")[2]] += step.count
    return ", ".join(f"{rule}{f' x {count}' if count > 1 else ''}" for rule, count in found.most_common(6)) or "kept"


def _apart(found: Any, wanted: Any) -> float:
    import numpy as np

    largest = float(np.abs(wanted).max(initial=1e-6))
    return float(np.abs(np.asarray(found, np.float64) - wanted).max(initial=0.0)) / largest


def _in_turns(programs: Mapping[str, Callable[[int], float]], rounds: int, runs: int) -> dict[str, float]:
    found: dict[str, list[float]] = {which: [] for which in programs}
    for _ in range(rounds):
        for which, program in programs.items():
            found[which].append(program(runs))
    return {which: statistics.median(times) for which, times in found.items()}


def _torch(
    model: Any, feeds: Mapping[str, Any], wanted: Sequence[Any], most: float
) -> tuple[Callable[[int], float] | None, str]:
    """The model by torch.compile on the device; None and why there is none."""
    try:
        import torch

        if not torch.cuda.is_available():
            return None, "torch has no device"
        from benchmarks.torch_runner import compiled_on

        run = compiled_on(model, feeds, "cuda")
        found = [one.cpu().numpy() for one in run()]
        if max(_apart(a, b) for a, b in zip(found, wanted, strict=True)) > most:
            return None, "torch gives other values"
    except ImportError:
        return None, "torch is not installed"
    except Exception as problem:  # compilers have many ways to fail; the row is made without
        return None, f"torch.compile: {type(problem).__name__}"

    def seconds(runs: int) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(runs):
            run()
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / runs

    return seconds, ""


def _name(launcher: Launcher, sheet: str) -> str:
    return f"{sheet} sm_{launcher.capability[0]}{launcher.capability[1]} by {launcher.name}"


# ---- rows that are kept, and the table ---------------------------------------------------------------------------------------


def known(path: Path) -> dict[tuple[str, str], Row]:
    """The rows of earlier runs; a line that was cut short is made again."""
    rows = {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            row = Row(**json.loads(line))
        except (ValueError, TypeError):
            continue
        rows[row.case, row.device] = row
    return rows


def kept(path: Path, row: Row) -> Row:
    """The row, which is in the file from now on."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(row)) + "\n")
    return row


HEAD = "| model | original, us | optimized, us | ratio | torch.compile, us | ratio to it | roofline, us | apart | |\n"
HEAD += "|---" * 9 + "|"


def line(row: Row) -> str:
    """A row of the table."""

    def micro(seconds: float | None) -> str:
        return "-" if seconds is None else f"{seconds * 1e6:.2f}"

    def ratio(a: float | None, b: float | None) -> str:
        return "-" if a is None or b is None or b <= 0 else f"{a / b:.2f}"

    priced = f"{micro(row.priced_before)} -> {micro(row.priced_after)} ({ratio(row.priced_before, row.priced_after)})"
    apart = "-" if row.apart is None else f"{row.apart:.1e}"
    own = (row.case, micro(row.before), micro(row.after), ratio(row.before, row.after))
    cells = (*own, micro(row.torch), ratio(row.torch, row.after), priced, apart, row.note)
    return "| " + " | ".join(cells) + " |"


# ---- a machine without a network ----------------------------------------------------------------------------------------------


def carry(folder: Path, python: str, have: Sequence[str]) -> int:
    """All packages that the benchmark needs, as files for a Python (`3.12`) on Linux, but those that the machine has."""
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["cuda"], *TESTS, *LIGHT]
    tags = ["manylinux1", "manylinux2010", "manylinux2014", *(f"manylinux_2_{minor}" for minor in range(5, 41))]
    platforms = [word for tag in tags for word in ("--platform", f"{tag}_x86_64")]
    foreign = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python, *platforms]
    # the tree itself is as good for any Python
    commands = ([*pip, "wheel", "-q", "--no-deps", "--wheel-dir", str(folder), str(ROOT)],
                [*pip, "download", "-q", "--dest", str(folder), *foreign, *wanted])  # fmt: skip
    for command in commands:
        code = subprocess.run(command, cwd=folder).returncode
        if code:
            return code
    there = {_plain(name) for name in have} - {_plain(project["name"])}
    for wheel in folder.glob("*.whl"):
        if _plain(wheel.name.partition("-")[0]) in there:
            wheel.unlink()
    size = sum(wheel.stat().st_size for wheel in folder.glob("*.whl"))
    print(f"{len(list(folder.glob('*.whl')))} packages, {size / 2**20:.1f} MiB")
    return 0


def _plain(name: str) -> str:
    """The name of a package as it is compared: `nvidia_cudnn_frontend` is `nvidia-cudnn-frontend`."""
    return re.split(r"[\s=<>!~;@\[]", name.strip(), maxsplit=1)[0].replace("_", "-").replace(".", "-").lower()


def environment(folder: Path, home: Path) -> Path:
    """An environment with the packages of a folder, beside those that the machine has; its Python."""
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", str(home)], check=True)
        # an environment that was made in another one does not see its packages
        for own in home.glob("lib/python*/site-packages"):
            there = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
            (own / "machine.pth").write_text("".join(f"{path}\n" for path in there), encoding="utf-8")
    offline = ["--no-index", "--find-links", str(folder.resolve())]
    install = [str(python), "-m", "pip", "install", "-q", *offline]
    # the tree as it was carried, whatever there is of the same version; what it needs comes from the folder
    subprocess.run([*install, "--force-reinstall", "--no-deps", "dslc"], check=True)
    subprocess.run([*install, "dslc[cuda]", *TESTS], check=True)
    return python


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--carry", type=Path, metavar="WHEELS", help="fetch the packages that are needed into a folder, and end"
    )
    parser.add_argument(
        "--python", default=f"{sys.version_info[0]}.{sys.version_info[1]}", help="with --carry: the machine's Python"
    )
    parser.add_argument(
        "--have", type=Path, help="with --carry: names of packages that the machine has, one a line (`pip freeze`)"
    )
    parser.add_argument(
        "--wheels", type=Path, help="install from this folder into an environment of its own, test, then measure"
    )
    parser.add_argument(
        "--device", default="h100", choices=["a100", "h100", "h200"], help="the data sheet that plans are made by"
    )
    parser.add_argument("--row", action="append", help="only models whose name begins so")
    parser.add_argument(
        "--networks", action="store_true", help="real networks instead, as far as they are at hand or can be fetched"
    )
    parser.add_argument("--zoo", action="store_true", help="networks of the papers instead")
    parser.add_argument(
        "--priced", action="store_true", help="no device: what the data sheet says, and what was chosen"
    )
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of one search")
    parser.add_argument("--jobs", type=int, default=1, help="searches at a time, all before the first is measured")
    parser.add_argument("--results", type=Path, default=Path("gpu.jsonl"), help="rows, kept as they are made")
    parser.add_argument("--again", action="store_true", help="make rows that failed again")
    parser.add_argument(
        "--fake", action="store_true", help="no device: small sizes, values by the interpreter, times that say nothing"
    )
    options = parser.parse_args(arguments)
    if options.carry is not None:
        have = options.have.read_text("utf-8").split("\n") if options.have is not None else []
        return carry(options.carry.resolve(), options.python, [name for name in have if name.strip()])
    if options.wheels is not None:
        python = environment(options.wheels, options.wheels / "environment")
        rest = [
            word
            for word in sys.argv[1:]
            if word not in {"--wheels", str(options.wheels)} and not word.startswith("--wheels=")
        ]
        subprocess.run([str(python), "-m", "pytest", "-q", "tests/gpu"], cwd=ROOT)
        return subprocess.run([str(python), "-m", "benchmarks.gpu", *rest], cwd=ROOT).returncode
    return table(options)


def table(options: argparse.Namespace) -> int:
    """Makes the rows that are missing, and prints all."""
    from benchmarks.fake_device import FakeDevice
    from benchmarks.gpu_cases import built, cases, networks
    from dslc.cuda import CudaFailure
    from dslc.cuda.launchers import launcher
    from dslc.semantics.library import standard

    every: Sequence[Case | Network | Built] = networks() if options.networks else built() if options.zoo else cases()
    chosen = [case for case in every if not options.row or any(case.label.startswith(word) for word in options.row)]
    done = known(options.results)
    if options.priced:
        print(HEAD)
        with tempfile.TemporaryDirectory() as cache:
            for case in chosen:
                row = done.get((case.label, f"{options.device} by its data sheet"))
                if row is None or (options.again and row.priced_after is None):
                    row = kept(options.results, priced(case, options.device, options.budget, Path(cache)))
                print(line(row), flush=True)
        print("no device: nothing was measured")
        return 0
    try:
        device: Launcher = FakeDevice(standard()) if options.fake else launcher()
    except CudaFailure as problem:
        print(f"nothing is measured: {problem.diagnostics[0].message}")
        return 0
    with tempfile.TemporaryDirectory() as cache:
        missing = [case for case in chosen if (case.label, _name(device, options.device)) not in done]
        found = ahead(missing, options, Path(cache)) if options.jobs > 1 else {}
        print(HEAD)
        for case in chosen:
            row = done.get((case.label, _name(device, options.device)))
            if row is None or (options.again and row.before is None):
                asked = (options.device, options.fake, options.budget, Path(cache), found.get(case.label))
                row = kept(options.results, measured(case, device, *asked))
            print(line(row), flush=True)
    device.close()
    if options.fake:
        print("no device: the times say nothing")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    sys.exit(main())
