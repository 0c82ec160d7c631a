"""Targets: each is one frozen value that is asked for prices, times, plans and kernels. `semantics/targets` lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import Any

from dslc.cost.cache import CostCache
from dslc.cost.evaluation import Prices
from dslc.cost.fused_groups import Lowerings
from dslc.cost.groups import Group
from dslc.cost.layout import Info
from dslc.cost.machine import Machine, this_machine
from dslc.cost.measure import Measurer, Unmeasured
from dslc.deadline import FOREVER, Deadline
from dslc.errors import error
from dslc.onnx.context import Imported
from dslc.records import record
from dslc.semantics.library import Rules, load, rules_cache
from dslc.semantics.targets import TARGETS

#: the library with the lowerings of all targets
LIBRARY = "targets"
#: default target: the runtime's own operators
DEFAULT = "ort_cpu"


class NoPlan(Exception):
    """A model that a target has no plan for; the words say why."""


@record
class ModelPlan:
    """A plan of a whole model on a target, made without running it.

    Attributes:
        seconds: computed seconds of one run.
        told: lines of a report.
        text: all of it, for the model's metadata; empty where whoever runs the model needs none.
        warnings: lines about what it does without, as about templates that are not trusted.
    """

    seconds: float
    told: tuple[str, ...]
    text: str = ""
    warnings: tuple[str, ...] = ()


class OwnKernels(Enum):
    """Code generation of a target for nodes without an ONNX operator."""

    NONE = "nothing: models have ONNX's nodes alone"
    BUILT = "kernels are compiled here, and measured"
    PLANNED = "it is a function of the model, for which a plan has a kernel"


@record
class Target:
    """A device and its runtime.

    `dslc.cost.sheet` has the price of each call that a target runs; a node that it cannot run has an infinite price.

    Attributes:
        machine: that reports name: threads, and the processor that kernels are written for; where times are computed, the threads
            with which outputs are compared on this machine.
        name: as in `--on ort_cpu`.
        where: the device that a report names.
        kernels: how there are kernels for nodes without an ONNX operator.
        basis: of what times are computed; empty where they are taken by running.
    """

    machine: Machine
    name: str = ""
    where: str = "this machine"
    kernels: OwnKernels = OwnKernels.NONE
    basis: str = ""

    @property
    def measured(self) -> bool:
        """True where times are taken by running."""
        return not self.basis

    @property
    def fingerprint(self) -> str:
        """Digest of the target's properties that times depend on, beside the program."""
        return str(self.machine)

    def lowerings(self, rules: Rules) -> Lowerings:
        """Lowerings of the library of targets, and those of `rules`."""
        return lowerings_on(("ort", "ort_cpu"), rules)

    def measurer(
        self,
        cache: CostCache,
        until: Deadline = FOREVER,
        during: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Measurer:
        """Takes times there; see `Measurer`."""
        return Measurer(self.machine, cache, until, during) if self.measured else Unmeasured(self.machine)

    def price(self, costs: Prices, group: Group, turn: str = "") -> Info:
        """Price a group; each `turn` is another measurement, where it is measured."""
        return costs.timed(group, turn)

    def plan(
        self, rules: Rules, source: Any, imported: Imported, sizes: Mapping[str, int], feeds: Mapping[str, Any]
    ) -> ModelPlan:
        """Plan a whole model, where times are computed.

        Args:
            source, imported: the model, and what was read of it.
            sizes, feeds: sizes and inputs by name.

        Raises:
            NoPlan: there is none.
        """
        raise NoPlan("whole models are timed here")


@record
class Sheet(Machine):
    """A machine by its data sheet: what is said of it was not measured."""

    def __str__(self) -> str:
        return f"{self.device}, {self.runtime}"


def ort_cpu(_device: str | None = None, threads: int | None = None, _trust: tuple[str, ...] = ()) -> Target:
    """ONNX Runtime's own operators on this machine."""
    return Target(this_machine(threads), DEFAULT)


def with_kernels(_device: str | None = None, threads: int | None = None, _trust: tuple[str, ...] = ()) -> Target:
    """ONNX Runtime on this machine, with kernels."""
    return Target(this_machine(threads), "cpu", kernels=OwnKernels.BUILT)


def target_named(
    name: str = DEFAULT, device: str | None = None, threads: int | None = None, trust: tuple[str, ...] = ()
) -> Target:
    """The target of a name in the registry, for a device that it knows (None: its first), with that many threads.

    Args:
        trust: libraries whose templates may run as code.

    Raises:
        DslcError: E0909 for a name that no target has, or a device that it does not know.
    """
    entry = TARGETS.get(name)
    if not entry:
        raise error("E0909", f"there is no target `{name}`", hint="one of " + ", ".join(TARGETS))
    made: Target = entry.make(device, threads, trust)
    return made


def lowerings_on(devices: tuple[str, ...], rules: Rules) -> Lowerings:
    """The lowerings on some devices, of the library of targets and of `rules`; compiled once for each library."""
    known: dict[tuple[str, ...], Lowerings] = rules_cache(rules, "lowerings")
    if devices not in known:
        known[devices] = Lowerings(devices, load(LIBRARY), rules)
    return known[devices]
