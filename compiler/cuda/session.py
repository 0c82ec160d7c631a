"""`dslc.cuda.Session`: a model file on a CUDA device, by vendors' calls and generated kernels."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.cuda.code import templates_of
from dslc.cuda.costs import plan_model, stored_plan
from dslc.cuda.devices import DEFAULT, DEVICES, Device
from dslc.cuda.launch import LASTING, CudaFailure, Launcher, Reason
from dslc.cuda.launchers import launcher as found_launcher
from dslc.cuda.plan import BadPlan, Plan
from dslc.cuda.planning import Generable, NotPlanned, Places, nowhere
from dslc.cuda.runner import Runner, Texts, Weights
from dslc.ir.scalar import Sym
from dslc.onnx.importer import import_model
from dslc.outside import in_line
from dslc.semantics.library import Rules, standard

if TYPE_CHECKING:
    from onnx import ModelProto


KEPT = 8  #: plans that are kept, by the shapes of inputs


class Session:
    """A model on a device.

    The plan in the file's metadata is data: dslc plans the model itself, and a stored plan that is another one is not run. `notes` says
    so where it happened.

    Args:
        model: a file, or a model without external data.
        launcher: what runs plans; by default PyCUDA's where it imports, else cuda.core's.
        cpu: whether ONNX Runtime serves on the CPU where there is no device, or one that is too old or too small. It is said once, as a
            warning.
        rules: what the model is read with, by default the standard library.
        trust: libraries of `rules` whose templates may run as code, as `dslc optimize --trust`.
        texts, generable: which kernels there are, by default dslc's own.

    Raises:
        CudaFailure: there is no device that can run it, and `cpu` is false.
        DslcError: the model cannot be read.
    """

    def __init__(
        self, model: str | os.PathLike[str] | ModelProto, *, launcher: Launcher | None = None, cpu: bool = False,
        rules: Rules | None = None, trust: Sequence[str] = (), texts: Texts | None = None, generable: Generable | None = None,
    ) -> None:  # fmt: skip
        from onnx import ModelProto

        from dslc.cuda import code

        self.rules = rules or standard()
        self._model = model if isinstance(model, ModelProto) else os.fspath(model)
        self._cpu, self._plain = cpu, None
        imported = import_model(self._model, self.rules)
        self._imported, self.graph = imported, imported.graph
        self.inputs = tuple(str(getattr(value.node, "name", "")) for value in self.graph.inputs)
        self.outputs = tuple(one.name for one in imported.context.model.graph.output)
        self.notes: list[str] = []
        self.stored = self._stored(imported.context.model)
        self._runners: dict[tuple[tuple[int, ...], ...], Runner] = {}
        #: on the device once, whatever shapes there are plans for
        self._weights: Weights = {}
        self.launcher: Launcher | None = None
        self._own = launcher is None
        try:
            self.launcher = launcher or found_launcher()
        except CudaFailure as problem:
            self._serve(problem)
        own = templates_of(self.rules, trust)
        interprets = self.launcher is not None and self.launcher.interprets
        self._texts = texts if interprets or texts is not None else code.texts(self.rules, self.device, own)
        self._generable = generable or code.generable(self.rules, self.device, own)
        self._written: Places = own.groups if generable is None else nowhere

    @property
    def device(self) -> Device:
        """The data sheet by which plans are made: the one of the stored plan, else one of the device's age."""
        if self.stored and self.stored.device in DEVICES:
            return DEVICES[self.stored.device]
        capability = self.launcher.capability if self.launcher else (9, 0)
        near = [one for one in DEVICES.values() if one.capability == capability]
        return near[0] if near else DEVICES[DEFAULT]

    def _stored(self, model: ModelProto) -> Plan | None:
        try:
            return stored_plan(model)
        except BadPlan as problem:
            self.notes.append(f"the plan in the file is not used: {problem}")
            return None

    def run(self, outputs: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Outputs by name (None: all of them), for inputs by name, as `onnxruntime.InferenceSession.run` does.

        Raises:
            CudaFailure: a kernel or a call failed, with its name and the rules that it comes from.
            ValueError: an input is missing, or of another type or shape.
        """
        wanted = self.outputs if outputs is None else tuple(outputs)
        unknown = [name for name in wanted if name not in self.outputs]
        if unknown:
            raise ValueError(f"the model has no output {unknown[0]}")
        if self._plain is None:
            try:
                found = self.runner(feeds).run(feeds)
                return [found[name] for name in wanted]
            except CudaFailure as problem:
                self._serve(problem)
        assert self._plain is not None
        return list(self._plain.run(list(wanted), dict(feeds)))

    def runner(self, feeds: Mapping[str, Any]) -> Runner:
        """Return the runner for the shapes of some inputs.

        Raises:
            CudaFailure: there is no plan, or no memory.
        """
        assert self.launcher
        missing = [name for name in self.inputs if name not in feeds]
        if missing:
            raise ValueError(f"the input {missing[0]} is missing")
        shapes = tuple(np.shape(feeds[name]) for name in self.inputs)
        found = self._runners.get(shapes)
        if not found:
            while len(self._runners) >= KEPT:
                self._runners.pop(next(iter(self._runners))).close()
            found = self._runners[shapes] = self._planned(shapes, feeds)
        return found

    def _planned(self, shapes: tuple[tuple[int, ...], ...], feeds: Mapping[str, Any]) -> Runner:
        assert self.launcher
        sizes: dict[str, int] = {}
        for value, shape in zip(self.graph.inputs, shapes, strict=True):
            if not value.known:
                # whoever plans it says so
                continue
            if value.type.rank != len(shape):
                raise ValueError(f"an input has {len(shape)} axes, and {value.type} is wanted")
            for size, given in zip(value.type.shape, shape, strict=True):
                if isinstance(size, Sym) and sizes.setdefault(size.name, given) != given:
                    raise ValueError(f"{size.name} is {sizes[size.name]} and {given}")
        try:
            planned = plan_model(
                self.rules, self._model, self._imported, self.device, sizes, feeds, self._generable, self._written
            )
        except NotPlanned as problem:
            raise CudaFailure(Reason.PLAN, str(problem)) from None
        if self.stored and _at(self.stored) == _at(planned.plan) and not self.stored.same(planned.plan):
            self.notes.append("the plan in the file is not used: dslc plans this model in another way")
        return Runner(self.rules, planned, self.launcher, self._texts, weights=self._weights)

    def _serve(self, problem: CudaFailure) -> None:
        """Lets the CPU serve, where that is allowed and no device could do better; says so once. Raises the problem else."""
        if not self._cpu or problem.reason not in LASTING:
            raise problem
        from dslc.sessions import session

        warnings.warn(f"{in_line(problem.diagnostics[0].message)}; the model runs on the CPU", stacklevel=3)
        self.close()
        self._plain = session(self._model)

    def close(self) -> None:
        """Frees what is on the device."""
        while self._runners:
            self._runners.popitem()[1].close()
        while self._weights and self.launcher:
            self.launcher.free(self._weights.popitem()[1])
        if self._own and self.launcher:
            self.launcher.close()


def _at(plan: Plan) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The sizes that a plan is for."""
    return tuple((name, view.shape) for name, view in plan.inputs)
