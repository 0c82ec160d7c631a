"""A CUDA device as a target: what it runs as one, and what groups of a graph take there, by the roofline of a data sheet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from dslc.cost.evaluation import Prices
from dslc.cost.fused_groups import Lowerings
from dslc.cost.groups import Group
from dslc.cost.layout import Info
from dslc.cost.machine import this_machine
from dslc.cost.measure import LEAST as MEASURE_LEAST
from dslc.cost.targets import ModelPlan, OwnKernels, Sheet, Target, lowerings_on
from dslc.cuda.code import generable, priced, templates_of
from dslc.cuda.costs import plan_model
from dslc.cuda.cpu_parts import hosted
from dslc.cuda.devices import DEFAULT, Device, device_named
from dslc.cuda.plan import CallStep, HostStep, KernelStep, Plan, text_of
from dslc.cuda.planning import NotPlanned, planned
from dslc.cuda.programs import looks_only
from dslc.fuse.profile import Profiles, Reach
from dslc.ir.graph import Graph, Node, Value, input_value, replace
from dslc.onnx.context import Imported
from dslc.records import record
from dslc.semantics.library import Rules, rules_cache

#: version of the format of models for one node
_IR = 8


SHOWN = 24  #: steps of a plan


@record
class Cuda(Target):
    """A device of which there is a data sheet. `trust`: libraries whose templates may run as code."""

    device: Device = device_named(DEFAULT)
    trust: tuple[str, ...] = ()

    def lowerings(self, rules: Rules) -> Lowerings:
        return lowerings_on((self.name,), rules)

    def price(self, costs: Prices, group: Group, turn: str = "") -> Info:
        """Price a group as a plan of its own; views take next to nothing."""
        rules = costs.rules
        if all(looks_only(rules, node) for node in group.nodes):
            return Info(MEASURE_LEAST)
        small = costs.samples.small(group)
        weights = {value: input_value(f"w{k}", value.type, constant=True) for k, value in enumerate(small.weights)}
        outputs = replace(small.outputs, dict[Value, Value](weights))
        models = hosted(rules, costs.samples.opset, {}, _IR)
        try:
            own = templates_of(rules, self.trust)
            able = priced(rules, self.device, own)
            found = planned(
                rules, Graph(small.inputs, outputs), self.device, generable=able, hosted=models, written=own.groups
            )
        except NotPlanned:
            return Info(inf)
        seconds = found.plan.seconds
        if all(isinstance(step, KernelStep) for step in found.plan.steps) and all(
            _pointwise(rules, node) for node in group.nodes
        ):
            # a plan computes it together with what is next to it: no launch is saved where there is one node less
            seconds -= len(found.plan.steps) * self.device.launch
        return Info(max(MEASURE_LEAST, seconds))

    def plan(
        self, rules: Rules, source: Any, imported: Imported, sizes: Mapping[str, int], feeds: Mapping[str, Any]
    ) -> ModelPlan:
        """A plan for a whole model, at the sizes of some inputs.

        Raises:
            NotPlanned: with the reason.
        """
        own = templates_of(rules, self.trust)
        able = generable(rules, self.device, own)
        found = plan_model(rules, source, imported, self.device, sizes, feeds, able, own.groups)
        said = (note for program in found.tried for note in own.said.get(program, ()))
        notes = dict.fromkeys([*own.notes, *said])
        return ModelPlan(found.plan.seconds, tuple(_told(found.plan)), text_of(found.plan), tuple(notes))


def _pointwise(rules: Rules, node: Node) -> bool:
    """Return whether every element of a result is computed of those at its own position."""
    known: dict[str, Profiles] = rules_cache(rules, "profiles of prices")
    profile = known.setdefault("", Profiles(rules)).of(node)
    return profile is not None and all(reach is Reach.OWN for reach in profile.reach)


def _told(plan: Plan) -> Iterator[str]:
    """Calls and kernels of a plan with the rules that they come from, memory, and seconds."""
    for step in plan.steps[:SHOWN]:
        kind = "call" if isinstance(step, CallStep) else "CPU" if isinstance(step, HostStep) else "kernel"
        yield f"{kind} {step.name} ({step.rule}): {step.seconds * 1e6:.4g} us"
    if len(plan.steps) > SHOWN:
        yield f"and {len(plan.steps) - SHOWN} more"
    counts = ((len(plan.steps), "step"), (plan.streams, "stream"))
    steps, streams = (f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts)
    yield f"plan for {plan.device}: {steps} on {streams}, {plan.seconds * 1e6:.4g} us, {plan.shared} bytes shared"


def target(device: str | None = None, threads: int | None = None, trust: tuple[str, ...] = ()) -> Cuda:
    """A device by its name, by default the first that there is a data sheet of.

    Raises:
        DslcError: E0909 for a device that no data sheet is known of.
    """
    found = device_named(DEFAULT if device is None else device)
    sheet = Sheet(str(found), this_machine(threads).threads, "by its data sheet, nothing measured")
    basis = f"nothing was measured: times are those of a roofline, by the data sheet of the {found.name}"
    return Cuda(sheet, "cuda", found.name, OwnKernels.PLANNED, basis, found, trust)
