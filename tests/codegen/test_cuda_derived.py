"""Programs that are derived from a model's expressions, for a device that is not at hand."""

from __future__ import annotations

from pathlib import Path

from dslc.cost.cache import CostCache
from dslc.cost.machine import this_machine
from dslc.cost.measure import Measurer
from dslc.cost.model import CostModel
from dslc.cuda.target import device_target
from dslc.ir.dtype import DType, TensorType
from dslc.ir.facts import fact_of
from dslc.ir.graph import Graph, input_value
from dslc.onnx.importer import import_model
from dslc.search.derivations import Derivations, derivations_of
from dslc.search.written import readable
from dslc.semantics.apply import apply
from dslc.semantics.library import standard
from tests.search.test_derivations import upsampled


def test_programs_are_priced_by_the_data_sheet_and_never_built(tmp_path: Path) -> None:
    rules = standard()
    with CostCache(str(tmp_path)) as kept:
        measurer = Measurer(this_machine(1), kept)
        try:
            costs = CostModel(rules, measurer, lambda _inputs, _outputs: None, 17, target=device_target("h100"))
            looked = Derivations(rules, derivations_of(rules), costs, 17)
            graph = import_model(upsampled(4, 64, 32, 2), rules, {}).graph
            before = looked._computed(graph)
            X, Y = (input_value(name, TensorType(DType.F32, (64, 64))) for name in "XY")
            product = apply(rules, "std.matmul", (X, Y))
            twice = apply(rules, "std.transpose", apply(rules, "std.transpose", product, {"perm": (1, 0)}), {"perm": (1, 0)})
            fact, _ = fact_of("own.turned", twice, product, (X, Y))
            rival = looked._measured(fact)
        finally:
            measurer.close()
    # seconds of an H100, not of this machine
    assert 2e-6 < before < 1e-4
    assert rival is not None and rival.kernels == () and 2e-6 < rival.after <= rival.before < 1e-4


def test_kernels_are_taken_where_the_file_says_what_they_compute() -> None:
    """A function of a group of operators is read back; one that spells an equation out in positions may not be."""
    rules = standard()
    X = input_value("h0", TensorType(DType.F32, (4, 8)))
    assert readable(rules, Graph((X,), apply(rules, "std.gelu_tanh", (X,))), 17)
