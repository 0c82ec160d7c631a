"""Where a program is to run: one frozen value for each target, chosen by the name that lowerings use (`on ort_cpu`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from dslc.cost.cache import CostCache
from dslc.cost.lowered import Lowerings
from dslc.cost.machine import Machine, this_machine
from dslc.cost.measure import Measurer
from dslc.errors import error
from dslc.semantics.apply import rules_cache
from dslc.semantics.library import Rules, load

if TYPE_CHECKING:
    from dslc.cost.groups import Group
    from dslc.cost.layout import Info
    from dslc.cost.model import CostModel
    from dslc.onnx.importer import Imported

#: the library with the lowerings of all targets
LIBRARY = "targets"


class NoPlan(Exception):
    """A model that a target has no plan for; the words say why."""


class ModelPlan(Protocol):
    """How a whole model runs on a target, made without running it."""

    @property
    def seconds(self) -> float:
        """What one run takes, computed."""

    @property
    def text(self) -> str:
        """All of it, for the model's metadata."""

    @property
    def told(self) -> tuple[str, ...]:
        """What a report says of it, line by line."""


#: rules, a model and what was read of it, sizes by name, and inputs by name; raises NoPlan
Planner = Callable[["Rules", "Any", "Imported", Mapping[str, int], Mapping[str, "Any"]], ModelPlan]


class Target(Protocol):
    """Where a program runs. `dslc.cost.table` has the price of whatever a target runs; what it cannot run costs infinitely much."""

    @property
    def name(self) -> str:
        """As in `on ort_cpu`."""

    @property
    def machine(self) -> Machine:
        """What reports name, and how many threads are used."""

    @property
    def fingerprint(self) -> str:
        """What a time depends on beside the program: part of every key of a cache."""

    def lowerings(self, rules: Rules) -> Lowerings:
        """What it runs as one: its lowerings in the library of targets, and those that `rules` bring."""

    def measurer(
        self,
        cache: CostCache,
        left: Callable[[], float] = lambda: inf,
        during: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Measurer:
        """Takes times there; see `Measurer`."""

    @property
    def pricing(self) -> Callable[[CostModel, Group], Info] | None:
        """What a group takes there, where times are computed; None where they are measured."""

    @property
    def plans(self) -> Planner | None:
        """Plans whole models, where times are computed; None where models are timed."""


@dataclass(frozen=True, slots=True)
class OrtCpu:
    """ONNX Runtime on the processors of this machine."""

    machine: Machine
    name: str = "ort_cpu"
    pricing: None = None
    plans: None = None

    @property
    def fingerprint(self) -> str:
        return f"{self.name}: {self.machine}"

    def lowerings(self, rules: Rules) -> Lowerings:
        return lowerings_on(("ort", self.name), rules)

    def measurer(
        self,
        cache: CostCache,
        left: Callable[[], float] = lambda: inf,
        during: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Measurer:
        return Measurer(self.machine, cache, left, during)


#: how each target is made for a number of threads (None: its default)
TARGETS: Mapping[str, Callable[[int | None], Target]] = MappingProxyType({"ort_cpu": lambda threads: OrtCpu(this_machine(threads))})
DEFAULT = "ort_cpu"


def target_named(name: str = DEFAULT, threads: int | None = None) -> Target:
    """The target of a name, with that many threads.

    Raises:
        DslcError: E0909 for a name that no target has.
    """
    make = TARGETS.get(name)
    if make is None:
        raise error("E0909", f"there is no target `{name}`", hint="one of " + ", ".join(TARGETS))
    return make(threads)


def lowerings_on(devices: tuple[str, ...], rules: Rules) -> Lowerings:
    """The lowerings on some devices, of the library of targets and of `rules`; compiled once for each library."""
    known: dict[tuple[str, ...], Lowerings] = rules_cache(rules, "lowerings")
    if devices not in known:
        known[devices] = Lowerings(devices, load(LIBRARY), rules)
    return known[devices]
